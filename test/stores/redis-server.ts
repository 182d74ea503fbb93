/** Real redis-server processes for tests: free ports, temporary folders, stopped by their own process id. */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import fs from 'node:fs'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'

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

export function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = net.createServer()
    server.once('error', reject)
    server.listen(0, '127.0.0.1', () => {
      const { port } = server.address() as net.AddressInfo
      server.close(() => resolve(port))
    })
  })
}

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

  static async start(args: string[] = [], port?: number, binary = 'redis-server'): Promise<RedisServer> {
    const server = new RedisServer(port ?? (await freePort()), args, binary)
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
    for (let i = 0; i < 200; i++) {
      if ((await this.command('PING').catch(() => '')) === '+PONG') return
      await new Promise(resolve => setTimeout(resolve, 25))
    }
    throw new Error('redis-server did not start')
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
      socket.setTimeout(2000, () => socket.destroy(new Error('timeout')))
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
