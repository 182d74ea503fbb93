/**
 * Gateways that restart one after the other behind a proxy, under load, as docs/deploy.md has it: no request may fail.
 * deploy/haproxy.cfg and the commands that the page shows for nginx are what runs here.
 */
import assert from 'node:assert/strict'
import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { request } from 'node:http'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { startSimulator } from '../../providers/simulator/server.ts'
import { defaultYaml, KEY } from '../e2e/harness.ts'
import { findProgram } from '../ensure-deps.ts'
import { eventually } from '../eventually.ts'
import { freePort } from '../ports.ts'

const ROOT = join(import.meta.dirname, '../..')
const MAIN = join(ROOT, 'cli/main.ts')
const read = (path: string) => readFileSync(join(ROOT, path), 'utf8')
const PAGE = read('docs/deploy.md')
const { NODE_TEST_CONTEXT: _, ...ENV } = process.env
/** Requests at least; the load goes on until all gateways were restarted. */
const REQUESTS = 1000
/** Requests at a time. */
const LANES = 8

/** What the page shows in a block of its own that begins with these words. */
function shown(begin: string): string {
  const block = [...PAGE.matchAll(/^```text\n(.*?)^```$/gms)].find(([, text]) => text!.startsWith(begin))
  assert.ok(block, `docs/deploy.md shows ${begin}`)
  return block[1]!
}

/** One gateway, in a process of its own. Restarts keep its ports. */
class Gateway {
  readonly port: number
  readonly admin: number
  readonly #folder: string
  #process: ChildProcess | undefined
  #said = ''

  constructor(folder: string, port: number) {
    this.#folder = folder
    this.port = port
    this.admin = port + 1
  }

  static async make(t: TestContext, simulator: string): Promise<Gateway> {
    const folder = mkdtempSync(join(tmpdir(), 'sluice-rolling-'))
    const gateway = new Gateway(folder, await freePort(2))
    const [delay] = /drain_delay: \w+/.exec(PAGE)!
    const yaml = defaultYaml(simulator, { server: `drain: 30s, ${delay}, trust_proxy: [127.0.0.1]` })
      .replace('listen: 127.0.0.1:0', `listen: 127.0.0.1:${gateway.port}`)
      .replace('admin: 127.0.0.1:0', `admin: 127.0.0.1:${gateway.admin}`)
    writeFileSync(join(folder, 'gateway.yaml'), yaml)
    t.after(async () => {
      gateway.#process?.kill('SIGKILL')
      rmSync(folder, { recursive: true, force: true })
    })
    await gateway.start()
    return gateway
  }

  async start(): Promise<void> {
    const child = spawn(process.execPath, [...process.execArgv, MAIN, 'start', '--config', 'gateway.yaml'], {
      cwd: this.#folder,
      env: ENV,
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    for (const stream of [child.stdout!, child.stderr!])
      stream.setEncoding('utf8').on('data', text => {
        this.#said += text
      })
    this.#process = child
    await eventually(
      () => this.ready(),
      () => this.#said,
    )
  }

  ready(): Promise<boolean> {
    return fetch(`http://127.0.0.1:${this.admin}/readyz`).then(
      response => response.status === 200,
      () => false,
    )
  }

  /** Sends SIGTERM. @returns a promise of the exit code */
  stop(): Promise<number | null> {
    const child = this.#process!
    const ended = once(child, 'exit').then(([code]) => code)
    child.kill('SIGTERM')
    return ended
  }
}

/** One request on a connection of its own, and its whole stream. @returns what is wrong with the answer */
function ask(port: number): Promise<string | undefined> {
  const body = JSON.stringify({
    model: 'eb1-preview',
    stream: true,
    messages: [{ role: 'user', content: '[[sim: tokens 4; pace 20ms]]' }],
  })
  return new Promise(resolve => {
    const call = request(
      {
        host: '127.0.0.1',
        port,
        path: '/v1/chat/completions',
        method: 'POST',
        agent: false,
        headers: {
          authorization: `Bearer ${KEY}`,
          'content-type': 'application/json',
          'content-length': Buffer.byteLength(body),
        },
      },
      response => {
        let text = ''
        response.setEncoding('utf8').on('data', piece => {
          text += piece
        })
        response.on('error', error => resolve(`cut: ${error.message}`))
        response.on('end', () =>
          resolve(
            response.statusCode === 200 && text.endsWith('data: [DONE]\n\n')
              ? undefined
              : `${response.statusCode} ${text}`,
          ),
        )
      },
    )
    call.on('error', error => resolve(error.message))
    call.end(body)
  })
}

/** Sends requests without a pause while `work` runs, and until there were enough. @returns the failures */
async function underLoad(port: number, work: () => Promise<void>): Promise<{ sent: number; failures: string[] }> {
  const failures: string[] = []
  let sent = 0
  let working = true
  const lanes = Array.from({ length: LANES }, async () => {
    while (working || sent < REQUESTS) {
      sent++
      const failure = await ask(port)
      if (failure !== undefined) failures.push(failure)
    }
  })
  try {
    await eventually(() => sent > 5 * LANES)
    await work()
  } finally {
    working = false
    await Promise.all(lanes)
  }
  return { sent, failures }
}

/** A proxy, until the end of the test. */
function run(t: TestContext, command: string, args: string[], env: Record<string, string> = {}): () => string {
  const child = spawn(command, args, { env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'pipe'] })
  let said = ''
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', text => {
      said = (said + text).slice(-5000)
    })
  const over = once(child, 'exit')
  t.after(async () => {
    child.kill('SIGTERM')
    await over
  })
  return () => said
}

async function setUp(t: TestContext): Promise<{ gateways: [Gateway, Gateway]; port: number; folder: string }> {
  const simulator = await startSimulator({ port: 0 })
  t.after(() => simulator.close())
  const folder = mkdtempSync(join(tmpdir(), 'sluice-proxy-'))
  t.after(() => rmSync(folder, { recursive: true, force: true }))
  const gateways: [Gateway, Gateway] = [await Gateway.make(t, simulator.url), await Gateway.make(t, simulator.url)]
  return { gateways, port: await freePort(), folder }
}

function assertNoneLost({ sent, failures }: { sent: number; failures: string[] }, said: () => string): void {
  assert.ok(sent >= REQUESTS)
  assert.deepEqual(failures, [], `${failures.length} of ${sent} failed\n${said()}`)
}

const haproxy = findProgram(['haproxy'])
test('behind HAProxy two gateways restart one after the other, and no request of a thousand is lost', {
  skip: haproxy ? false : 'haproxy is not installed: apt-get install -y haproxy',
}, async t => {
  const { gateways, port, folder } = await setUp(t)
  const file = join(ROOT, 'deploy/haproxy.cfg')
  const admin = join(folder, 'admin.sock')
  const [a, b] = gateways
  const said = run(t, haproxy!, ['-db', '-f', file], {
    HAPROXY_BIND: `127.0.0.1:${port}`,
    HAPROXY_ADMIN: admin,
    GATEWAY_A: `127.0.0.1:${a.port}`,
    GATEWAY_B: `127.0.0.1:${b.port}`,
    READY_A: String(a.admin),
    READY_B: String(b.admin),
  })
  /** The state of each server as HAProxy has it. */
  const states = async (): Promise<string[]> => {
    const socket = connect(admin)
    socket.end('show stat\n')
    let text = ''
    try {
      for await (const piece of socket) text += piece
    } catch {
      return []
    }
    return text
      .split('\n')
      .filter(line => /^gateways,[ab],/.test(line))
      .map(line => line.split(',')[17]!)
  }
  const bothUp = async () => (await states()).join() === 'UP,UP'
  await eventually(bothUp, said)
  await eventually(async () => (await ask(port)) === undefined, said)

  const result = await underLoad(port, async () => {
    for (const [i, gateway] of gateways.entries()) {
      const ended = gateway.stop()
      // HAProxy notices by /readyz alone, while the gateway still serves.
      await eventually(async () => (await states())[i]!.startsWith('DOWN'), said)
      assert.equal(await ask(gateway.port), undefined, 'the gateway still serves')
      assert.equal(await ended, 0)
      await gateway.start()
      await eventually(bothUp, said)
    }
  })
  assertNoneLost(result, said)
})

const nginx = findProgram(['nginx'])
test('behind nginx two gateways restart one after the other, and no request of a thousand is lost', {
  skip: nginx ? false : 'nginx is not installed: apt-get install -y nginx-light',
}, async t => {
  const { gateways, port, folder } = await setUp(t)
  const file = join(folder, 'sluice.conf')
  const site = read('deploy/nginx.conf')
  writeFileSync(
    file,
    site
      .replace('127.0.0.1:8081', `127.0.0.1:${gateways[0].port}`)
      .replace('127.0.0.1:8082', `127.0.0.1:${gateways[1].port}`)
      .replace('127.0.0.1:8080', `127.0.0.1:${port}`),
  )
  const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map(
    name => `${name}_temp_path ${folder}/${name};`,
  )
  const main = join(folder, 'nginx.conf')
  writeFileSync(
    main,
    `daemon off; pid ${folder}/pid; error_log stderr; events {} http { access_log off; ${temporary.join(' ')} include ${file}; }`,
  )
  const args = ['-p', folder, '-e', 'stderr', '-c', main]
  const said = run(t, nginx!, args)
  await eventually(async () => (await ask(port)) === undefined, said)

  /** Runs a command of the page, on this nginx and for this gateway. */
  const command = (begin: string, gateway: Gateway): void => {
    const text = shown(begin)
      .replace('127.0.0.1:8081', `127.0.0.1:${gateway.port}`)
      .replace('/etc/nginx/conf.d/sluice.conf', file)
      .replace('nginx -s reload', `${nginx} ${args.join(' ')} -s reload`)
    const { status, stderr } = spawnSync('sh', ['-c', text], { encoding: 'utf8' })
    assert.equal(status, 0, stderr)
  }
  const marked = () => readFileSync(file, 'utf8').match(/ down;/g)?.length ?? 0

  const result = await underLoad(port, async () => {
    for (const gateway of gateways) {
      const ended = gateway.stop()
      command("sed -i 's/server", gateway)
      assert.equal(marked(), 1)
      assert.equal(await ask(gateway.port), undefined, 'the gateway still serves')
      assert.equal(await ended, 0)
      await gateway.start()
      command("sed -i 's/ down;", gateway)
      assert.equal(marked(), 0)
    }
  })
  assertNoneLost(result, said)
})
