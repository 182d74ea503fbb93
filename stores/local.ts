/**
 * The server of `store: local`: a `redis-server` (or `valkey-server`) that the gateway starts and minds. All its files
 * are in `FOLDER/redis`, which only its owner may enter:
 *
 *   lock          locked while a gateway minds the server
 *   pid           process id of the server, written before the server runs
 *   socket        where it listens; it has no TCP port
 *   appendonlydir its data. What it has answered is in the file, so a killed server loses nothing
 */
import { type ChildProcess, spawn } from 'node:child_process'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { StoreUnavailable } from '../core/canon/errors.ts'
import { acquire } from './journal.ts'

const PROGRAMS = ['redis-server', 'valkey-server']
/** Time between two looks whether the server answers, or has ended, ms. */
const LOOK_MS = 50
/** A server that was asked to end has this long to save its data, ms. Then it is killed. */
const END_MS = 20_000
/**
 * Pauses before a server that has ended is started again, ms. A server that ran for SETTLED_MS begins with the first.
 */
const FIRST_WAIT_MS = 100
const LONGEST_WAIT_MS = 10_000
const SETTLED_MS = 10_000
/** A Unix socket's path has at most this many bytes on every system. */
const LONGEST_PATH = 103
/** How much of the server's output is kept, to say why it ended. */
const OUTPUT_CHARACTERS = 2000

/** Whether a store's URL is `local:FOLDER`. */
export const isLocal = (url: string): boolean => url.startsWith('local:')

export const folderOf = (url: string): string => url.slice('local:'.length)

/**
 * The path of the server's socket, relative to the current folder where that is shorter.
 * @throws StoreUnavailable when it is too long for a socket
 */
export function socketOf(url: string): string {
  const whole = path.resolve(folderOf(url), 'redis', 'socket')
  const near = path.relative('', whole)
  const file = Buffer.byteLength(near) < Buffer.byteLength(whole) ? near : whole
  if (Buffer.byteLength(file) > LONGEST_PATH)
    throw new StoreUnavailable(
      `${whole} is too long for a socket: a path has at most ${LONGEST_PATH} bytes; name a folder with a shorter path, e.g. store: local:/var/lib/sluice`,
    )
  return file
}

/** The memory of the server unless `store.max_memory` is set, in bytes: half of what this machine or container has. */
export function localMemory(): number {
  return Math.floor(Math.min(os.totalmem(), process.constrainedMemory() || Number.POSITIVE_INFINITY) / 2)
}

/**
 * The program to run, as an absolute path.
 * @throws StoreUnavailable when there is none on the PATH
 */
export function findServer(searched: string = process.env['PATH'] ?? ''): string {
  for (const name of PROGRAMS)
    for (const folder of searched.split(path.delimiter)) {
      const file = path.resolve(folder, name)
      try {
        fs.accessSync(file, fs.constants.X_OK)
        return file
      } catch {
        // The next folder may have it.
      }
    }
  throw new StoreUnavailable(
    `store: local runs a ${PROGRAMS.join(' or ')}, and there is none on the PATH; install one (apt-get install redis-server, brew install redis), or name another store`,
  )
}

/** Whether the data of a local store is in this folder. */
export const holdsLocal = (folder: string): boolean => fs.existsSync(path.join(folder, 'redis', 'pid'))

/**
 * A local store that begins empty beside a database would forget its accounts and spend.
 * @throws StoreUnavailable
 */
function checkOther(folder: string): void {
  if (holdsLocal(folder) || !fs.existsSync(folder)) return
  const file = fs.readdirSync(folder).find(name => name.endsWith('.db'))
  if (file === undefined) return
  throw new StoreUnavailable(
    `${folder} holds the data of an SQLite store, ${file}, and a local store would begin without its accounts, spend and ledger: \`sluice store move --from sqlite:${path.join(folder, file)}\` carries everything; or keep store: sqlite:, or name another folder to begin empty, e.g. store: local:./data-local`,
  )
}

export interface LocalServerOptions {
  /** `local:FOLDER`. */
  url: string
  /** Bytes. Null: half of the machine's memory. */
  maxMemory: number | null
  /** It may begin empty beside a database, because it will be filled. */
  beside?: boolean
  /** Tells the operator that the server was ended or started again. */
  tell(text: string): void
}

/** A gateway minds the folder, and has started its server. */
export class LocalInUse extends StoreUnavailable {}

export class LocalServer {
  readonly #dir: string
  readonly #program: string
  readonly #options: LocalServerOptions
  readonly #lock: { close(): void }
  #child: ChildProcess | undefined
  #ended: Promise<void> = Promise.resolve()
  #restart: NodeJS.Timeout | undefined
  #output = ''
  #stopping = false
  readonly #onExit = () => void this.#child?.kill('SIGTERM')

  private constructor(options: LocalServerOptions, program: string, lock: { close(): void }) {
    this.#options = options
    this.#program = program
    this.#lock = lock
    this.#dir = path.join(folderOf(options.url), 'redis')
  }

  /**
   * Starts the server of a folder, and ends one that a killed gateway has left there. It may still be loading its data
   * when this resolves.
   * @throws StoreUnavailable when there is no program or the server does not start; LocalInUse when another gateway minds
   * the folder
   */
  static async start(options: LocalServerOptions): Promise<LocalServer> {
    socketOf(options.url)
    const program = findServer()
    const folder = folderOf(options.url)
    const dir = path.join(folder, 'redis')
    if (!options.beside) checkOther(folder)
    fs.mkdirSync(folder, { recursive: true, mode: 0o700 })
    fs.mkdirSync(dir, { recursive: true, mode: 0o700 })
    fs.chmodSync(dir, 0o700)
    const lock = acquire(path.join(dir, 'lock'))
    if (lock === null) throw new LocalInUse(`the store in ${folder} is in use by another gateway`)
    const server = new LocalServer(options, program, lock)
    try {
      await endOrphan(dir, options.tell)
      server.#run(FIRST_WAIT_MS)
      await server.#listening()
    } catch (error) {
      await server.stop()
      throw error
    }
    process.on('exit', server.#onExit)
    return server
  }

  /** Ends the server, which saves its data, and leaves the folder to others. */
  async stop(): Promise<void> {
    this.#stopping = true
    clearTimeout(this.#restart)
    process.off('exit', this.#onExit)
    const child = this.#child
    child?.kill('SIGTERM')
    const timer = setTimeout(() => child?.kill('SIGKILL'), END_MS)
    await this.#ended
    clearTimeout(timer)
    this.#lock.close()
  }

  #run(wait: number): void {
    const began = performance.now()
    const child = this.#spawn()
    this.#child = child
    this.#output = ''
    const hear = (text: string) => {
      this.#output = (this.#output + text).slice(-OUTPUT_CHARACTERS)
    }
    child.stdout!.setEncoding('utf8').on('data', hear)
    child.stderr!.setEncoding('utf8').on('data', hear)
    // It ended before it was asked to go on.
    child.stdin!.on('error', () => {})
    this.#ended = new Promise(resolve => {
      child.once('error', error => {
        hear(error.message)
        resolve()
      })
      child.once('close', (code, signal) => {
        this.#child = undefined
        resolve()
        if (this.#stopping) return
        const next = performance.now() - began < SETTLED_MS ? Math.min(wait * 2, LONGEST_WAIT_MS) : FIRST_WAIT_MS
        const why = this.#output.trim().split('\n').at(-1)
        this.#options.tell(
          `the store's ${path.basename(this.#program)} ended (${signal ?? `code ${code}`}): ${why}; starting it again in ${next} ms`,
        )
        this.#restart = setTimeout(() => this.#run(next), next)
      })
    })
  }

  /**
   * A shell waits for a word before it becomes the server, and the word comes when the file `pid` is written. So every
   * server that runs is in that file, at whatever moment this process is killed. The server is in a session of its own,
   * so that Ctrl-C does not end it before the gateway has drained.
   */
  #spawn(): ChildProcess {
    const child = spawn('sh', ['-c', 'read -r go && exec "$@"', 'sh', this.#program, ...this.#settings()], {
      cwd: this.#dir,
      detached: true,
      stdio: ['pipe', 'pipe', 'pipe'],
    })
    if (child.pid === undefined) return child
    fs.writeFileSync(path.join(this.#dir, 'pid'), String(child.pid), { mode: 0o600 })
    child.stdin!.end('go\n')
    return child
  }

  #settings(): string[] {
    const settings = {
      port: '0',
      unixsocket: 'socket',
      unixsocketperm: '700',
      dir: '.',
      daemonize: 'no',
      logfile: '',
      appendonly: 'yes',
      // After a power cut the last second is missing, as with the SQLite store. A killed server loses nothing.
      appendfsync: 'everysec',
      save: '',
      maxmemory: String(this.#options.maxMemory ?? localMemory()),
      'maxmemory-policy': 'noeviction',
    }
    return Object.entries(settings).flatMap(([name, value]) => [`--${name}`, value])
  }

  async #listening(): Promise<void> {
    while (this.#child) {
      if ((await processAt(socketOf(this.#options.url))) === this.#child?.pid) return
      await sleep(LOOK_MS)
    }
    throw new StoreUnavailable(`${this.#program} does not start: ${this.#output.trim()}`)
  }
}

/** The id of the process that listens on a socket; undefined when none does, or it does not answer within a second. */
async function processAt(socket: string): Promise<number | undefined> {
  // Starts with other stores load this file, and must not wait for that one.
  const { Redis } = await import('ioredis')
  const redis = new Redis({
    path: socket,
    lazyConnect: true,
    retryStrategy: null,
    enableReadyCheck: false,
    protocol: 2,
  })
  redis.on('error', () => {})
  const timer = setTimeout(() => redis.disconnect(), 1000)
  try {
    await redis.connect()
    return Number(/process_id:(\d+)/.exec(await redis.info('server'))?.[1])
  } catch {
    return undefined
  } finally {
    clearTimeout(timer)
    redis.disconnect()
  }
}

/**
 * Whether a process is the server of a folder. A process id alone does not decide: the system gives it again. On Linux
 * the folder in which it runs tells, also of one that hangs; elsewhere its answer does.
 */
async function isServerOf(pid: number, dir: string): Promise<boolean> {
  try {
    process.kill(pid, 0)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ESRCH') return false
  }
  if (process.platform !== 'linux') return (await processAt(path.join(dir, 'socket'))) === pid
  try {
    return fs.readlinkSync(`/proc/${pid}/cwd`) === fs.realpathSync(dir)
  } catch {
    return false
  }
}

async function endOrphan(dir: string, tell: (text: string) => void): Promise<void> {
  let pid: number
  try {
    pid = Number(fs.readFileSync(path.join(dir, 'pid'), 'utf8'))
  } catch {
    return
  }
  if (!(pid > 1) || !(await isServerOf(pid, dir))) return
  tell(`ending the store's server ${pid}, which a killed gateway has left in ${dir}`)
  process.kill(pid, 'SIGTERM')
  const until = performance.now() + END_MS
  while (await isServerOf(pid, dir)) {
    if (performance.now() > until) process.kill(pid, 'SIGKILL')
    await sleep(LOOK_MS)
  }
}
