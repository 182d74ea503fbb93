/** Real redis-server processes for tests: free ports, temporary folders, stopped by their own process id. */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import fs from 'node:fs'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { eventually } from '../eventually.ts'
import { freePort } from '../ports.ts'

export const redisAvailable = ((): boolean => {
  try {
    execFileSync('redis-server', ['--version'], { stdio: 'ignore' })
    return true
  } catch {
    console.error(
      '\n*** redis-server is not installed: the shared engine is NOT tested (apt-get install redis-server) ***\n',
    )
    return false
  }
})()

/** For `test(name, { skip })`. */
export const skipWithoutRedis = redisAvailable ? false : 'redis-server is not installed'

const running = new Set<ChildProcess>()
// A test that fails half-way leaves nothing behind, and never keeps its process waiting.
process.on('exit', () => {
  for (const child of running) child.kill('SIGKILL')
})
function launch(binary: string, args: string[]): ChildProcess {
  const child = spawn(binary, args, { stdio: 'ignore' })
  running.add(child)
  child.once('exit', () => running.delete(child))
  child.unref()
  return child
}

export class RedisServer {
  readonly port: number
  readonly dir: string
  #args: string[]
  #binary: string
  #process: ChildProcess | undefined

  private constructor(port: number, args: string[], binary: string) {
    this.port = port
    this.dir = fs.mkdtempSync(path.join(os.tmpdir(), 'sluice-redis-'))
    this.#args = args
    this.#binary = binary
  }

  static async start(args: string[] = [], binary = 'redis-server'): Promise<RedisServer> {
    const server = new RedisServer(await freePort(), args, binary)
    try {
      await server.up()
    } catch (error) {
      await server.stop()
      throw error
    }
    return server
  }

  /** A sentinel on a configuration file of its own (it rewrites it). */
  static async startSentinel(config: string, port: number): Promise<RedisServer> {
    const server = new RedisServer(port, [], 'redis-server')
    server.#process = launch('redis-server', [
      config,
      '--sentinel',
      '--port',
      String(port),
      '--bind',
      '127.0.0.1',
      '--dir',
      server.dir,
    ])
    await server.#answering()
    return server
  }

  get url(): string {
    return `redis://127.0.0.1:${this.port}/0`
  }
  get pid(): number {
    return this.#process!.pid!
  }

  /** Starts the process, with the data of an earlier one if it was saved. */
  async up(): Promise<void> {
    const base = [
      '--port',
      String(this.port),
      '--bind',
      '127.0.0.1',
      '--dir',
      this.dir,
      '--save',
      '',
      '--daemonize',
      'no',
    ]
    this.#process = launch(this.#binary, [...base, ...this.#args])
    await this.#answering()
  }

  async #answering(): Promise<void> {
    const child = this.#process!
    // Its own answer: another server may have taken the port meanwhile.
    const own = new RegExp(`process_id:${child.pid}\\r`)
    await eventually(async () => {
      if (child.exitCode !== null) throw new Error(`redis-server ended with ${child.exitCode}; its port: ${this.port}`)
      // With a password it tells nothing of itself.
      if (this.#args.includes('--requirepass'))
        return (await this.command('PING').catch(() => '')).startsWith('-NOAUTH')
      if (!own.test(await this.info('server').catch(() => ''))) return false
      return (await this.command('PING').catch(() => '')) === '+PONG'
    })
  }

  /** Ends the process at once. */
  async down(): Promise<void> {
    const child = this.#process
    if (!child) return
    this.#process = undefined
    await new Promise<void>(resolve => {
      child.ref()
      child.once('exit', () => resolve())
      if (child.exitCode !== null || child.signalCode !== null) resolve()
      child.kill('SIGKILL')
    })
  }

  /** Stops answering, and keeps every connection: what a hung machine looks like. */
  freeze(): void {
    this.#process!.kill('SIGSTOP')
  }
  thaw(): void {
    this.#process!.kill('SIGCONT')
  }

  async stop(): Promise<void> {
    await this.down()
    fs.rmSync(this.dir, { recursive: true, force: true })
  }

  info(section: string): Promise<string> {
    return this.reply('INFO', section)
  }

  /** Sends one command on a connection of its own; resolves to the first line of the reply. */
  async command(...parts: (string | number)[]): Promise<string> {
    const text = await this.reply(...parts)
    return text.slice(0, text.indexOf('\r\n'))
  }

  /** The first piece of the raw reply. */
  reply(...parts: (string | number)[]): Promise<string> {
    return new Promise((resolve, reject) => {
      const socket = net.connect(this.port, '127.0.0.1')
      let text = ''
      socket.setTimeout(30_000, () => socket.destroy(new Error('timeout')))
      socket.once('error', reject)
      socket.on('data', data => {
        text += data.toString()
        if (!text.includes('\r\n')) return
        socket.destroy()
        resolve(text)
      })
      socket.write(
        `*${parts.length}\r\n${parts.map(part => `$${Buffer.byteLength(String(part))}\r\n${part}\r\n`).join('')}`,
      )
    })
  }
}

export interface FailoverSet {
  /** `redis+sentinel://…` */
  url: string
  master: RedisServer
  replica: RedisServer
  /** Resolves when the replica has all that the master has: replication is asynchronous. */
  replicated(): Promise<void>
  stop(): Promise<void>
}

/** A master, a replica, and a sentinel that makes the replica the master three seconds after the master is gone. */
export async function startFailoverSet(): Promise<FailoverSet> {
  const master = await RedisServer.start()
  const replica = await RedisServer.start(['--replicaof', '127.0.0.1', String(master.port)])
  const port = await freePort()
  const config = path.join(replica.dir, 'sentinel.conf')
  fs.writeFileSync(
    config,
    [
      `sentinel monitor mymaster 127.0.0.1 ${master.port} 1`,
      'sentinel down-after-milliseconds mymaster 3000',
      'sentinel failover-timeout mymaster 6000',
      'sentinel parallel-syncs mymaster 1',
      '',
    ].join('\n'),
  )
  const sentinel = await RedisServer.startSentinel(config, port)
  const offset = async (server: RedisServer) =>
    /(?:slave_repl_offset|master_repl_offset):(\d+)/.exec(await server.info('replication'))![1]!
  // The sentinel learns of the replica from the master's INFO.
  await eventually(async () => (await replica.info('replication')).includes('master_link_status:up'))
  await eventually(async () => /num-slaves\r\n\$1\r\n1/.test(await sentinel.reply('SENTINEL', 'MASTER', 'mymaster')))
  return {
    url: `redis+sentinel://127.0.0.1:${port}/mymaster`,
    master,
    replica,
    replicated: () =>
      eventually(
        async () => (await replica.info('keyspace')).length > 0 && (await offset(master)) === (await offset(replica)),
      ),
    async stop() {
      await Promise.all([sentinel.stop(), master.stop(), replica.stop()])
    },
  }
}
