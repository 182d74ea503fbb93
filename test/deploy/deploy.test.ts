/**
 * The files of deploy/: they parse, name what exists, and the proxies run in front of a gateway where they are
 * installed.
 */
import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, globSync, statSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { type AddressInfo, connect } from 'node:net'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { Ajv2020 } from 'ajv/dist/2020.js'
import { parse, parseAllDocuments, stringify } from 'yaml'
import { VERBS } from '../../cli/main.ts'
import { DEMO_KEY_DIGEST } from '../../config/accounts.ts'
import { parseConfig } from '../../console/config.ts'
import { sha256, startGateway } from '../e2e/harness.ts'
import { findProgram } from '../ensure-deps.ts'
import { eventually } from '../eventually.ts'
import { freePort } from '../ports.ts'
import { folder, loads, ROOT, read, valid } from './kit.ts'
import { COMPOSE, KUBERNETES, KUSTOMIZATION } from './schemas.ts'

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
  assert.deepEqual(Object.keys(services).sort(), ['console', 'gateway-a', 'gateway-b', 'haproxy', 'redis'])
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
  // What the gateway does not start without, Compose asks for first.
  for (const [, name] of read('deploy/gateway.yaml').matchAll(/\$\{(\w+)\}/g))
    assert.match(services['gateway-a'].environment[name!], /:\?/, name)
  // ANTHROPIC_API_KEY and GEMINI_API_KEY stood in .env and reached no gateway.
  const [, taken] = /^for name in (.+); do$/m.exec(read('deploy/secrets.sh'))!
  for (const gateway of ['gateway-a', 'gateway-b'])
    for (const name of taken!.split(' '))
      assert.ok(services[gateway].environment[name]?.startsWith(`\${${name}:-`), name)
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

// They asked `redis-cli -u "$SLUICE_STORE"`, which nobody sets where gateway.yaml has the URL itself.
test('the runbooks find the URL of the store, in gateway.yaml or in the environment', t => {
  const helper = /^redis\(\) .*$/m.exec(read('docs/runbooks.md'))![0]
  const dir = folder(t)
  const asked = (yaml: string, env = {}) => {
    writeFileSync(join(dir, 'gateway.yaml'), yaml)
    const script = `redis-cli() { echo "$@"; }\n${helper}\nredis info memory`
    const { stdout, stderr } = spawnSync('bash', ['--norc', '-c', script], {
      ...{ cwd: dir, env: { PATH: process.env['PATH'], ...env }, encoding: 'utf8' },
    })
    assert.equal(stderr, '')
    return stdout.trim()
  }
  const url = 'rediss://user:word@cache:6380/2'
  const wanted = `-u ${url} info memory`
  for (const store of [
    `# Limits. redis://HOST for any number.\nstore: "${url}" # not redis://other\n`,
    `store: ${url}\n`,
    `store: { url: "${url}", max_memory: 1GiB }\n`,
    `store:\n  url: ${url}\n  max_records: 5\n`,
    `store: "\${SLUICE_STORE:-${url}}"\n`,
  ])
    assert.equal(asked(`version: 2\n${store}`), wanted, store)
  assert.equal(asked(`store: "${variable('SLUICE_STORE')}"\n`, { SLUICE_STORE: url }), wanted)
  assert.equal(asked('store: redis://other\n', { SLUICE_STORE: url }), wanted)
})

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
      assert.match(command, /^(ask \/|logs \||npx sluice |redis |systemctl |df |top |git )/, `${alert}: ${command}`)
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
  const of = (kind: string, name = 'sluice') =>
    documents.find(document => document.kind === kind && document.metadata.name === name)
  for (const document of documents) valid(KUBERNETES[document.kind]!, document)
  const { spec } = of('Deployment')
  const pod = spec.template.spec
  const container = pod.containers[0]
  for (const selector of [
    spec.selector.matchLabels,
    of('Service').spec.selector,
    of('Service', 'sluice-admin').spec.selector,
    of('PodDisruptionBudget').spec.selector.matchLabels,
  ])
    assert.deepEqual(selector, spec.template.metadata.labels)
  assert.equal(pod.volumes[0].configMap.name, of('ConfigMap').metadata.name)
  // The Secret is made by the command above the manifests, so that none with known values can be applied.
  assert.ok(
    read('deploy/kubernetes/sluice.yaml').includes(`create secret generic ${container.envFrom[0].secretRef.name} `),
  )
  assert.deepEqual(
    container.volumeMounts.map((mount: any) => mount.name),
    pod.volumes.map((volume: any) => volume.name),
  )
  assert.equal(of('Service').spec.ports[0].targetPort, container.ports[0].name)
  assert.equal(of('Service', 'sluice-admin').spec.ports[0].targetPort, container.ports[1].name)
  assert.ok(VERBS[container.args[0]])
  const text: string = of('ConfigMap').data['gateway.yaml']
  const { server, pipelines, routes } = parse(text)
  const common = parse(read('deploy/gateway.yaml'))
  assert.deepEqual([pipelines, routes], [common.pipelines, common.routes], 'as in deploy/gateway.yaml')
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

test('the console’s files: names meet, and its configurations load', () => {
  const documents = parseAllDocuments(read('deploy/kubernetes/console.yaml')).map(one => (one as any).toJS())
  for (const document of documents) valid(KUBERNETES[document.kind]!, document)
  const of = (kind: string, name = 'console') =>
    documents.find(document => document.kind === kind && document.metadata.name === name)
  const { spec } = of('Deployment')
  const [container] = spec.template.spec.containers
  assert.deepEqual(of('Service').spec.selector, spec.template.metadata.labels)
  assert.deepEqual(spec.selector.matchLabels, spec.template.metadata.labels)
  const sluice = parseAllDocuments(read('deploy/kubernetes/sluice.yaml')).map(one => (one as any).toJS())
  const gateway = sluice.find(({ kind }) => kind === 'Deployment').spec.template
  const admin = sluice.find(({ kind, metadata }) => kind === 'Service' && metadata.name === 'sluice-admin')
  assert.deepEqual(admin.spec.selector, gateway.metadata.labels)
  assert.equal(of('Service', 'sluice-admin'), undefined, 'it is there already, and a second one would not be taken')
  const [, { from }] = parse(read('deploy/kubernetes/network.yaml')).spec.ingress
  assert.ok(from.some(({ podSelector }: any) => podSelector?.matchLabels.app === spec.selector.matchLabels.app))
  assert.ok(gateway.spec.containers[0].ports.some(({ name }: any) => name === 'admin'))
  const secrets = of('Secret').stringData
  const config = parseConfig(of('ConfigMap').data['console.yaml'], 'console.yaml', secrets)
  assert.equal(config.port, container.ports[0].containerPort)
  assert.equal(config.gateway.admin, `http://${admin.metadata.name}:${admin.spec.ports[0].port}`)
  const unit = read('deploy/console.service')
  const [, file] = /^ExecStart=\S+ \S+ --run \/opt\/sluice\/(\S+) --config/m.exec(unit)!
  assert.ok(existsSync(join(ROOT, file!)))
})

/**
 * The service passed no SLUICE_API_URL and no SMTP_FROM, so that the playground asked the container itself and mail came
 * from example.com, and its comment did not name SMTP_URL, without which it does not start.
 */
test('Compose: the console starts with what the comment of its service names, and not with one of it missing', () => {
  const text = read('deploy/docker-compose.yml')
  const { services } = parse(text, { merge: true })
  const [, comment] = /((?: {2}#.*\n)+) {2}console:\n/.exec(text)!
  const named = comment!.match(/\b[A-Z]+(?:_[A-Z]+)+\b/g)!
  const values: Record<string, string> = {
    SLUICE_CONSOLE_URL: 'https://console.test',
    SLUICE_API_URL: 'https://api.test/v1',
    SLUICE_CONSOLE_TOKEN: 'adm-customers',
    SLUICE_STAFF_TOKEN: 'adm-staff',
    SMTP_URL: 'smtp://mail.test:587',
    SMTP_FROM: 'Test <console@console.test>',
  }
  /** The environment of the container, as Compose makes it of .env. */
  const passed = (env: Record<string, string>) =>
    Object.fromEntries(
      Object.entries<string>(services.console.environment).map(([name, value]) => [
        name,
        value.replace(/\$\{(\w+):-([^}]*)\}/g, (_, variable: string, other: string) => env[variable] || other),
      ]),
    )
  const without = (name: string) => Object.fromEntries(named.filter(each => each !== name).map(n => [n, values[n]!]))
  const composed = (env: Record<string, string>) =>
    parseConfig(read('deploy/console.yaml'), 'console.yaml', passed(env))
  const { url, gateway, mail } = composed(without(''))
  assert.deepEqual([url, gateway.api, gateway.token, gateway.staff_token, mail.smtp, mail.from], Object.values(values))
  assert.ok(services[new URL(gateway.admin).hostname])
  for (const name of named)
    assert.throws(() => composed(without(name)), new RegExp(`the variable ${name} is not set; set it`))
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
  const variant = parse(read('deploy/kubernetes-statefulset/kustomization.yaml'))
  valid(KUSTOMIZATION, variant)
  for (const { target, patch } of variant.patches) {
    assert.equal(of(target.kind).metadata.name, target.name)
    // The volume that becomes one of each pod's own.
    for (const { op, path } of parse(patch))
      if (op === 'remove' && /volumes/.test(path))
        assert.equal(of('Deployment').spec.template.spec.volumes[path.split('/').at(-1)].name, 'journal')
  }
  const kubectl = findProgram(['kubectl'])
  if (kubectl === undefined) return t.diagnostic('kubectl is not installed')
  const build = (folder: string): any[] => {
    const built = spawnSync(kubectl, ['kustomize', join(ROOT, folder)], { encoding: 'utf8' })
    assert.equal(built.status, 0, built.stderr)
    const objects = parseAllDocuments(built.stdout).map(document => (document as any).toJS())
    for (const each of objects) valid(KUBERNETES[each.kind]!, each)
    return objects
  }
  const kinds = (objects: any[]) => objects.map(({ kind }) => kind).sort()
  const built = build('deploy/kubernetes')
  assert.deepEqual(kinds(built), kinds(documents))
  const deployment = built.find(({ kind }) => kind === 'Deployment')
  assert.equal(deployment.spec.replicas, undefined)
  // The same pods, but for the volume of the journal.
  const set = build('deploy/kubernetes-statefulset').find(({ kind }) => kind === 'StatefulSet')
  assert.deepEqual(set.spec.template.spec.containers, deployment.spec.template.spec.containers)
  assert.deepEqual(
    [...set.spec.template.spec.volumes, ...set.spec.volumeClaimTemplates.map(({ metadata }: any) => metadata)].map(
      ({ name }) => name,
    ),
    deployment.spec.template.spec.volumes.map(({ name }: any) => name),
  )
})

test('Ingress and NetworkPolicy: they reach what the manifests have, and never the admin listener from outside', () => {
  const of = (file: string) => parse(read(`deploy/kubernetes/${file}.yaml`))
  const ingress = of('ingress')
  valid(KUBERNETES['Ingress']!, ingress)
  const services = parseAllDocuments(read('deploy/kubernetes/sluice.yaml'))
    .map(document => (document as any).toJS())
    .filter(({ kind }) => kind === 'Service')
  for (const { backend } of ingress.spec.rules[0].http.paths) {
    const service = services.find(({ metadata }) => metadata.name === backend.service.name)
    assert.equal(service.spec.ports[0].name, backend.service.port.name)
    assert.equal(service.spec.ports[0].targetPort, 'http')
  }
  const policy = of('network')
  valid(KUBERNETES['NetworkPolicy']!, policy)
  assert.deepEqual(policy.spec.podSelector.matchLabels, services[0].spec.selector)
  const rules = policy.spec.ingress.map(({ ports, from }: any) => [ports[0].port, from === undefined])
  assert.deepEqual(rules, [
    ['http', true],
    ['admin', false],
  ])
})

/** A variable in the notation of gateway.yaml. */
const variable = (name: string) => `\${${name}}`

/** Every file that an operator is handed with a configuration in it, with the configurations. */
function shipped(): [file: string, config: any][] {
  const files = globSync(['*.yaml', 'deploy/**/*.{yaml,yml}', 'docs/examples/**/*.{yaml,yml}'], { cwd: ROOT })
  return files
    .filter(file => !file.includes('/templates/'))
    .flatMap(file =>
      parseAllDocuments(read(file), { merge: true }).map(document => [file, (document as any).toJS()] as const),
    )
    .flatMap(([file, content]): [string, any][] => {
      // The console has a file of its own, in which nothing of this stands.
      const text = content?.kind === 'ConfigMap' && content.data['gateway.yaml']
      if (text) return [[file, parse(text)]]
      const config = content?.pipelines ? content : content?.config
      return config ? [[file, config]] : []
    })
}

test('no file that is shipped serves sk-demo beyond loopback; those of deployments take secret and key from outside', () => {
  const configs = shipped()
  const names = configs.map(([file]) => file)
  for (const file of [
    'gateway.yaml',
    'deploy/gateway.yaml',
    'deploy/kubernetes/sluice.yaml',
    'deploy/helm/sluice/values.yaml',
  ])
    assert.ok(names.includes(file), file)
  for (const [file, { server, secret, organizations = {} }] of configs) {
    const digests: string[] = Object.values<any>(organizations).flatMap(({ keys = [] }) =>
      keys.map((key: any) => key.sha256),
    )
    const beyond = !/(^|:-)127\.0\.0\.1:/.test(server?.listen ?? '127.0.0.1:')
    if (beyond) assert.ok(!digests.includes(DEMO_KEY_DIGEST), `${file} serves sk-demo on ${server.listen}`)
    if (!file.startsWith('deploy/')) continue
    assert.equal(secret, variable('SLUICE_SECRET'), file)
    for (const digest of digests) assert.equal(digest, variable('SLUICE_KEY_SHA256'), file)
  }
  // A digest of sk-demo anywhere else in what is deployed would be one that this test does not understand.
  const files = globSync('deploy/**/*', { cwd: ROOT }).filter(file => statSync(join(ROOT, file)).isFile())
  for (const file of files) assert.ok(!read(file).includes(DEMO_KEY_DIGEST), file)
})

test('secrets.sh makes what the files ask for: other secrets each time, and a key that fits its digest', () => {
  const run = () => {
    const { stdout, stderr, status } = spawnSync('sh', [join(ROOT, 'deploy/secrets.sh')], {
      env: { PATH: process.env['PATH'], OPENAI_API_KEY: 'sk of=theirs' },
      encoding: 'utf8',
    })
    assert.equal(status, 0, stderr)
    const values = Object.fromEntries(
      stdout
        .trim()
        .split('\n')
        .map(line => /^(\w+)=(.*)$/.exec(line)!.slice(1)),
    )
    return { values, key: /: (sk-[0-9a-f]{64})\n$/.exec(stderr)![1]! }
  }
  const [first, second] = [run(), run()]
  assert.equal(sha256(first.key), first.values['SLUICE_KEY_SHA256'])
  assert.match(first.values['SLUICE_SECRET'], /^[0-9a-f]{64}$/)
  assert.match(first.values['SLUICE_ADMIN_TOKEN'], /^[0-9a-f]{48}$/)
  assert.equal(first.values['OPENAI_API_KEY'], 'sk of=theirs')
  for (const name of ['SLUICE_SECRET', 'SLUICE_ADMIN_TOKEN', 'SLUICE_KEY_SHA256'])
    assert.notEqual(first.values[name], second.values[name])
  for (const [, config] of shipped().filter(([file]) => file.startsWith('deploy/')))
    for (const [, name] of JSON.stringify(config).matchAll(/\$\{(\w+)\}/g)) assert.ok(name! in first.values, name)
})

test('the chart: its version is the package’s, and its configuration serves what the image’s does', async t => {
  const { version, appVersion } = parse(read('deploy/helm/sluice/Chart.yaml'))
  const own = JSON.parse(read('package.json')).version
  assert.deepEqual([version, appVersion], [own, own])
  const { config } = parse(read('deploy/helm/sluice/values.yaml'))
  const common = parse(read('deploy/gateway.yaml'))
  assert.deepEqual([config.pipelines, config.routes], [common.pipelines, common.routes])
  await loads(t, stringify(config))
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
  const { drain, drain_delay } = parse(read('deploy/gateway.yaml')).server
  const longest = Number.parseInt(drain, 10) + Number.parseInt(drain_delay, 10)
  assert.ok(Number.parseInt(value('TimeoutStopSec')!, 10) > longest)
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
