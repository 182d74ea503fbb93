{{- define "sluice.name" -}}
{{ .Release.Name | trunc 57 | trimSuffix "-" }}
{{- end }}

{{- define "sluice.selector" -}}
app.kubernetes.io/name: sluice
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "sluice.labels" -}}
{{ include "sluice.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "sluice.kind" -}}
{{ ternary "StatefulSet" "Deployment" .Values.journal.persistent }}
{{- end }}

{{- define "sluice.probe" -}}
exec: { command: [node, -e, "fetch('http://127.0.0.1:9090/{{ . }}').then(r => process.exit(r.ok ? 0 : 1), () => process.exit(1))"] }
{{- end }}
