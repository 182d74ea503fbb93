/**
 * The connection to Redis. A call is answered within the timeout, or it fails with StoreUnavailable. ioredis does not
 * queue commands while there is no connection, and does not resend commands whose answer was lost. Only a cluster
 * client may send a command again, after a redirect or when a node was lost. This does no harm, because every script is
 * keyed by an id and has the same effect when it runs twice.
 */
import { Cluster, type ClusterOptions, Command, Redis, type RedisOptions } from 'ioredis'
import { StoreRefused, StoreSlow, StoreUnavailable } from '../../core/canon/errors.ts'
import type { Logger } from '../../core/plugin.ts'
import type { Script, ScriptCall } from './call.ts'
import { Deadlines } from './deadlines.ts'
import { describe, parseRedisUrl, type RedisAddress } from './url.ts'

/**
 * The error of a script with the lines of the files in lua/: Redis names them by the text that it was sent, as
 * `user_script:12`.
 */
function located({ lines }: Script, error: Error): Error {
  error.message = error.message.replace(/user_script:(\d+)/g, (named, line) => lines[Number(line) - 1] ?? named)
  return error
}
const isUnknownScript = (error: Error) => error.message.startsWith('NOSCRIPT')

export type Arg = string | number | Buffer

/** A connection is closed when it has brought no answer for this long while calls expired. */
const SILENT_MS = 5000
/** Timeout of connecting. */
const CONNECT_MS = 2000
/** The longest pause of ioredis between two tries to connect. */
const RETRY_MAX_MS = 1000
/** The pause before connecting again after ioredis has given up, and between the tries of `persist`. */
const AGAIN_MS = 250
/** How often `persist` tries. */
const TRIES = 3
/** ioredis's error messages for a command that found no connection. */
const NOT_CONNECTED = /isn't writeable|isn't ready|is closed/
/** What servers and sentinels answer to a wrong or missing password, to a user without rights, to a wrong database. */
const REFUSED = /\b(WRONGPASS|NOAUTH|NOPERM|invalid password|DB index is out of range)\b/

/** One connection of a client (`connectionTo`). */
export interface Connection {
  readonly redis: Redis
}

export class RedisClient {
  readonly address: RedisAddress
  /** The address without secrets. */
  readonly name: string
  readonly redis: Redis | Cluster
  /** Called when a connection was lost. The server may have restarted and lost its data. */
  onClose: (() => void) | undefined
  /** Called when a connection is ready. */
  onReady: (() => void) | undefined
  #log: Logger
  #deadlines: Deadlines
  /** Whether the last call failed. */
  #down = false
  #closed = false
  /** When the first call expired since the last answer; undefined when none has. */
  #silentSince: number | undefined
  /** Why the last connection failed. The errors of calls without a connection do not say why. */
  #unreachable: string | undefined
  /** Why the server refuses the address of the configuration. */
  #refused: string | undefined

  /** The connections of `connectionTo`. Each has one entry as long as it is open. */
  #connections = new WeakMap<Redis, Connection>()

  constructor(options: { url: string; timeout: number; log: Logger }) {
    this.address = parseRedisUrl(options.url)
    this.name = describe(this.address)
    const { timeout } = options
    this.#deadlines = new Deadlines(timeout, () => {
      this.#noteSilence()
      return new StoreSlow(`redis did not answer within ${timeout} ms`)
    })
    this.#log = options.log
    this.redis = create(this.address)
    // Without a listener, ioredis prints errors to the console. `#changed` logs each change of state once.
    this.redis.on('error', (error: Error & { lastNodeError?: Error }) => {
      this.#unreachable = error.lastNodeError?.message ?? error.message
      // A connection with a wrong database number goes on, with database 0.
      if (REFUSED.test(this.#unreachable)) this.#refused = this.#unreachable
    })
    this.redis.on('connecting', () => {
      this.#refused = undefined
    })
    this.redis.on('ready', () => {
      this.#unreachable = undefined
      this.onReady?.()
    })
    this.redis.on('close', () => {
      this.#unreachable ??= 'the connection was lost'
      if (this.redis instanceof Redis) this.#connections.delete(this.redis)
      this.onClose?.()
    })
    // ioredis stops reconnecting when a failover is announced while it connects, and in some other races. The store
    // must not stop, so it connects again.
    this.redis.on('end', () => {
      if (this.#closed) return
      setTimeout(() => {
        if (!this.#closed && this.redis.status === 'end') this.redis.connect().catch(() => {})
      }, AGAIN_MS).unref()
    })
  }

  /**
   * Resolves when connected, or after 2 s without a connection. The client then continues to try in the background.
   * @throws StoreRefused when the server refuses the password, the user or the database of the configuration
   */
  async connect(): Promise<void> {
    const connecting = this.redis.connect().then(
      () => {},
      error => {
        if (this.#refused !== undefined) return
        this.#log.error(
          { store: this.name, error: this.#unreachable ?? (error as Error).message },
          'redis is not reachable; requests that need it are refused until it is',
        )
      },
    )
    let timer: NodeJS.Timeout | undefined
    await Promise.race([connecting, new Promise(resolve => (timer = setTimeout(resolve, CONNECT_MS)))])
    clearTimeout(timer)
    if (this.#refused !== undefined) throw this.#refusal(this.#refused)
  }

  #refusal(reason: string, cause?: Error): StoreRefused {
    return new StoreRefused(`redis refuses ${this.name}: ${reason}; correct 'store', or the server`, cause)
  }

  /**
   * Runs a script on keys of one slot. Bulk strings in the reply are Buffers. It takes one round trip, or two when the
   * server does not know the script yet, or not any more after SCRIPT FLUSH.
   */
  script(
    which: Script,
    keys: readonly string[],
    args: readonly Arg[],
    redis: Redis | Cluster = this.redis,
  ): Promise<unknown> {
    const rest = [keys.length, ...keys, ...args]
    const failed = (error: Error) => Promise.reject(located(which, error))
    return this.call(redis.callBuffer('EVALSHA', which.sha, ...rest), error =>
      isUnknownScript(error) ? redis.callBuffer('EVAL', which.lua, ...rest).catch(failed) : failed(error),
    )
  }

  /**
   * The connection on which commands for this key run: the same object until it is lost. What is sent to it again after
   * that runs on another connection, or fails.
   * @throws StoreUnavailable when a cluster has no node for the key now
   */
  connectionTo(key: string): Connection {
    const redis = this.redis instanceof Cluster ? nodeOf(this.redis, key) : this.redis
    if (!redis) return this.#failed(new Error('no node of the cluster has this slot'))
    let connection = this.#connections.get(redis)
    if (!connection) this.#connections.set(redis, (connection = { redis }))
    return connection
  }

  /** Runs a script by a call whose bytes are already made. */
  send(call: ScriptCall): Promise<unknown> {
    return this.#sent(call.evalsha()).then(this.#answered, error => {
      const failed = (error: Error) => this.#failed(located(call.script, error))
      return isUnknownScript(error) ? this.#sent(call.eval()).then(this.#answered, failed) : failed(error)
    })
  }

  #sent(command: Command): Promise<unknown> {
    this.redis.sendCommand(command)
    this.#deadlines.add(command)
    return command.promise
  }

  /**
   * Applies the timeout to a command, and makes a StoreUnavailable of every failure.
   * @param refused what to do about the command's error: send another command, or fail
   */
  call<T>(command: Promise<T>, refused: (error: Error) => Promise<T> = error => Promise.reject(error)): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      const pending = { isSettled: false, reject }
      const settle = () => {
        pending.isSettled = true
      }
      this.#deadlines.add(pending)
      command.catch(refused).then(resolve, reject).then(settle)
    }).then(this.#answered, this.#failed)
  }

  /**
   * Makes calls again when one fails, for what nobody will try later.
   * @param calls what may be done twice
   */
  async persist(calls: () => Promise<void>): Promise<void> {
    for (let tries = 1; ; tries++)
      try {
        return await calls()
      } catch (error) {
        if (tries === TRIES) throw error
        await new Promise(resolve => setTimeout(resolve, AGAIN_MS))
      }
  }

  /**
   * Closes a connection on which calls expire and no answer arrives: the server hangs, or died without closing the
   * connection. ioredis has an option for this, socketTimeout, but it costs each call a timer and a listener. It is
   * used only for clusters, whose connections ioredis manages itself.
   */
  #noteSilence(): void {
    const now = performance.now()
    this.#silentSince ??= now
    if (now - this.#silentSince < SILENT_MS || this.redis instanceof Cluster) return
    this.#silentSince = undefined
    // A server that hangs does not answer the end of the connection either, so `close` comes late.
    this.#unreachable = `no answer for ${SILENT_MS / 1000} s`
    this.redis.disconnect(true)
  }

  readonly #answered = <T>(value: T): T => {
    this.#silentSince = undefined
    this.#deadlines.drop()
    if (this.#down) this.#changed(undefined)
    return value
  }

  readonly #failed = (error: Error): never => {
    if (error instanceof StoreUnavailable) throw this.#changed(error)
    if (this.#refused !== undefined) throw this.#changed(this.#refusal(this.#refused, error))
    const reason =
      this.#unreachable !== undefined && NOT_CONNECTED.test(error.message)
        ? `is not reachable: ${this.#unreachable}`
        : `failed: ${error.message}`
    throw this.#changed(new StoreUnavailable(`redis ${reason}`, error))
  }

  disconnect(): void {
    this.#closed = true
    this.redis.disconnect()
  }

  /** Logs the first failure and the first success after it. */
  #changed(error: StoreUnavailable | undefined): StoreUnavailable {
    const down = error !== undefined
    if (down !== this.#down) {
      this.#down = down
      if (error)
        this.#log.error(
          { store: this.name, error: error.message },
          'redis calls fail; requests that need it are refused',
        )
      else this.#log.info({ store: this.name }, 'redis answers again')
    }
    return error!
  }
}

/**
 * The client of the master of a key. The Cluster makes a new one for each connection.
 */
function nodeOf(cluster: Cluster, key: string): Redis | undefined {
  const [master] = cluster.slots[new Command('get', [key]).getSlot()] ?? []
  return cluster.nodes('master').find(({ options: { host, port } }) => `${host}:${port}` === master)
}

function create(address: RedisAddress): Redis | Cluster {
  const { tls } = address
  const node: RedisOptions = {
    username: address.username,
    password: address.password,
    enableOfflineQueue: false,
    autoResendUnfulfilledCommands: false,
    // Commands in flight when the connection is lost fail at once.
    maxRetriesPerRequest: 0,
    connectTimeout: CONNECT_MS,
    lazyConnect: true,
    noDelay: true,
    // Every server and proxy speaks RESP2, and nothing here needs RESP3.
    protocol: 2,
    tls,
    // This error means that the master has become a replica. Reconnecting asks the sentinels for the new master.
    reconnectOnError: error => error.message.startsWith('READONLY'),
    retryStrategy: times => Math.min(50 * 2 ** Math.min(times - 1, 10), RETRY_MAX_MS),
  }
  if (address.mode === 'cluster') {
    const options: ClusterOptions = {
      redisOptions: { ...node, socketTimeout: SILENT_MS },
      enableOfflineQueue: false,
      lazyConnect: true,
      clusterRetryStrategy: times => Math.min(50 * times, RETRY_MAX_MS),
      slotsRefreshTimeout: CONNECT_MS,
      slotsRefreshInterval: 5000,
    }
    if (tls) options.dnsLookup = (host, callback) => callback(null, host)
    return new Cluster(address.hosts, options)
  }
  if (address.mode === 'sentinel') {
    return new Redis({
      ...node,
      db: address.db,
      sentinels: address.hosts,
      name: address.name,
      sentinelPassword: address.sentinelPassword,
      enableTLSForSentinelMode: tls !== undefined,
      sentinelTLS: tls,
      sentinelRetryStrategy: times => Math.min(50 * times, RETRY_MAX_MS),
      failoverDetector: true,
    })
  }
  if (address.path !== undefined) return new Redis({ ...node, path: address.path })
  return new Redis({ ...node, db: address.db, host: address.hosts[0]!.host, port: address.hosts[0]!.port })
}

/**
 * The hash tag of an organization: the part of its keys that decides their cluster slot, so that all are in one slot.
 * An id with braces is encoded, because a brace would end the tag early.
 */
export function tagOf(org: string): string {
  return '{' + (/[{}%]/.test(org) ? encodeURIComponent(org) : org) + '}'
}
