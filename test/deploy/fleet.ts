/** Two gateways in processes of their own, and the proxies of deploy/ in front of them, as docs/deploy.md has it. */
import assert from 'node:assert/strict'
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TestContext } from 'node:test'
import { type Simulator, startSimulator } from '../../providers/simulator/server.ts'
import { defaultYaml, type TestOptions } from '../e2e/harness.ts'
import { findProgram } from '../ensure-deps.ts'
import { eventually } from '../eventually.ts'
import { freePort } from '../ports.ts'
import { folder, ROOT, read } from './kit.ts'

const MAIN = join(ROOT, 'cli/main.ts')
const { NODE_TEST_CONTEXT: _, ...ENV } = process.env

export const PAGE = read('docs/deploy.md')
const haproxy = findProgram(['haproxy'])
const nginx = findProgram(['nginx'])
export const withoutHaproxy = haproxy ? false : 'haproxy is not installed: apt-get install -y haproxy'
export const withoutNginx = nginx ? false : 'nginx is not installed: apt-get install -y nginx-light'

/** One gateway, in a process of its own. Restarts keep its ports. */
export class Gateway {
  readonly port: number
  readonly admin: number
  readonly folder: string
  #process: ChildProcess | undefined
  #said = ''

  private constructor(folder: string, port: number) {
    this.folder = folder
    this.port = port
    this.admin = port + 1
  }

  static async make(t: TestContext, simulator: string, options: TestOptions): Promise<Gateway> {
    const folder = mkdtempSync(join(tmpdir(), 'sluice-fleet-'))
    const gateway = new Gateway(folder, await freePort(2))
    const [delay] = /drain_delay: \w+/.exec(PAGE)!
    const yaml = defaultYaml(simulator, { ...options, server: `drain: 30s, ${delay}, trust_proxy: [127.0.0.1]` })
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
      cwd: this.folder,
      env: ENV,
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    for (const stream of [child.stdout!, child.stderr!])
      stream.setEncoding('utf8').on('data', text => {
        this.#said += text
      })
    this.#process = child
    await eventually(
      async () => (await this.readyz()).status === 200,
      () => this.#said,
    )
  }

  /** What the gateway answers to `/readyz`; status 0 when it does not. */
  async readyz(query = ''): Promise<{ status: number; text: string }> {
    try {
      const response = await fetch(`http://127.0.0.1:${this.admin}/readyz${query}`)
      return { status: response.status, text: await response.text() }
    } catch {
      return { status: 0, text: '' }
    }
  }

  /** Sends SIGTERM. @returns a promise of the exit code */
  stop(signal: NodeJS.Signals = 'SIGTERM'): Promise<number | null> {
    const child = this.#process!
    const ended = once(child, 'exit').then(([code]) => code)
    child.kill(signal)
    return ended
  }
}

export type Two = readonly [Gateway, Gateway]

export async function twoGateways(
  t: TestContext,
  options: TestOptions = {},
): Promise<{ gateways: Two; simulator: Simulator }> {
  const simulator = await startSimulator({ port: 0 })
  t.after(() => simulator.close())
  const make = () => Gateway.make(t, simulator.url, options)
  return { gateways: [await make(), await make()], simulator }
}

/** A proxy that runs until the end of the test. */
export interface Proxy {
  port: number
  /** What it has printed. */
  said(): string
}

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

export interface HaproxyRun extends Proxy {
  /** The states of both servers of a backend as HAProxy has them, for example `UP,DOWN`. */
  states(backend?: string): Promise<string>
}

/** deploy/haproxy.cfg. */
export async function behindHaproxy(t: TestContext, [a, b]: Two): Promise<HaproxyRun> {
  const port = await freePort()
  const admin = join(folder(t), 'admin.sock')
  const said = run(t, haproxy!, ['-db', '-f', join(ROOT, 'deploy/haproxy.cfg')], {
    HAPROXY_BIND: `127.0.0.1:${port}`,
    HAPROXY_ADMIN: admin,
    GATEWAY_A: `127.0.0.1:${a.port}`,
    GATEWAY_B: `127.0.0.1:${b.port}`,
    READY_A: String(a.admin),
    READY_B: String(b.admin),
  })
  const states = async (backend = 'gateways'): Promise<string> => {
    const socket = connect(admin)
    socket.end('show stat\n')
    let text = ''
    try {
      for await (const piece of socket) text += piece
    } catch {
      return ''
    }
    const servers = text.split('\n').filter(line => new RegExp(`^${backend},[ab],`).test(line))
    return servers.map(line => line.split(',')[17]!.split(' ')[0]).join()
  }
  await eventually(async () => (await states()) === 'UP,UP', said)
  return { port, said, states }
}

export interface NginxRun extends Proxy {
  /** The file of deploy/ as it stands here. */
  file: string
  /** The command that makes it read its files again. */
  reload: string
}

/** deploy/nginx.conf. */
export async function behindNginx(t: TestContext, gateways: Two): Promise<NginxRun> {
  const port = await freePort()
  const dir = folder(t)
  const file = join(dir, 'sluice.conf')
  writeFileSync(
    file,
    read('deploy/nginx.conf')
      .replace('127.0.0.1:8081', `127.0.0.1:${gateways[0].port}`)
      .replace('127.0.0.1:8082', `127.0.0.1:${gateways[1].port}`)
      .replace('127.0.0.1:8080', `127.0.0.1:${port}`),
  )
  const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map(
    name => `${name}_temp_path ${dir}/${name};`,
  )
  const main = join(dir, 'nginx.conf')
  writeFileSync(
    main,
    `daemon off; pid ${dir}/pid; error_log stderr; events {} http { access_log off; ${temporary.join(' ')} include ${file}; }`,
  )
  const args = ['-p', dir, '-e', 'stderr', '-c', main]
  return { port, file, said: run(t, nginx!, args), reload: `${nginx} ${args.join(' ')} -s reload` }
}

/** What docs/deploy.md shows in a block of its own that begins with these words. */
export function shown(begin: string): string {
  const block = [...PAGE.matchAll(/^```text\n(.*?)^```$/gms)].find(([, text]) => text!.startsWith(begin))
  assert.ok(block, `docs/deploy.md shows ${begin}`)
  return block[1]!
}
