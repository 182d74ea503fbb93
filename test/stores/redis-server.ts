/** Real redis-server processes for tests: free ports, temporary folders, stopped by their own process id. */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import fs from 'node:fs'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { after, before, type TestContext } from 'node:test'
import { eventually } from '../eventually.ts'
import { freePort } from '../ports.ts'
import { temporary } from './kit.ts'

export const redisAvailable = ((): boolean => {
  try {
    execFileSync('redis-server', ['--version'], { stdio: 'ignore' })
    return true
  } catch {
    // Benchmarks install it, and the attack names what it leaves out.
    if (process.env['NODE_TEST_CONTEXT'])
      console.error(
        '\n*** redis-server is not installed: the shared engine is NOT tested (apt-get install redis-server) ***\n',
      )
    return false
  }
})()

/** For `test(name, { skip })`. */
export const skipWithoutRedis = redisAvailable ? false : 'redis-server is not installed'

const running = new Set<ChildProcess>()
const folders = new Set<string>()
// A test that fails half-way leaves nothing behind, and never keeps its process waiting.
process.on('exit', () => {
  for (const child of running) child.kill('SIGKILL')
  for (const folder of folders) fs.rmSync(folder, { recursive: true, force: true })
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
    folders.add(this.dir)
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

/** Starts a Redis server for the tests of a file. @returns a function that gives the URL of one more empty database */
export function redisDatabases(): () => string {
  let server: RedisServer | undefined
  let databases = 0
  before(async () => {
    if (redisAvailable) server = await RedisServer.start(['--databases', '100'])
  })
  after(() => server?.stop())
  return () => server!.url.replace(/\/0$/, `/${databases++}`)
}

/** Both engines: name, why its tests are skipped, and a function that gives the URL of one more empty store. */
export function engines(): [name: string, skip: string | false, newUrl: () => string][] {
  return [
    ['sqlite', false, () => `sqlite:${path.join(temporary(), 'gateway.db')}`],
    ['redis', skipWithoutRedis, redisDatabases()],
  ]
}

export interface FailoverSet {
  /** `redis+sentinel://…` */
  url: string
  master: RedisServer
  replicas: RedisServer[]
  /** Resolves when each replica has all that the master has: replication is asynchronous. */
  replicated(): Promise<void>
  stop(): Promise<void>
}

export const startReplica = (master: RedisServer): Promise<RedisServer> =>
  RedisServer.start(['--replicaof', '127.0.0.1', String(master.port), '--repl-diskless-sync-delay', '0'])

/** Resolves when the replica is in step with its master. */
export const linked = (replica: RedisServer): Promise<void> =>
  eventually(async () => (await replica.info('replication').catch(() => '')).includes('master_link_status:up'))

/** A master, two replicas, and a sentinel that makes one the master three seconds after the master is gone. */
export async function startFailoverSet(): Promise<FailoverSet> {
  const master = await RedisServer.start(['--repl-diskless-sync-delay', '0'])
  const replicas = [await startReplica(master), await startReplica(master)]
  const port = await freePort()
  const config = path.join(master.dir, 'sentinel.conf')
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
  // The sentinel learns of the replicas from the master's INFO.
  for (const replica of replicas) await linked(replica)
  await eventually(async () => /num-slaves\r\n\$1\r\n2/.test(await sentinel.reply('SENTINEL', 'MASTER', 'mymaster')))
  const inStep = async (replica: RedisServer) =>
    (await replica.info('keyspace')).length > 0 && (await offset(master)) === (await offset(replica))
  return {
    url: `redis+sentinel://127.0.0.1:${port}/mymaster`,
    master,
    replicas,
    replicated: () => eventually(async () => (await Promise.all(replicas.map(inStep))).every(same => same)),
    async stop() {
      await Promise.all([sentinel, master, ...replicas].map(server => server.stop()))
    },
  }
}

/** Three masters. */
export async function startCluster(t: TestContext): Promise<RedisServer[]> {
  const nodes: RedisServer[] = []
  t.after(() => Promise.all(nodes.map(node => node.stop())))
  while (nodes.length < 3) nodes.push(await startNode())
  execFileSync('redis-cli', ['--cluster', 'create', ...nodes.map(node => `127.0.0.1:${node.port}`), '--cluster-yes'], {
    stdio: 'ignore',
  })
  for (const node of nodes)
    await eventually(async () => (await node.reply('CLUSTER', 'INFO')).includes('cluster_state:ok'))
  return nodes
}

/** Gives the master of this key in a cluster a replica. */
export async function addReplica(t: TestContext, nodes: readonly RedisServer[], key: string): Promise<RedisServer> {
  const replica = await startNode()
  t.after(() => replica.stop())
  const [first] = nodes
  const slot = Number((await first!.command('CLUSTER', 'KEYSLOT', key)).slice(1))
  const lines = (await first!.reply('CLUSTER', 'NODES')).split('\n')
  const master = lines.find(line =>
    [...line.matchAll(/ (\d+)-(\d+)/g)].some(([, from, to]) => slot >= Number(from) && slot <= Number(to)),
  )!
  const [id] = master.slice(master.startsWith('$') ? master.indexOf('\n') + 1 : 0).split(' ')
  const at = (node: RedisServer) => `127.0.0.1:${node.port}`
  execFileSync(
    'redis-cli',
    ['--cluster', 'add-node', at(replica), at(first!), '--cluster-slave', '--cluster-master-id', id!],
    { stdio: 'ignore' },
  )
  await linked(replica)
  return replica
}

async function startNode(): Promise<RedisServer> {
  // Its bus would listen 10,000 above the port, which may be more than there are.
  const bus = String(await freePort())
  return RedisServer.start(['--cluster-enabled', 'yes', '--cluster-node-timeout', '30000', '--cluster-port', bus])
}
