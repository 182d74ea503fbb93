/**
 * The connection. No offline queue and no resending of commands whose fate is unknown: a call is answered within the budget or has failed. Every failure is a
 * StoreUnavailable. A cluster may send a command again after a redirect or a lost node; every script is keyed by an id, so twice is once.
 */
import { createHash } from 'node:crypto'
import { Cluster, type ClusterOptions, Redis, type RedisOptions } from 'ioredis'
import type { Logger } from '../../core/plugin.ts'
import { StoreUnavailable } from '../../core/store.ts'
import { describe, parseRedisUrl, type RedisAddress } from './url.ts'

export type Arg = string | number | Buffer

/** A Lua script and the digest it is called by. */
export interface Script {
  lua: string
  sha: string
}
export function script(lua: string): Script {
  return { lua, sha: createHash('sha1').update(lua).digest('hex') }
}

/** A connection that stays silent this long with commands unanswered is broken off. */
const SILENT_MS = 5000
const CONNECT_MS = 2000
const RETRY_MAX_MS = 1000

export class RedisClient {
  readonly address: RedisAddress
  readonly name: string
  readonly redis: Redis | Cluster
  /** Called when a connection was lost: what the server knew may be lost with it. */
  onClose: (() => void) | undefined
  #budget: number
  #log: Logger
  #down = false

  constructor(options: { url: string; timeout: number; log: Logger }) {
    this.address = parseRedisUrl(options.url)
    this.name = describe(this.address)
    this.#budget = options.timeout
    this.#log = options.log
    this.redis = create(this.address)
    // Without a listener ioredis prints; state changes are logged once each by #changed.
    this.redis.on('error', () => {})
    this.redis.on('close', () => this.onClose?.())
  }

  /** Resolves when connected, or after 2 s without; the client goes on trying by itself. */
  async connect(): Promise<void> {
    const connecting = this.redis.connect().then(
      () => {},
      error =>
        this.#log.error(
          { store: this.name, error: (error as Error).message },
          'redis is not reachable; requests are refused until it is',
        ),
    )
    let timer: NodeJS.Timeout | undefined
    await Promise.race([connecting, new Promise(resolve => (timer = setTimeout(resolve, CONNECT_MS)))])
    clearTimeout(timer)
  }

  /** Runs a script on keys of one slot; bulk replies are Buffers. One round trip; two when the server does not know it (yet, or after SCRIPT FLUSH). */
  script(which: Script, keys: readonly string[], args: readonly Arg[]): Promise<unknown> {
    return this.call(
      this.redis
        .callBuffer('EVALSHA', which.sha, keys.length, ...keys, ...args)
        .catch((error: Error) =>
          error.message.startsWith('NOSCRIPT')
            ? this.redis.callBuffer('EVAL', which.lua, keys.length, ...keys, ...args)
            : Promise.reject(error),
        ),
    )
  }

  /** Bounds a command by the budget and turns every failure into StoreUnavailable. */
  call<T>(command: Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(
        () => reject(this.#changed(new StoreUnavailable(`redis did not answer within ${this.#budget} ms`))),
        this.#budget,
      )
      command.then(
        value => {
          clearTimeout(timer)
          if (this.#down) this.#changed(undefined)
          resolve(value)
        },
        error => {
          clearTimeout(timer)
          reject(this.#changed(new StoreUnavailable(`redis failed: ${(error as Error).message}`, error)))
        },
      )
    })
  }

  disconnect(): void {
    this.redis.disconnect()
  }

  /** Logs the first failure and the first success after it. */
  #changed(error: StoreUnavailable | undefined): StoreUnavailable {
    const down = error !== undefined
    if (down !== this.#down) {
      this.#down = down
      if (error) this.#log.error({ store: this.name, error: error.message }, 'redis calls fail; requests are refused')
      else this.#log.info({ store: this.name }, 'redis answers again')
    }
    return error!
  }
}

function create(address: RedisAddress): Redis | Cluster {
  const tls = address.tls ? {} : undefined
  const node: RedisOptions = {
    username: address.username,
    password: address.password,
    enableOfflineQueue: false,
    autoResendUnfulfilledCommands: false,
    // Commands in flight when the connection is lost fail at once.
    maxRetriesPerRequest: 0,
    connectTimeout: CONNECT_MS,
    socketTimeout: SILENT_MS,
    lazyConnect: true,
    noDelay: true,
    // What every server and proxy speaks; nothing here needs RESP3.
    protocol: 2,
    tls,
    // A master that became a replica: connect anew (the sentinels know where).
    reconnectOnError: error => error.message.startsWith('READONLY'),
    retryStrategy: times => Math.min(50 * 2 ** Math.min(times - 1, 10), RETRY_MAX_MS),
  }
  if (address.mode === 'cluster') {
    const options: ClusterOptions = {
      redisOptions: node,
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
      enableTLSForSentinelMode: address.tls,
      sentinelTLS: tls,
      sentinelRetryStrategy: times => Math.min(50 * times, RETRY_MAX_MS),
      failoverDetector: true,
    })
  }
  return new Redis({ ...node, db: address.db, host: address.hosts[0]!.host, port: address.hosts[0]!.port })
}

/** The part of a key that decides its cluster slot: all keys of an organization share it. Braces in the id would end the tag early. */
export function tagOf(org: string): string {
  return '{' + (/[{}%]/.test(org) ? encodeURIComponent(org) : org) + '}'
}
