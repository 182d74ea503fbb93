/**
 * The files of deploy/: they parse, name what exists, and the proxies run in front of a gateway where they are
 * installed.
 */
import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { type AddressInfo, connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { Ajv2020 } from 'ajv/dist/2020.js'
import { parse, parseAllDocuments } from 'yaml'
import { load } from '../../cli/load.ts'
import { VERBS } from '../../cli/main.ts'
import { formatError } from '../../config/load.ts'
import { startGateway } from '../e2e/harness.ts'
import { findProgram } from '../ensure-deps.ts'
import { eventually } from '../eventually.ts'
import { freePort } from '../ports.ts'
import { COMPOSE, KUBERNETES, KUSTOMIZATION } from './schemas.ts'

const ROOT = join(import.meta.dirname, '../..')
const read = (path: string) => readFileSync(join(ROOT, path), 'utf8')
const ENV = { SLUICE_STORE: 'redis://127.0.0.1:6379', OPENAI_API_KEY: 'k', SLUICE_ADMIN_TOKEN: 'a-token' }

function folder(t: TestContext): string {
  const dir = mkdtempSync(join(tmpdir(), 'sluice-deploy-'))
  t.after(() => rmSync(dir, { recursive: true, force: true }))
  return dir
}

async function loads(t: TestContext, text: string): Promise<void> {
  const file = join(folder(t), 'gateway.yaml')
  writeFileSync(file, text)
  assert.deepEqual((await load(file, { env: ENV })).errors?.map(formatError) ?? [], [])
}

/** Streams through `url`; the reply comes whole. @returns the pieces in which it came */
async function streamed(url: string): Promise<string[]> {
  const response = await fetch(`${url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: 'Bearer sk-test-0001-secret' },
    body: JSON.stringify({
      model: 'eb1-preview',
      stream: true,
      messages: [{ role: 'user', content: '[[sim: tokens 8; pace 40ms]]' }],
    }),
  })
  assert.equal(response.status, 200)
  const pieces: string[] = []
  const decoder = new TextDecoder()
  for await (const piece of response.body!) pieces.push(decoder.decode(piece, { stream: true }))
  assert.match(pieces.join(''), /data: \[DONE\]\n\n$/)
  return pieces
}

/**
 * Asks for a WebSocket. @returns the status of the answer: what a gateway says itself, and not what a proxy makes of it
 */
async function handshake(url: string): Promise<number> {
  const { hostname, port } = new URL(url)
  const socket = connect(Number(port), hostname)
  socket.write(
    `GET /v1/responses HTTP/1.1\r\nhost: ${hostname}\r\nauthorization: Bearer sk-test-0001-secret\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n`,
  )
  const [data] = await once(socket, 'data')
  socket.destroy()
  return Number(String(data).split(' ')[1])
}

async function behind(t: TestContext, command: string, args: string[], env: Record<string, string>, url: string) {
  const child = spawn(command, args, { env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'pipe'] })
  const said: string[] = []
  child.stdout.on('data', data => said.push(String(data)))
  child.stderr.on('data', data => said.push(String(data)))
  const over = once(child, 'exit')
  t.after(async () => {
    child.kill('SIGTERM')
    await over
  })
  const up = () => fetch(`${url}/v1/models`, { headers: { authorization: 'Bearer sk-test-0001-secret' } })
  await eventually(
    () => {
      assert.equal(child.exitCode, null, said.join(''))
      return up().then(
        response => response.status === 200,
        () => false,
      )
    },
    () => said.join(''),
  )
  const { length } = await streamed(url)
  assert.ok(length >= 4, `${length} pieces: the proxy must not gather the stream`)
}

const valid = (schema: object, value: unknown) => {
  const ajv = new Ajv2020({ allErrors: true, strict: false })
  assert.equal(ajv.validate(schema, value), true, ajv.errorsText())
}

const haproxy = findProgram(['haproxy'])
test('haproxy.cfg serves in front of two gateways; one is taken out and stopped under load, and no request is lost', {
  skip: haproxy ? false : 'haproxy is not installed: apt-get install -y haproxy',
}, async t => {
  const gateways = [await startGateway(), await startGateway()]
  t.after(() => Promise.all(gateways.map(gateway => gateway.close())))
  const port = await freePort()
  const file = join(ROOT, 'deploy/haproxy.cfg')
  const [a, b] = gateways.map(gateway => gateway.url.slice('http://'.length)) as [string, string]
  const admin = join(folder(t), 'admin.sock')
  // The second gateway answers that it is not ready, until the test says otherwise.
  let isReady = false
  const readiness = createServer((_, response) => response.writeHead(isReady ? 200 : 503).end())
  readiness.listen(0, '127.0.0.1')
  await once(readiness, 'listening')
  t.after(() => readiness.close())
  const env = {
    HAPROXY_BIND: `127.0.0.1:${port}`,
    HAPROXY_ADMIN: admin,
    GATEWAY_A: a,
    GATEWAY_B: b,
    READY_A: new URL(gateways[0]!.gateway.adminAddress!).port,
    READY_B: String((readiness.address() as AddressInfo).port),
  }
  const checked = spawnSync(haproxy!, ['-c', '-f', file], { env: { ...process.env, ...env }, encoding: 'utf8' })
  assert.equal(checked.status, 0, checked.stderr)
  assert.doesNotMatch(checked.stderr, /WARNING/)
  const url = `http://127.0.0.1:${port}`
  await behind(t, haproxy!, ['-db', '-f', file], env, url)
  assert.equal(await handshake(url), await handshake(gateways[0]!.url))

  // A gateway that takes connections and is not ready, as one whose store is out, gets no request.
  const states = async (): Promise<string> => {
    const socket = connect(admin)
    socket.end('show stat\n')
    let text = ''
    for await (const piece of socket) text += piece
    const servers = text.split('\n').filter(line => /^gateways,[ab],/.test(line))
    return servers.map(line => line.split(',')[17]!.split(' ')[0]).join()
  }
  await eventually(async () => (await states()) === 'UP,DOWN')
  const early = gateways[1]!.simulator.requests.length
  for (let i = 0; i < 4; i++) await streamed(url)
  assert.equal(gateways[1]!.simulator.requests.length, early)
  isReady = true
  await eventually(async () => (await states()) === 'UP,UP')

  // As docs/deploy.md has it: taken out, then stopped, under load, streams among it.
  let stopped = false
  let served = 0
  const lanes = Array.from({ length: 8 }, async () => {
    for (; !stopped; served++) await streamed(url)
  })
  await eventually(() => gateways.every(({ gateway }) => gateway.ingress.running.size > 0))
  const said = /'(set server gateways\/a state drain)'/.exec(read('docs/deploy.md'))![1]!
  const socket = connect(admin)
  socket.end(`${said}\n`)
  socket.resume()
  await once(socket, 'close')
  await eventually(() => gateways[0]!.gateway.ingress.running.size === 0)
  const before = served
  await gateways[0]!.gateway.drain()
  await eventually(() => served > before + 20)
  stopped = true
  await Promise.all(lanes)
})

const nginx = findProgram(['nginx'])
test('nginx.conf serves in front of two gateways', {
  skip: nginx ? false : 'nginx is not installed: apt-get install -y nginx-light',
}, async t => {
  const gateways = [await startGateway(), await startGateway()]
  t.after(() => Promise.all(gateways.map(gateway => gateway.close())))
  const port = await freePort()
  const dir = folder(t)
  const site = read('deploy/nginx.conf')
    .replace('127.0.0.1:8081', gateways[0]!.url.slice('http://'.length))
    .replace('127.0.0.1:8082', gateways[1]!.url.slice('http://'.length))
    .replace('127.0.0.1:8080', `127.0.0.1:${port}`)
  const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map(
    name => `${name}_temp_path ${dir}/${name};`,
  )
  writeFileSync(
    join(dir, 'nginx.conf'),
    `daemon off; pid ${dir}/pid; error_log stderr; events {} http { access_log off; ${temporary.join(' ')}\n${site}\n}`,
  )
  const args = ['-p', dir, '-e', 'stderr', '-c', join(dir, 'nginx.conf')]
  const checked = spawnSync(nginx!, ['-t', ...args], { encoding: 'utf8' })
  assert.equal(checked.status, 0, checked.stderr)
  assert.doesNotMatch(checked.stderr, /\[warn\]/)
  await behind(t, nginx!, args, {}, `http://127.0.0.1:${port}`)
  assert.equal(await handshake(`http://127.0.0.1:${port}`), await handshake(gateways[0]!.url))
})

test('the compose file: services it depends on and volumes it mounts exist; its configuration loads', async t => {
  const compose = parse(read('deploy/docker-compose.yml'), { merge: true })
  valid(COMPOSE, compose)
  const { services, volumes } = compose
  assert.deepEqual(Object.keys(services).sort(), ['gateway-a', 'gateway-b', 'haproxy', 'redis'])
  for (const [name, service] of Object.entries<any>(services)) {
    assert.ok(service.image, `${name} has an image`)
    for (const other of Array.isArray(service.depends_on) ? service.depends_on : Object.keys(service.depends_on ?? {}))
      assert.ok(services[other], `${name} depends on ${other}`)
    for (const volume of service.volumes ?? []) {
      const [from] = volume.split(':')
      if (from.startsWith('./')) assert.ok(existsSync(join(ROOT, 'deploy', from)), from)
      else assert.ok(from in volumes, from)
    }
  }
  for (const name of ['gateway-a', 'gateway-b']) assert.ok(VERBS[services[name].command[0]])
  assert.notDeepEqual(services['gateway-a'].volumes, services['gateway-b'].volumes, 'a journal has one owner')
  const config = parse(read('deploy/gateway.yaml'))
  const { drain, drain_delay, admin } = config.server
  const seconds = (text: string) => Number.parseInt(text, 10)
  assert.ok(seconds(services['gateway-a'].stop_grace_period) > seconds(drain) + seconds(drain_delay))
  // HAProxy asks each gateway on its admin port, which another container reaches.
  const { GATEWAY_A, GATEWAY_B, READY_A, READY_B } = services.haproxy.environment
  assert.deepEqual([GATEWAY_A, GATEWAY_B], ['gateway-a:8080', 'gateway-b:8080'])
  for (const port of [READY_A, READY_B]) assert.equal(admin.listen, `0.0.0.0:${port}`)
  await loads(t, read('deploy/gateway.yaml'))
})

test('deploy/prometheus: its rules are there; it asks as docs/deploy.md has the gateway listen', () => {
  const { rule_files, scrape_configs } = parse(read('deploy/prometheus/prometheus.yml'))
  for (const file of rule_files) assert.ok(existsSync(join(ROOT, 'deploy/prometheus', file)), file)
  const [{ authorization, static_configs }] = scrape_configs
  assert.ok(authorization.credentials_file)
  const { services } = parse(read('deploy/docker-compose.yml'), { merge: true })
  for (const target of static_configs[0].targets) assert.ok(services[target.split(':')[0]], target)
})

const RULE_FILES = ['alerts.yml', 'slo.yml']
const rules: any[] = RULE_FILES.flatMap(file =>
  parse(read(`deploy/prometheus/${file}`)).groups.flatMap((group: any) => group.rules),
)
const alerts = rules.filter(({ alert }) => alert !== undefined)

const promtool = findProgram(['promtool'])
test('the rules of Prometheus: promtool takes them, and every alert comes where it has to, and not elsewhere', {
  skip: promtool ? false : 'promtool is not installed: apt-get install -y prometheus',
}, () => {
  for (const [command, folder] of [
    ['check', 'deploy/prometheus'],
    ['test', 'test/deploy/rules'],
  ] as const) {
    const files = RULE_FILES.map(file => join(ROOT, folder, file))
    const checked = spawnSync(promtool!, [command, 'rules', ...files], { encoding: 'utf8' })
    assert.equal(checked.status, 0, checked.stdout + checked.stderr)
  }
})

test('every alert is made to come by a test of promtool', () => {
  const expected = RULE_FILES.flatMap(file => parse(read(`test/deploy/rules/${file}`)).tests)
    .flatMap(({ promql_expr_test }) => promql_expr_test)
    .flatMap(({ exp_samples }) =>
      exp_samples.map(({ labels }: { labels: string }) => /alertname="(\w+)"/.exec(labels)?.[1]),
    )
  assert.deepEqual(
    alerts.map(({ alert }) => alert).filter(name => !expected.includes(name)),
    [],
  )
})

test('every alert has a runbook with three commands that name what there is', () => {
  const page = read('docs/runbooks.md')
  const sections = new Map(
    page
      .split(/^## /m)
      .slice(1)
      .map(section => [section.slice(0, section.indexOf('\n')), section]),
  )
  const metrics = [...read('docs/metrics.md').matchAll(/^\| `(sluice_\w+)`/gm)].map(([, name]) => name!)
  for (const { alert, annotations } of alerts) {
    assert.equal(annotations.runbook_url, `docs/runbooks.md#${alert.toLowerCase()}`)
    const section = sections.get(alert)
    assert.ok(section, `docs/runbooks.md has no section ${alert}`)
    assert.ok(
      page.slice(0, page.indexOf('\n## ')).includes(`[${alert}](#${alert.toLowerCase()})`),
      `${alert} is in the list`,
    )
    const commands = /^```text\n([\s\S]*?)\n```$/m.exec(section)![1]!.split('\n')
    assert.equal(commands.length, 3, alert)
    for (const command of commands) {
      assert.match(command, /^(ask \/|logs \||npx sluice |redis-cli |systemctl |df |top |git )/, `${alert}: ${command}`)
      for (const [word] of command.matchAll(/\bsluice_\w+/g))
        assert.ok(
          metrics.some(
            name =>
              name.startsWith(word) || word === `${name}_sum` || word === `${name}_count` || word === `${name}_bucket`,
          ),
          `${alert}: there is no metric ${word}`,
        )
    }
  }
  assert.deepEqual(
    [...sections.keys()].filter(name => !alerts.some(({ alert }) => alert === name)),
    [],
    'a runbook of no alert',
  )
})

test('the Kubernetes manifests: names meet, probes run, the configuration loads', async t => {
  const documents = parseAllDocuments(read('deploy/kubernetes/sluice.yaml')).map(document => {
    assert.deepEqual((document as any).errors, [])
    return (document as any).toJS()
  })
  const of = (kind: string) => documents.find(document => document.kind === kind)
  for (const document of documents) valid(KUBERNETES[document.kind]!, document)
  const { spec } = of('Deployment')
  const pod = spec.template.spec
  const container = pod.containers[0]
  for (const selector of [
    spec.selector.matchLabels,
    of('Service').spec.selector,
    of('PodDisruptionBudget').spec.selector.matchLabels,
  ])
    assert.deepEqual(selector, spec.template.metadata.labels)
  assert.equal(pod.volumes[0].configMap.name, of('ConfigMap').metadata.name)
  assert.equal(container.envFrom[0].secretRef.name, of('Secret').metadata.name)
  assert.deepEqual(
    container.volumeMounts.map((mount: any) => mount.name),
    pod.volumes.map((volume: any) => volume.name),
  )
  assert.equal(of('Service').spec.ports[0].targetPort, container.ports[0].name)
  assert.ok(VERBS[container.args[0]])
  const text: string = of('ConfigMap').data['gateway.yaml']
  const { server } = parse(text)
  const seconds = (name: string) => Number.parseInt(server[name], 10)
  assert.ok(pod.terminationGracePeriodSeconds > seconds('drain') + seconds('drain_delay'))
  // The pod leaves the endpoints after these looks at the latest.
  const { periodSeconds, failureThreshold } = container.readinessProbe
  assert.ok(seconds('drain_delay') >= periodSeconds * failureThreshold)
  assert.equal(Number(server.admin.listen.split(':')[1]), container.ports[1].containerPort)
  assert.equal(Number(server.listen.split(':')[1]), container.ports[0].containerPort)
  await loads(t, text)

  // The probes' own commands, against a gateway: well while it serves, not well when it is gone.
  const gateway = await startGateway()
  t.after(() => gateway.close())
  const admin = gateway.gateway.adminAddress!
  for (const probe of [container.startupProbe, container.readinessProbe, container.livenessProbe]) {
    const [, flag, script] = probe.exec.command
    const run = (address: string) => {
      const child = spawn(process.execPath, [flag, script.replace('http://127.0.0.1:9090', address)])
      return once(child, 'exit').then(([code]) => code)
    }
    assert.equal(await run(admin), 0)
    assert.equal(await run('http://127.0.0.1:1'), 1)
  }
})

test('kustomize: its files are there; the autoscaler scales the deployment by a metric that the gateway has', async t => {
  const kustomization = parse(read('deploy/kubernetes/kustomization.yaml'))
  valid(KUSTOMIZATION, kustomization)
  const documents = kustomization.resources.flatMap((file: string) =>
    parseAllDocuments(read(`deploy/kubernetes/${file}`)).map(document => (document as any).toJS()),
  )
  for (const document of documents) valid(KUBERNETES[document.kind]!, document)
  const of = (kind: string) => documents.find((document: any) => document.kind === kind)
  const [{ target, patch }] = kustomization.patches
  assert.equal(of(target.kind).metadata.name, target.name)
  assert.deepEqual(parse(patch), [{ op: 'remove', path: '/spec/replicas' }])
  assert.ok('replicas' in of('Deployment').spec)
  const { scaleTargetRef, metrics, minReplicas } = of('HorizontalPodAutoscaler').spec
  assert.deepEqual([scaleTargetRef.kind, scaleTargetRef.name], ['Deployment', of('Deployment').metadata.name])
  assert.ok(minReplicas > of('PodDisruptionBudget').spec.minAvailable, 'a node can be emptied')
  const gateway = await startGateway()
  t.after(() => gateway.close())
  const scraped = await (await fetch(`${gateway.gateway.adminAddress}/metrics`)).text()
  assert.match(scraped, new RegExp(`^# TYPE ${metrics[0].pods.metric.name} gauge$`, 'm'))
  const kubectl = findProgram(['kubectl'])
  if (kubectl === undefined) return t.diagnostic('kubectl is not installed')
  const built = spawnSync(kubectl, ['kustomize', join(ROOT, 'deploy/kubernetes')], { encoding: 'utf8' })
  assert.equal(built.status, 0, built.stderr)
  assert.deepEqual(
    parseAllDocuments(built.stdout)
      .map(document => (document as any).toJS().kind)
      .sort(),
    documents.map((document: any) => document.kind).sort(),
  )
  assert.doesNotMatch(built.stdout, /^ {2}replicas:/m)
})

test('the systemd unit: its commands exist, it stops after the drain', async t => {
  const unit = read('deploy/sluice.service')
  const value = (key: string) => new RegExp(`^${key}=(.*)$`, 'm').exec(unit)?.[1]
  for (const key of ['ExecStartPre', 'ExecStart']) {
    const [node, script, verb, flag] = value(key)!.split(' ')
    assert.equal(node, '/usr/bin/node')
    assert.ok(existsSync(join(ROOT, script!.replace('/opt/sluice/', ''))))
    assert.ok(VERBS[verb!])
    assert.equal(flag, '--config')
  }
  assert.ok(Number.parseInt(value('TimeoutStopSec')!, 10) > 30)
  // What the unit names but systemd does not know is only a warning to it.
  assert.doesNotMatch(unit, /^[^#[=\s]+\s*$/m)
  if (spawnSync('systemd-analyze', ['--version']).error) return t.diagnostic('no systemd-analyze here')
  const verified = spawnSync('systemd-analyze', ['verify', join(ROOT, 'deploy/sluice.service')], { encoding: 'utf8' })
  const faults = verified.stderr.split('\n').filter(line => /sluice\.service:\d+:/.test(line))
  assert.deepEqual(faults, [])
  // From 0, safe, to 10, exposed.
  const rated = spawnSync('systemd-analyze', ['security', '--offline=true', join(ROOT, 'deploy/sluice.service')], {
    encoding: 'utf8',
  })
  const exposure = /Overall exposure level[^:]*: ([\d.]+)/.exec(rated.stdout)?.[1]
  if (exposure !== undefined) assert.ok(Number(exposure) < 3, rated.stdout)
})

test('the schemas find slips', () => {
  const ajv = new Ajv2020({ strict: false })
  const compose = parse(read('deploy/docker-compose.yml'), { merge: true })
  compose.services.redis.comand = ['x']
  assert.equal(ajv.validate(COMPOSE, compose), false)
  const deployment = parseAllDocuments(read('deploy/kubernetes/sluice.yaml'))
    .map(document => (document as any).toJS())
    .find(document => document.kind === 'Deployment')
  const slips: ((container: any, pod: any) => void)[] = [
    container => (container.readynessProbe = container.readinessProbe),
    container => (container.securityContext.readOnlyRootFilesystem = 'true'),
    (_, pod) => (pod.terminationGracePeriodSeconds = '45s'),
    (_, pod) => (pod.volumes[0] = { name: 'config', configmap: { name: 'sluice' } }),
  ]
  for (const slip of slips) {
    const copy = structuredClone(deployment)
    slip(copy.spec.template.spec.containers[0], copy.spec.template.spec)
    assert.equal(ajv.validate(KUBERNETES['Deployment']!, copy), false)
  }
})
