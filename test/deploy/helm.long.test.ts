/**
 * The Helm chart, linted and rendered by Helm itself: what it makes is as strict as the manifests of deploy/kubernetes,
 * and the same pods. Helm is a Go module; where none is installed, this makes one.
 */
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { parse, parseAllDocuments } from 'yaml'
import { findProgram } from '../ensure-deps.ts'
import { loads, ROOT, read, valid } from './kit.ts'
import { KUBERNETES } from './schemas.ts'

const MODULE = 'helm.sh/helm/v3/cmd/helm@v3.22.0'
/** Kept beside what else is made of packages. Its first build takes some two minutes of CPU. */
const FOLDER = join(ROOT, 'node_modules/.cache/sluice-helm')

/** The program, or why there is none. */
function findHelm(): { helm: string } | { reason: string } {
  const helm = findProgram(['helm']) ?? join(FOLDER, 'helm')
  if (existsSync(helm)) return { helm }
  const go = findProgram(['go', '/usr/local/go/bin/go'])
  if (!go) return { reason: `neither helm nor go is installed: go install ${MODULE}` }
  const env = { ...process.env, GOBIN: FOLDER, CGO_ENABLED: '0' }
  const built = spawnSync(go, ['install', '-ldflags=-s -w', MODULE], { env, encoding: 'utf8', timeout: 900_000 })
  if (built.status === 0) return { helm }
  return { reason: `go install ${MODULE} failed: ${built.stderr?.trim().split('\n').at(-1) || built.error?.message}` }
}

const found = findHelm()
const skip = 'reason' in found ? found.reason : false
const chart = join(ROOT, 'deploy/helm/sluice')

function helm(...args: string[]): { status: number | null; said: string } {
  assert.ok('helm' in found)
  const { status, stdout, stderr } = spawnSync(found.helm, args, { encoding: 'utf8' })
  return { status, said: stdout + stderr }
}

/** What the chart makes of these options; each object is checked. */
function render(...options: string[]): any[] {
  const { status, said } = helm('template', 'sluice', chart, '--kube-version', '1.32.0', ...options)
  assert.equal(status, 0, said)
  const objects = parseAllDocuments(said).map(document => (document as any).toJS())
  for (const each of objects) {
    assert.ok(KUBERNETES[each.kind], each.kind)
    valid(KUBERNETES[each.kind]!, each)
  }
  return objects
}

const kinds = (objects: any[]) => objects.map(({ kind }) => kind).sort()
const of = (objects: any[], kind: string) => objects.find(each => each.kind === kind)

test('it lints, and makes the pods of deploy/kubernetes with a configuration that loads', { skip }, async t => {
  const linted = helm('lint', '--strict', chart)
  assert.equal(linted.status, 0, linted.said)
  const objects = render('--set', 'image.tag=latest')
  assert.deepEqual(kinds(objects), ['ConfigMap', 'Deployment', 'PodDisruptionBudget', 'Service', 'Service'])
  const manifests = parseAllDocuments(read('deploy/kubernetes/sluice.yaml')).map(document => (document as any).toJS())
  const pod = (all: any[]) => {
    const { topologySpreadConstraints, ...spec } = structuredClone(of(all, 'Deployment').spec.template.spec)
    for (const container of spec.containers) delete container.imagePullPolicy
    return spec
  }
  assert.deepEqual(pod(objects), pod(manifests))
  const { strategy, replicas, selector, template } = of(objects, 'Deployment').spec
  const theirs = of(manifests, 'Deployment').spec
  assert.deepEqual([strategy, replicas], [theirs.strategy, theirs.replicas])
  for (const service of objects.filter(({ kind }) => kind === 'Service'))
    assert.deepEqual(service.spec.selector, selector.matchLabels)
  assert.deepEqual(selector.matchLabels, template.metadata.labels)
  assert.match(template.metadata.annotations['checksum/config'], /^[0-9a-f]{64}$/)
  await loads(t, of(objects, 'ConfigMap').data['gateway.yaml'])
})

test('a configuration of one’s own is merged into that of the chart, and large numbers stay whole', {
  skip,
}, async t => {
  const model = {
    context_window: 1048576,
    price: { input: 0.3, output: 2.5 },
    backends: [{ provider: 'openai', model: 'x' }],
  }
  const [plain, own] = [render(), render('--set-json', `config.models.mine=${JSON.stringify(model)}`)]
  const text: string = of(own, 'ConfigMap').data['gateway.yaml']
  await loads(t, text)
  assert.deepEqual(Object.keys(parse(text).models), ['gpt-5', 'mine'])
  assert.equal(parse(text).models.mine.context_window, 1048576)
  const checksum = (objects: any[]) => of(objects, 'Deployment').spec.template.metadata.annotations['checksum/config']
  assert.notEqual(checksum(own), checksum(plain), 'a change restarts the pods')
  assert.equal(of(render('--set', 'restartOnChange=false'), 'Deployment').spec.template.metadata.annotations, undefined)
})

test('all that is off by default: volumes, Ingress, NetworkPolicy, autoscaler, Prometheus operator', { skip }, () => {
  const on = [
    'journal.persistent',
    'ingress.enabled',
    'networkPolicy.enabled',
    'autoscaling.enabled',
    'serviceMonitor.enabled',
  ]
  const digest = `sha256:${'0'.repeat(64)}`
  const values = [
    `image.digest=${digest}`,
    'ingress.host=llm.example.com',
    'ingress.tlsSecret=tls',
    'prometheusRule.runbooks=https://example.com/',
  ]
  const files = ['alerts=deploy/prometheus/alerts.yml', 'objectives=deploy/prometheus/slo.yml']
  const objects = render(
    ...[...on.map(name => `${name}=true`), ...values].flatMap(set => ['--set', set]),
    ...files.flatMap(file => ['--set-file', `prometheusRule.${file.replace('=', `=${ROOT}/`)}`]),
  )
  const plain = kinds(render())
  const more = ['HorizontalPodAutoscaler', 'Ingress', 'NetworkPolicy', 'PrometheusRule', 'ServiceMonitor']
  assert.deepEqual(kinds(objects), [...plain.filter(kind => kind !== 'Deployment'), 'StatefulSet', ...more].sort())

  const { spec } = of(objects, 'StatefulSet')
  assert.equal(spec.replicas, undefined, 'the autoscaler decides')
  assert.equal(spec.template.spec.containers[0].image, `sluice@${digest}`)
  assert.deepEqual(
    spec.template.spec.containers[0].volumeMounts.map(({ name }: any) => name).sort(),
    [...spec.template.spec.volumes.map(({ name }: any) => name), spec.volumeClaimTemplates[0].metadata.name].sort(),
  )
  const services = objects.filter(({ kind }) => kind === 'Service')
  const [open, admin] = services
  assert.equal(spec.serviceName, admin.metadata.name)
  const { kind, name } = of(objects, 'HorizontalPodAutoscaler').spec.scaleTargetRef
  assert.deepEqual([kind, name], ['StatefulSet', of(objects, 'StatefulSet').metadata.name])

  const [rule] = of(objects, 'Ingress').spec.rules
  assert.equal(rule.http.paths[0].backend.service.name, open.metadata.name)
  assert.equal(rule.http.paths[0].backend.service.port.name, open.spec.ports[0].name)
  const policy = of(objects, 'NetworkPolicy').spec
  assert.deepEqual(policy.podSelector.matchLabels, spec.selector.matchLabels)
  const byHand = parse(read('deploy/kubernetes/network.yaml')).spec
  assert.deepEqual([policy.ingress, policy.egress], [byHand.ingress, byHand.egress])
  const monitor = of(objects, 'ServiceMonitor').spec
  for (const [label, value] of Object.entries(monitor.selector.matchLabels)) {
    assert.equal(admin.metadata.labels[label], value)
  }
  assert.notDeepEqual(
    { ...open.metadata.labels, ...monitor.selector.matchLabels },
    open.metadata.labels,
    'one Service only',
  )
  assert.equal(monitor.endpoints[0].port, admin.spec.ports[0].name)
  assert.ok(read('deploy/secrets.sh').includes(`${monitor.endpoints[0].authorization.credentials.key}=`))

  const { groups } = of(objects, 'PrometheusRule').spec
  const shown = ['alerts', 'slo'].map(file =>
    read(`deploy/prometheus/${file}.yml`).replaceAll('runbook_url: docs/', 'runbook_url: https://example.com/docs/'),
  )
  assert.deepEqual(
    groups,
    shown.flatMap(text => parse(text).groups),
  )
})

/** It was fixed at 45 s, so that with a longer drain pods were killed amid their streams. */
test('the time to end is a value, and by default above what a gateway takes', { skip }, () => {
  const time = (...options: string[]) =>
    of(render(...options), 'Deployment').spec.template.spec.terminationGracePeriodSeconds
  assert.equal(time('--set', 'terminationGracePeriodSeconds=150'), 150)
  const { server } = parse(read('deploy/helm/sluice/values.yaml')).config
  assert.ok(time() > Number.parseInt(server.drain, 10) + Number.parseInt(server.drain_delay, 10))
})

test('an Ingress whose addresses the gateway does not trust is told of', { skip }, t => {
  // `helm template` shows no notes, and `helm install` wants a cluster: this chart has them in an object.
  const copy = mkdtempSync(join(tmpdir(), 'sluice-chart-'))
  t.after(() => rmSync(copy, { recursive: true }))
  cpSync(chart, copy, { recursive: true })
  const text = readFileSync(join(copy, 'templates/NOTES.txt'), 'utf8')
  writeFileSync(
    join(copy, 'templates/notes.yaml'),
    `{{ define "notes" }}${text}{{ end }}\napiVersion: v1\nkind: ConfigMap\nmetadata: { name: notes }\ndata: { notes: {{ include "notes" . | quote }} }\n`,
  )
  const notes = (...more: string[]): string => {
    const set = ['ingress.enabled=true', 'ingress.host=llm.example.com', ...more].flatMap(each => ['--set', each])
    const { status, said } = helm(
      'template',
      'sluice',
      copy,
      '--kube-version',
      '1.32.0',
      '--show-only',
      'templates/notes.yaml',
      ...set,
    )
    assert.equal(status, 0, said)
    return parse(said).data.notes
  }
  assert.match(notes(), /config\.server\.trust_proxy is empty: .*address of the ingress controller/)
  const trusting = notes('config.server.trust_proxy={10.0.0.0/8}')
  assert.match(trusting, /Clients from outside: /)
  assert.doesNotMatch(trusting, /trust_proxy is empty/)
})

test('an Ingress without a host is refused with the cure', { skip }, () => {
  const { status, said } = helm(
    'template',
    'sluice',
    chart,
    '--kube-version',
    '1.32.0',
    '--set',
    'ingress.enabled=true',
  )
  assert.notEqual(status, 0)
  assert.match(said, /ingress\.host is missing: name the host/)
})
