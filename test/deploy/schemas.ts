/**
 * What a Compose file and Kubernetes manifests may hold, as far as deploy/ uses them: closed, so that a slip in a name
 * or a type is found here and not by the cluster. From the Compose specification and the API reference of Kubernetes
 * 1.32.
 */
const text = { type: 'string', minLength: 1 }
const whole = { type: 'integer', minimum: 0 }
const truth = { type: 'boolean' }
const list = (items: object) => ({ type: 'array', items, minItems: 1 })
const map = (additionalProperties: object) => ({ type: 'object', additionalProperties, minProperties: 1 })
const closed = (required: Record<string, object>, optional: Record<string, object> = {}) => ({
  type: 'object',
  additionalProperties: false,
  required: Object.keys(required),
  properties: { ...required, ...optional },
})

// ---- Compose --------------------------------------------------------------------------------------------------------

const duration = { type: 'string', pattern: '^(\\d+(ms|s|m|h))+$' }
const service = closed(
  { image: text },
  {
    build: { anyOf: [text, closed({ context: text, target: text })] },
    profiles: list(text),
    command: list(text),
    read_only: truth,
    cap_drop: list(text),
    security_opt: list({ enum: ['no-new-privileges:true'] }),
    sysctls: map(whole),
    stop_grace_period: duration,
    environment: map({ type: 'string' }),
    ports: list({ type: 'string', pattern: '^(\\d+(\\.\\d+){3}:)?\\d+:\\d+$' }),
    volumes: list({ type: 'string', pattern: '^[^:]+:/[^:]+(:ro)?$' }),
    depends_on: {
      anyOf: [list(text), map(closed({ condition: { enum: ['service_started', 'service_healthy'] } }))],
    },
    healthcheck: closed(
      { test: { type: 'array', prefixItems: [{ enum: ['CMD', 'CMD-SHELL'] }], items: text, minItems: 2 } },
      { interval: duration, timeout: duration, retries: whole, start_period: duration },
    ),
  },
)
export const COMPOSE = closed({ services: map(service) }, { volumes: map({ type: 'null' }) })

// ---- Kubernetes -----------------------------------------------------------------------------------------------------

const name = { type: 'string', pattern: '^[a-z0-9]([-a-z0-9]*[a-z0-9])?$', maxLength: 63 }
const labels = map({ type: 'string', pattern: '^[A-Za-z0-9]([-\\w.]*[A-Za-z0-9])?$' })
const metadata = closed({ name }, { labels, annotations: map({ type: 'string' }) })
const selector = closed({ matchLabels: labels })
const quantity = { type: 'string', pattern: '^\\d+(\\.\\d+)?(m|Ki|Mi|Gi)?$' }
const resources = closed({}, { cpu: quantity, memory: quantity })
const clocks = { periodSeconds: whole, timeoutSeconds: whole, failureThreshold: whole, initialDelaySeconds: whole }
const probe = {
  oneOf: [
    closed({ exec: closed({ command: list(text) }) }, clocks),
    closed({ httpGet: closed({ path: { type: 'string', pattern: '^/' }, port: text }) }, clocks),
  ],
}
const container = closed(
  { name, image: text },
  {
    imagePullPolicy: { enum: ['Always', 'IfNotPresent', 'Never'] },
    args: list(text),
    envFrom: list(closed({ secretRef: closed({ name }) })),
    ports: list(closed({ containerPort: { type: 'integer', minimum: 1, maximum: 65535 } }, { name })),
    securityContext: closed(
      {},
      {
        readOnlyRootFilesystem: truth,
        allowPrivilegeEscalation: truth,
        capabilities: closed({}, { drop: list(text) }),
      },
    ),
    resources: closed({}, { requests: resources, limits: resources }),
    startupProbe: probe,
    readinessProbe: probe,
    livenessProbe: probe,
    volumeMounts: list(closed({ name, mountPath: { type: 'string', pattern: '^/' } }, { readOnly: truth })),
  },
)
const pod = closed(
  { containers: list(container) },
  {
    terminationGracePeriodSeconds: whole,
    automountServiceAccountToken: truth,
    securityContext: closed(
      {},
      {
        runAsNonRoot: truth,
        runAsUser: whole,
        fsGroup: whole,
        seccompProfile: closed({ type: { enum: ['RuntimeDefault', 'Localhost', 'Unconfined'] } }),
      },
    ),
    topologySpreadConstraints: list(
      closed({
        maxSkew: { type: 'integer', minimum: 1 },
        topologyKey: text,
        whenUnsatisfiable: { enum: ['DoNotSchedule', 'ScheduleAnyway'] },
        labelSelector: selector,
      }),
    ),
    volumes: list({
      oneOf: [
        closed({ name, configMap: closed({ name }) }),
        closed({ name, emptyDir: { type: 'object', additionalProperties: false } }),
      ],
    }),
  },
)
const template = closed({ metadata: closed({ labels }, { annotations: map({ type: 'string' }) }), spec: pod })
/** A protocol with a port's number, or its name in the pods. */
const policyPort = closed({ protocol: { enum: ['TCP', 'UDP'] }, port: { oneOf: [whole, name] } })
const peer = {
  oneOf: [
    closed({ namespaceSelector: selector }),
    closed({ podSelector: selector }),
    closed({ ipBlock: closed({ cidr: text }, { except: list(text) }) }),
  ],
}
const object = (apiVersion: string, kind: string, body: Record<string, object>) =>
  closed({ apiVersion: { const: apiVersion }, kind: { const: kind }, metadata, ...body })

export const KUSTOMIZATION = closed({
  apiVersion: { const: 'kustomize.config.k8s.io/v1beta1' },
  kind: { const: 'Kustomization' },
  resources: list(text),
  patches: list(closed({ target: closed({ kind: text, name }), patch: text }, { options: map(truth) })),
})

export const KUBERNETES: Record<string, object> = {
  ConfigMap: object('v1', 'ConfigMap', { data: map({ type: 'string' }) }),
  Secret: object('v1', 'Secret', { type: { const: 'Opaque' }, stringData: map({ type: 'string' }) }),
  Deployment: object('apps/v1', 'Deployment', {
    spec: closed(
      { selector, template },
      {
        replicas: whole,
        strategy: closed(
          {},
          { type: { const: 'RollingUpdate' }, rollingUpdate: closed({}, { maxUnavailable: whole, maxSurge: whole }) },
        ),
      },
    ),
  }),
  StatefulSet: object('apps/v1', 'StatefulSet', {
    spec: closed(
      {
        selector,
        template,
        serviceName: name,
        volumeClaimTemplates: list(
          closed({
            metadata,
            spec: closed(
              {
                accessModes: list({ enum: ['ReadWriteOnce', 'ReadWriteOncePod'] }),
                resources: closed({ requests: closed({ storage: quantity }) }),
              },
              { storageClassName: text },
            ),
          }),
        ),
      },
      { replicas: whole, podManagementPolicy: { enum: ['Parallel', 'OrderedReady'] } },
    ),
  }),
  Service: object('v1', 'Service', {
    spec: closed(
      { selector: labels, ports: list(closed({ port: whole }, { name, targetPort: text })) },
      {
        type: { enum: ['ClusterIP', 'NodePort', 'LoadBalancer'] },
        clusterIP: { const: 'None' },
        publishNotReadyAddresses: truth,
      },
    ),
  }),
  Ingress: object('networking.k8s.io/v1', 'Ingress', {
    spec: closed(
      {
        ingressClassName: name,
        rules: list(
          closed({
            host: text,
            http: closed({
              paths: list(
                closed({
                  path: text,
                  pathType: { enum: ['Prefix', 'Exact'] },
                  backend: closed({ service: closed({ name, port: closed({ name }) }) }),
                }),
              ),
            }),
          }),
        ),
      },
      { tls: list(closed({ hosts: list(text), secretName: name })) },
    ),
  }),
  NetworkPolicy: object('networking.k8s.io/v1', 'NetworkPolicy', {
    spec: closed({
      podSelector: selector,
      policyTypes: list({ enum: ['Ingress', 'Egress'] }),
      ingress: list(closed({ ports: list(policyPort) }, { from: list(peer) })),
      egress: list(closed({ ports: list(policyPort) }, { to: list(peer) })),
    }),
  }),
  // Of the Prometheus operator.
  ServiceMonitor: object('monitoring.coreos.com/v1', 'ServiceMonitor', {
    spec: closed({
      selector,
      endpoints: list(
        closed({
          port: name,
          interval: duration,
          authorization: closed({ credentials: closed({ name, key: text }) }),
          relabelings: list(closed({ targetLabel: text, replacement: text })),
        }),
      ),
    }),
  }),
  PrometheusRule: object('monitoring.coreos.com/v1', 'PrometheusRule', {
    spec: closed({ groups: list(closed({ name: text, rules: list({ type: 'object' }) }, { interval: duration })) }),
  }),
  HorizontalPodAutoscaler: object('autoscaling/v2', 'HorizontalPodAutoscaler', {
    spec: closed({
      scaleTargetRef: closed({ apiVersion: text, kind: text, name }),
      minReplicas: whole,
      maxReplicas: whole,
      metrics: list(
        closed({
          type: { const: 'Pods' },
          pods: closed({
            metric: closed({ name: { type: 'string', pattern: '^[a-z_]+$' } }),
            target: closed({ type: { const: 'AverageValue' }, averageValue: quantity }),
          }),
        }),
      ),
      behavior: closed({
        scaleDown: closed({
          stabilizationWindowSeconds: whole,
          policies: list(closed({ type: { enum: ['Pods', 'Percent'] }, value: whole, periodSeconds: whole })),
        }),
      }),
    }),
  }),
  PodDisruptionBudget: object('policy/v1', 'PodDisruptionBudget', {
    spec: closed({ minAvailable: whole, selector }),
  }),
}
