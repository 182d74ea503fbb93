/** A Redis as one end of a move: the operator's, or the server of `store: local`. */
import path from 'node:path'
import { Cluster, type Redis } from 'ioredis'
import { StoreUnavailable } from '../../core/canon/errors.ts'
import { sharedPrefix, userOfCell } from '../../core/canon/limits.ts'
import type { AuditNote } from '../../core/ports/accounts.ts'
import { type LedgerRow, type Notice, RECENT_ROWS } from '../../core/ports/store.ts'
import { appendAll } from '../../core/tools/append.ts'
import { LEDGER_COLUMNS } from '../columns.ts'
import { type MoveMark, markOf, SET_ASIDE } from '../format.ts'
import { folderOf, isLocal, LocalInUse, LocalServer, type LocalServerOptions } from '../local.ts'
import { identityOf, ONCE_KEEP_MS } from '../notices.ts'
import {
  AUDIT,
  aboutKey,
  creditsKey,
  digestKey,
  GONE,
  goneKey,
  IDS,
  KEYS as KEY_IDS,
  KEYED,
  LEAVING,
  orgKey,
  RedisAccounts,
  VERSION,
} from '../redis/accounts.ts'
import { RedisClient, tagOf } from '../redis/client.ts'
import { drainOf, holdsDrained, readDrained } from '../redis/drained.ts'
import { FORMAT, HELD, LEASE_PREFIX, STEPS } from '../redis/format.ts'
import { indexOf } from '../redis/idempotency.ts'
import { renewIdentity } from '../redis/identity.ts'
import { userNames, usersKeep } from '../redis/layout.ts'
import {
  BILLED,
  INDEXED,
  LAST,
  MONTHS,
  ROW_INDEX,
  SHIPPED,
  STREAM,
  SUMMED,
  scanStream,
  sentKey,
  TAGGED,
  toColumns,
} from '../redis/ledger.ts'
import { NOTICES, onceKey } from '../redis/notices.ts'
import { RECORDS } from '../redis/records.ts'
import { script } from '../redis/scripts.ts'
import { fieldOf, scanAllTagged, scanUsage } from '../redis/usage.ts'
import { countsOf, HOUR_MS, monthIndex } from '../usage.ts'
import { cellsOf, groupsOf } from './cells.ts'
import type { Balance, Carried, Cells, Drop, End, KeptRecord, KeptReply, Kind, TaggedSum } from './end.ts'

const SCRIPTS = {
  append: script('append'),
  aside: script('aside'),
  inUse: script('in_use'),
  reclaim: script('reclaim'),
  finish: script('idem_finish'),
  put: script('record_put'),
  report: script('shares_report'),
}
/** Timeout of one call in ms: no client waits for it. */
const TIMEOUT_MS = 30_000
/** A batch of small things, and one of things that may have megabytes each. */
const ROWS = 500
const LARGE = 20
/** One call gives back at most this many reservations. */
const RECLAIM_GROUP = 200
/** Nothing is evicted while a store is filled: the gateway that uses it keeps to its own bounds. */
const NO_BOUND = Number.MAX_SAFE_INTEGER
const SECRET = 'sluice:secret'
/** All keys of a gateway, as MATCH of SCAN takes them. */
const PATTERNS = ['sluice:*', '{sluice:*']
/** What a gateway that was only started leaves. */
const LEFT =
  /^(\{sluice:leases\}:.*|sluice:(orgs:.*|secret|probe)|\{sluice:ledger\}:(id|shipped|shipper:.*)|\{sluice:shares\}:.*)$/

/**
 * Opens a Redis; for `local:FOLDER` its server is started, which ends with `close`.
 * @param beside a gateway may have started the server: then that one is used
 * @param tell says to the operator what becomes of that server
 * @throws StoreUnavailable
 */
export async function openRedisEnd(
  url: string,
  maxMemory: number | null,
  tell: (text: string) => void,
  beside = false,
): Promise<RedisEnd> {
  const server = isLocal(url) ? await localServer({ url, maxMemory, tell, beside: true }, beside) : undefined
  const quiet = () => {}
  const log = { debug: quiet, info: quiet, warn: quiet, error: quiet }
  let client: RedisClient | undefined
  try {
    client = new RedisClient({ url, timeout: TIMEOUT_MS, log })
    await client.connect()
    const version = await client.call(client.redis.hget(FORMAT, 'version'))
    if (Number(version) > markOf(STEPS).version)
      throw new StoreUnavailable(`a later release has written the data in ${client.name}; move it with that release`)
    return new RedisEnd(url, client, server)
  } catch (error) {
    client?.disconnect()
    await server?.stop()
    throw error
  }
}

/** @returns undefined where a gateway's server is used */
async function localServer(options: LocalServerOptions, beside: boolean): Promise<LocalServer | undefined> {
  try {
    return await LocalServer.start(options)
  } catch (error) {
    if (beside && error instanceof LocalInUse) return undefined
    throw error
  }
}

export class RedisEnd implements End {
  readonly name: string
  readonly #client: RedisClient
  readonly #server: LocalServer | undefined
  /** Where rows are that have left the stream; null: nowhere. */
  readonly #drained: string | null
  /** The latest id that was given in each stream. */
  readonly #ids = new Map<string, { ms: number; number: number }>()
  #version = 0

  constructor(url: string, client: RedisClient, server: LocalServer | undefined) {
    this.name = isLocal(url) ? `local:${path.resolve(folderOf(url))}` : client.name
    this.#client = client
    this.#server = server
    this.#drained = drainOf(url)
  }

  async mark(): Promise<MoveMark | null> {
    const found = await this.#call(redis => redis.hget(FORMAT, 'move'))
    return found === null ? null : (JSON.parse(found) as MoveMark)
  }

  async setMark(mark: MoveMark | null): Promise<void> {
    if (mark === null) {
      await this.#client.script(SCRIPTS.inUse, [FORMAT], [])
      return
    }
    const args = [LEASE_PREFIX, SET_ASIDE, JSON.stringify(mark)]
    const living = (await this.#client.script(SCRIPTS.aside, [FORMAT, HELD], args)) as Buffer[]
    if (living.length)
      throw new StoreUnavailable(
        `gateways use ${this.name}: ${living.join(', ')}; stop them first (one that was killed counts for 9 s)`,
      )
  }

  async content(): Promise<string | null> {
    if (this.#drained !== null && holdsDrained(this.#drained)) return `${this.#drained} has ledger rows`
    for (const pattern of PATTERNS)
      for await (const names of this.#scan(pattern)) {
        const found = names.find(name => !LEFT.test(name))
        if (found !== undefined) return `${this.name} has the key ${found}`
      }
    return null
  }

  async clear(): Promise<void> {
    for (const pattern of PATTERNS)
      for await (const names of this.#scan(pattern))
        await this.#each(
          names.filter(name => name !== FORMAT),
          ROWS,
          (redis, name) => redis.unlink(name),
        )
  }

  async secret(): Promise<Uint8Array | null> {
    const found = await this.#call(redis => redis.get(SECRET))
    return found === null ? null : Buffer.from(found, 'base64')
  }

  async begin(secret: Uint8Array | null): Promise<void> {
    await renewIdentity(this.#client)
    if (secret) await this.#call(redis => redis.set(SECRET, Buffer.from(secret).toString('base64')))
  }

  async state(): Promise<string> {
    const last = (stream: string) => this.#call(redis => redis.xrevrange(stream, '+', '-', 'COUNT', 1))
    const [version, audit, ledger] = await Promise.all([
      this.#call(redis => redis.get(VERSION)),
      last(AUDIT),
      last(STREAM),
    ])
    return [version, audit[0]?.[0], ledger[0]?.[0]].join()
  }

  async finish(): Promise<void> {
    if (this.#version > 0) {
      await this.#call(redis => redis.set(VERSION, this.#version))
      // The set of the ids of keys is complete up to this version.
      await this.#call(redis => redis.hset(KEYED, 'v', this.#version))
      await new RedisAccounts(this.#client).indexNames()
    }
    const last = this.#ids.get(STREAM)
    // The sums came along: no row is counted again.
    if (last) await this.#call(redis => redis.set(SUMMED, `${last.ms}-${last.number}`))
  }

  async *read<K extends Kind>(kind: K, now: number, drop: Drop): AsyncGenerator<Carried[K][]> {
    const batches = {
      organizations: () => this.#organizations(),
      gone: () => this.#gone(),
      audit: () => this.#audit(),
      cells: () => this.#cells(now, drop),
      sums: () => this.#sums(),
      tagged: () => scanAllTagged(this.#client),
      ledger: () => this.#ledger(),
      balances: () => this.#balances(),
      notices: () => this.#notices(),
      idempotency: () => this.#replies(now, drop),
      records: () => this.#records(now),
    }[kind]() as AsyncIterable<Carried[K][]>
    for await (const batch of batches) if (batch.length) yield batch
  }

  async write<K extends Kind>(kind: K, items: readonly Carried[K][]): Promise<Carried[K][]> {
    const write = {
      organizations: this.#writeOrganizations,
      gone: this.#writeGone,
      audit: this.#writeAudit,
      cells: this.#writeCells,
      sums: this.#writeSums,
      tagged: this.#writeTagged,
      ledger: this.#writeLedger,
      balances: this.#writeBalances,
      notices: this.#writeNotices,
      idempotency: this.#writeReplies,
      records: this.#writeRecords,
    }[kind] as unknown as (items: readonly Carried[K][]) => Promise<Carried[K][] | undefined>
    return (await write(items)) ?? [...items]
  }

  async close(): Promise<void> {
    this.#client.disconnect()
    await this.#server?.stop()
  }

  // ---- reading ------------------------------------------------------------------------------------------------------

  async *#organizations(): AsyncGenerator<Carried['organizations'][]> {
    const accounts = new RedisAccounts(this.#client)
    for (let after = ''; ; ) {
      const page = await accounts.page(after, LARGE)
      yield page
      if (page.length < LARGE) return
      after = page.at(-1)!.id
    }
  }

  async *#gone(): AsyncGenerator<Carried['gone'][]> {
    for await (const page of this.#members(GONE)) yield page.map(organization => ({ organization, key: '' }))
    const prefix = goneKey('')
    for await (const names of this.#scan(`${prefix}*`))
      for (const name of names)
        for await (const page of this.#members(name))
          yield page.map(key => ({ organization: name.slice(prefix.length), key }))
  }

  /** Pages of the members of a set, each once unless the set is changed meanwhile. */
  async *#members(set: string): AsyncGenerator<string[]> {
    const seen = new Set<string>()
    let cursor = '0'
    do {
      const [next, members] = await this.#call(redis => redis.sscan(set, cursor, 'COUNT', ROWS))
      cursor = next
      const fresh = members.filter(member => !seen.has(member))
      for (const member of fresh) seen.add(member)
      if (fresh.length) yield fresh
    } while (cursor !== '0')
  }

  async *#audit(): AsyncGenerator<Carried['audit'][]> {
    for await (const page of this.#entries(AUDIT)) yield page.map(([organization, entry]) => ({ organization, entry }))
  }

  async *#notices(): AsyncGenerator<Notice[]> {
    for await (const page of this.#entries(NOTICES)) yield page.map(([, notice]) => JSON.parse(notice) as Notice)
  }

  /** Pages of the two values of each entry of a stream. */
  async *#entries(stream: string): AsyncGenerator<[string, string][]> {
    for (let from = '-'; ; ) {
      const page = await this.#call(redis => redis.xrange(stream, from, '+', 'COUNT', ROWS))
      yield page.map(([, [, first, , second]]) => [first!, second!])
      if (page.length < ROWS) return
      from = `(${page.at(-1)![0]}`
    }
  }

  async *#cells(now: number, drop: Drop): AsyncGenerator<Cells[]> {
    yield* this.#levels('limits', now, drop)
    yield* this.#levels('users:*', now, drop)
  }

  /** @param kind of hashes: those of organizations, or those of the end users of keys */
  async *#levels(kind: 'limits' | 'users:*', now: number, drop: Drop): AsyncGenerator<Cells[]> {
    for await (const names of this.#scan(`sluice:{*}:${kind}`)) {
      const found = await this.#each(names, LARGE, async (redis, name) => {
        const organization = orgOf(/^sluice:(\{.*\}):(limits|users:[^:]+)$/s.exec(name)?.[1])
        if (organization === undefined) return null
        let fields = await redis.hgetallBuffer(name)
        // Reservations of a gateway that has died long ago: levels and spend are without them.
        const marks = Object.keys(fields).filter(field => field.startsWith('@') && fields[field]!.length > 0)
        for (let i = 0; i < marks.length; i += RECLAIM_GROUP) {
          // The part of a user belongs to a reservation that is counted already.
          if (kind === 'limits')
            drop('reservations of requests that a killed gateway left', Math.min(RECLAIM_GROUP, marks.length - i))
          await this.#client.script(SCRIPTS.reclaim, [name], marks.slice(i, i + RECLAIM_GROUP))
        }
        if (marks.length) fields = await redis.hgetallBuffer(name)
        return cellsOf(organization, fields, now, drop)
      })
      yield found.filter(cells => cells !== null && (cells.spend.length > 0 || cells.levels.length > 0)) as Cells[]
    }
  }

  async *#sums(): AsyncGenerator<Carried['sums'][]> {
    // Rows of a release without sums are counted first, as a gateway does it bit by bit.
    const keys = [STREAM, sentKey(''), SUMMED, MONTHS, SHIPPED, LAST, BILLED, TAGGED, INDEXED, ROW_INDEX]
    while ((await this.#client.script(SCRIPTS.append, keys, ['', '0', '[]', '', '', '', '', ''])) === 1);
    yield* scanUsage(this.#client, this.#drained, {})
  }

  /** The oldest rows first. A local store's are in files; nothing changes meanwhile, so the stream can be read twice. */
  async *#ledger(): AsyncGenerator<LedgerRow[]> {
    if (this.#drained !== null && holdsDrained(this.#drained)) {
      const inStream = new Set<string>()
      for await (const page of scanStream(this.#client, {})) for (const { request_id } of page) inStream.add(request_id)
      yield* readDrained(this.#drained, {}, inStream)
    }
    yield* scanStream(this.#client, {})
  }

  async *#balances(): AsyncGenerator<Balance[]> {
    const organizations = new Set<string>()
    const prefix = creditsKey('')
    for await (const names of this.#scan(`${prefix}*`))
      for (const name of names) organizations.add(name.slice(prefix.length))
    for (let cursor = '0'; ; ) {
      const [next, found] = await this.#call(redis => redis.hscan(BILLED, cursor, 'COUNT', ROWS))
      for (let i = 0; i < found.length; i += 2) organizations.add(found[i]!)
      if ((cursor = next) === '0') break
    }
    const accounts = new RedisAccounts(this.#client)
    const all = [...organizations]
    for (let i = 0; i < all.length; i += LARGE)
      yield await Promise.all(
        all.slice(i, i + LARGE).map(async organization => {
          const [billed, credits] = await Promise.all([accounts.billed(organization), accounts.credits(organization)])
          return { organization, billed, credits }
        }),
      )
  }

  async *#replies(now: number, drop: Drop): AsyncGenerator<KeptReply[]> {
    for await (const names of this.#scan('sluice:{*}:idem:*')) {
      const found: KeptReply[] = []
      await this.#each(names, LARGE, async (redis, name) => {
        const [, tag, key] = /^sluice:(\{.*?\}):idem:(.*)$/s.exec(name) ?? []
        const organization = orgOf(tag)
        if (organization === undefined) return
        const [fields, left] = await Promise.all([redis.hgetallBuffer(name), redis.pttl(name)])
        const { fingerprint, request, state, status, headers, body, whole, claimed, asked } = fields
        if (!fingerprint || !state || left <= 0) return
        // A use that was about to end was executed, and must not be executed again. Any other ran when its gateway died.
        if (String(state) === 'running' && !claimed) return drop('idempotency keys whose first use was cut off')
        const reply =
          String(state) === 'done'
            ? {
                status: Number(status),
                headers: String(headers),
                body: body!,
                whole: String(whole) === '1',
                asked: asked?.toString() ?? null,
              }
            : null
        const kept = { organization, key: key!, fingerprint: String(fingerprint), requestId: String(request) }
        found.push({ ...kept, reply, expires: Date.now() + left })
      })
      yield found.filter(({ expires }) => expires > now)
    }
  }

  async *#records(now: number): AsyncGenerator<KeptRecord[]> {
    for await (const names of this.#scan('sluice:{*}:*:*')) {
      const found: KeptRecord[] = []
      await this.#each(names, LARGE, async (redis, name) => {
        const [, tag, kind, id] = /^sluice:(\{.*?\}):(response|reply|continuation):(.*)$/s.exec(name) ?? []
        const organization = orgOf(tag)
        if (organization === undefined) return
        const [value, left] = await Promise.all([redis.getBuffer(name), redis.pttl(name)])
        if (value === null || left <= 0) return
        found.push({ organization, kind: kind!, id: id!, value, expires: Date.now() + left })
      })
      yield found.filter(({ expires }) => expires > now)
    }
  }

  // ---- writing ------------------------------------------------------------------------------------------------------

  readonly #writeOrganizations = async (items: readonly Carried['organizations'][]): Promise<void> => {
    await this.#each(items, LARGE, async (redis, { id, version, settings, about, leaves, keys }) => {
      const fields = keys.flatMap(key => [`k:${key.id}`, key.sha256 + key.settings])
      await redis.hset(orgKey(id), 'v', version, 's', settings, ...fields)
      const ignored = keys.flatMap(key => (key.about === undefined ? [] : [`k:${key.id}`, key.about]))
      if (about !== undefined) ignored.push('o', about)
      if (ignored.length) await redis.hset(aboutKey(id), ...ignored)
      if (leaves !== undefined) await redis.zadd(LEAVING, leaves, id)
      await Promise.all(keys.map(key => redis.set(digestKey(key.sha256), `${id} ${key.id}`)))
      if (keys.length) await redis.zadd(KEY_IDS, ...keys.flatMap(key => [0, `${key.id} ${id}`]))
      await redis.zadd(IDS, 0, id)
    })
    this.#version = items.reduce((latest, { version }) => Math.max(latest, version), this.#version)
  }

  readonly #writeGone = async (items: readonly Carried['gone'][]): Promise<void> => {
    await this.#each(items, LARGE, (redis, { organization, key }) =>
      key === '' ? redis.sadd(GONE, organization) : redis.sadd(goneKey(organization), key),
    )
  }

  readonly #writeAudit = async (items: readonly Carried['audit'][]): Promise<void> => {
    const dated = items.map(item => ({ ...item, id: this.#idAt(AUDIT, (JSON.parse(item.entry) as AuditNote).time) }))
    await this.#each(dated, ROWS, (redis, { id, organization, entry }) =>
      redis.xadd(AUDIT, id, 'o', organization, 'e', entry),
    )
  }

  readonly #writeCells = async (items: readonly Cells[]): Promise<void> => {
    await this.#each(items, LARGE, async (redis, cells) => {
      const tag = tagOf(cells.organization)
      const groups = groupsOf(cells)
      const key = userOfCell([...cells.levels, ...cells.spend][0]!.cell)?.key
      if (key === undefined) return redis.hset(`sluice:${tag}:limits`, ...[...groups].flat())
      const names = userNames(tag, key)
      const shared = sharedPrefix(key).slice(0, -1)
      const users = [...groups].filter(([group]) => group !== shared)
      // The time of a group is that of its last admission, or of what was settled behind it.
      users.sort(([, a], [, b]) => a.readDoubleLE(0) - b.readDoubleLE(0))
      await redis.hset(names.cells, ...[...groups].flat(), '#', users.length)
      if (users.length)
        await redis.zadd(names.order, ...users.flatMap(([group], i) => [i + 1, group.slice(shared.length + 1)]))
      await redis.sadd(names.all, key)
      const keep = usersKeep([...cells.levels, ...cells.spend].map(({ cell: id }) => ({ id })))
      return Promise.all(Object.values(names).map(name => redis.pexpire(name, keep)))
    })
  }

  readonly #writeSums = async (items: readonly Carried['sums'][]): Promise<void> => {
    await this.#each(items, ROWS, async (redis, sum) => {
      await writeSum(redis, MONTHS, sum, fieldOf(sum))
    })
  }

  readonly #writeTagged = async (items: readonly TaggedSum[]): Promise<void> => {
    await this.#each(items, ROWS, (redis, sum) =>
      writeSum(redis, TAGGED, sum, [sum.time / HOUR_MS, sum.tag, sum.value, sum.key_id, sum.model].join('\n')),
    )
  }

  readonly #writeLedger = async (items: readonly LedgerRow[]): Promise<void> => {
    const dated = items.map(row => ({ row, id: this.#idAt(STREAM, row.time + row.duration_ms) }))
    const latest = new Map<string, string[]>()
    await this.#each(dated, ROWS, (redis, { row, id }) => {
      const list = latest.get(row.organization)
      if (list) list.push(id)
      else latest.set(row.organization, [id])
      const fields = toColumns(row).flatMap((text, i) => (text === '' ? [] : [LEDGER_COLUMNS[i]!, text]))
      return redis.xadd(STREAM, id, ...fields)
    })
    await this.#each([...latest], ROWS, async (redis, [organization, ids]) => {
      await redis.lpush(LAST + organization, ...ids.slice(-RECENT_ROWS))
      await redis.ltrim(LAST + organization, 0, RECENT_ROWS - 1)
    })
  }

  readonly #writeBalances = async (items: readonly Balance[]): Promise<void> => {
    await this.#each(items, LARGE, async (redis, { organization, billed, credits }) => {
      await redis.hset(BILLED, organization, billed)
      for (const credit of credits) await redis.hset(creditsKey(organization), credit.id, JSON.stringify(credit))
    })
  }

  readonly #writeNotices = async (items: readonly Notice[]): Promise<void> => {
    const dated = items.map(notice => ({ notice, id: this.#idAt(NOTICES, notice.time) }))
    await this.#each(dated, ROWS, async (redis, { notice, id }) => {
      const once = onceKey(notice)
      await redis.sadd(once, identityOf(notice))
      await redis.pexpire(once, ONCE_KEEP_MS)
      return redis.xadd(NOTICES, id, 'o', notice.organization, 'n', JSON.stringify(notice))
    })
  }

  readonly #writeReplies = async (items: readonly KeptReply[]): Promise<KeptReply[]> => {
    const fresh: KeptReply[] = []
    await this.#each(items, LARGE, async (_, kept) => {
      const { organization, key, fingerprint, requestId, reply, expires } = kept
      const ttl = Math.floor(expires - Date.now())
      if (ttl <= 0) return
      const index = indexOf(organization)
      const args = [fingerprint, requestId, ttl, NO_BOUND, `${index[0]}:`, key]
      const rest = reply ? [reply.status, reply.headers, Buffer.from(reply.body), reply.whole ? '1' : '0'] : []
      if (reply && reply.asked !== null) rest.push(reply.asked)
      const keys = [`${index[0]}:${key}`, ...index]
      await this.#report(
        'idempotency',
        organization,
        await this.#client.script(SCRIPTS.finish, keys, [...args, ...rest]),
      )
      fresh.push(kept)
    })
    return fresh
  }

  readonly #writeRecords = async (items: readonly KeptRecord[]): Promise<KeptRecord[]> => {
    const fresh: KeptRecord[] = []
    await this.#each(items, LARGE, async (_, record) => {
      const { organization, kind, id, value, expires } = record
      const ttl = Math.floor(expires - Date.now())
      if (ttl <= 0) return
      const of = `sluice:${tagOf(organization)}:`
      const keys = [RECORDS.name, ...RECORDS.kinds, kind].map(name => of + name)
      const args = [id, Buffer.from(value), ttl, NO_BOUND]
      await this.#report('records', organization, await this.#client.script(SCRIPTS.put, keys, args))
      fresh.push(record)
    })
    return fresh
  }

  /** Reports what an organization has now (shares.ts). */
  async #report(kind: 'records' | 'idempotency', organization: string, answer: unknown): Promise<void> {
    const [bytes, , ends] = answer as [number?, number?, number?]
    if (bytes === undefined) return
    const key = `{sluice:shares}:${kind}`
    await this.#client.script(
      SCRIPTS.report,
      [key, `${key}:due`, `${key}:bytes`],
      [NO_BOUND, organization, bytes, ends!],
    )
  }

  // ---- calls --------------------------------------------------------------------------------------------------------

  /** The id of an entry that came at `time`: later than the last, and not after now. Retention goes by it. */
  #idAt(stream: string, time: number): string {
    const last = this.#ids.get(stream) ?? { ms: 0, number: 0 }
    const ms = Math.max(last.ms, Math.min(Math.floor(time), Date.now()), 1)
    const next = { ms, number: ms === last.ms ? last.number + 1 : 0 }
    this.#ids.set(stream, next)
    return `${next.ms}-${next.number}`
  }

  #call<T>(run: (redis: Redis | Cluster) => Promise<T>): Promise<T> {
    return this.#client.call(run(this.#client.redis))
  }

  /** Runs a call for each, this many at once. */
  async #each<T, R>(
    items: readonly T[],
    together: number,
    run: (redis: Redis | Cluster, item: T) => Promise<R>,
  ): Promise<R[]> {
    const results: R[] = []
    for (let i = 0; i < items.length; i += together) {
      const some = items.slice(i, i + together).map(item => this.#call(redis => run(redis, item)))
      appendAll(results, await Promise.all(some))
    }
    return results
  }

  /** Pages of the names of keys. SCAN may give a name twice. */
  async *#scan(pattern: string): AsyncGenerator<string[]> {
    const { redis } = this.#client
    for (const node of redis instanceof Cluster ? redis.nodes('master') : [redis]) {
      let cursor = '0'
      do {
        const [next, names] = await this.#client.call(node.scan(cursor, 'MATCH', pattern, 'COUNT', 1000))
        cursor = next
        if (names.length) yield names
      } while (cursor !== '0')
    }
  }
}

async function writeSum(
  redis: Redis | Cluster,
  base: string,
  sum: Carried['sums'] | TaggedSum,
  field: string,
): Promise<void> {
  const number = monthIndex(sum.time)
  const month = `${base}:${new Date(Date.UTC(1970, number, 1)).toISOString().slice(0, 7)}`
  await Promise.all([
    redis.hset(`${month}:${sum.organization}`, field, countsOf(sum).join(' ')),
    redis.sadd(month, sum.organization),
    redis.zadd(base, number, month),
  ])
}

/** The organization of a hash tag (`tagOf`). */
function orgOf(tag: string | undefined): string | undefined {
  const inner = tag?.slice(1, -1)
  return inner?.includes('%') ? decodeURIComponent(inner) : inner
}
