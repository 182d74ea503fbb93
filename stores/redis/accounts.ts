/**
 * Accounts in Redis. All their keys have one hash tag, and so one slot of a cluster: a change is one script, and a
 * look-up is one script that goes from the digest to the organization. Gateways ask rarely, because they cache.
 *
 *   {sluice:accounts}:org:<id>       hash: `v` version, `s` settings, `k:<key id>` digest and settings of a key
 *   {sluice:accounts}:key:<digest>   the organization's id and the key's id, with a space between
 *   {sluice:accounts}:ids            sorted set of all ids, with equal scores: lists come in the order of ids
 *   {sluice:accounts}:keys           sorted set: `<key id> <organization id>` of each key, with equal scores
 *   {sluice:accounts}:keyed          hash: up to where that set is complete (catchUp)
 *   {sluice:accounts}:used           set: `plan:<name>` and `model:<name>` of what accounts name
 *   {sluice:accounts}:used:<member>  sorted set: the ids of the organizations that name it, with equal scores
 *   {sluice:accounts}:named          hash: up to where those sets are complete (catchUp)
 *   {sluice:accounts}:version        the version of the latest change
 *   {sluice:accounts}:audit          stream: who changed what; `o` organization, `e` JSON of the note
 *   {sluice:accounts}:changes        stream: one entry for each of the latest changes; its id is `<version>-0`
 */
import {
  type AccountChange,
  type AccountStore,
  type AccountsSince,
  type AuditBounds,
  type AuditNote,
  type AuditPage,
  type ChangeResult,
  MOST_CHANGES,
  NAME_KINDS,
  type NameCount,
  type NameKind,
  type NameUsers,
  type OrganizationWithKeys,
  type StoredAccount,
  type StoredKey,
  unknownNote,
} from '../../core/accounts.ts'
import { appendAll } from '../../core/append.ts'
import { StoreUnavailable } from '../../core/store.ts'
import { script } from './call.ts'
import type { RedisClient } from './client.ts'

const TAG = '{sluice:accounts}:'
export const IDS = `${TAG}ids`
export const VERSION = `${TAG}version`
const CHANGES = `${TAG}changes`
export const AUDIT = `${TAG}audit`
export const KEYS = `${TAG}keys`
export const KEYED = `${TAG}keyed`
const USED = `${TAG}used`
const NAMED = `${TAG}named`
export const orgKey = (id: string) => `${TAG}org:${id}`
export const digestKey = (sha256: string) => `${TAG}key:${sha256}`

/** KEYS: of the digest. ARGV: what an organization's key begins with. */
const FIND = script(`
local owner = redis.call('GET', KEYS[1])
if not owner then return false end
local org, key = string.match(owner, '^(%S+) (%S+)$')
local found = redis.call('HMGET', ARGV[1] .. org, 'v', 's', 'k:' .. key)
return {org, key, found[1], found[2], found[3]}
`)

/**
 * The names of plans and models in the settings of an organization or of a key, and the sets of who uses a name.
 * `used` is the key of the set of all names.
 */
const NAMES = `
local function collect(text, into, own)
  -- Most settings of keys name nothing, and need no parsing.
  if not own and not string.find(text, '"model', 1, true) then return end
  local ok, value = pcall(cjson.decode, text)
  if not ok or type(value) ~= 'table' then return end
  if own then
    if type(value.plan) == 'string' then into['plan:' .. value.plan] = true end
  elseif value.status == 'revoked' then return end
  if type(value.models) == 'table' then
    for _, name in ipairs(value.models) do if type(name) == 'string' then into['model:' .. name] = true end end
  end
  if type(value.model_limits) == 'table' then
    for name in pairs(value.model_limits) do if type(name) == 'string' then into['model:' .. name] = true end end
  end
end
local function collectAll(organization)
  local all, fields = {}, redis.call('HGETALL', organization)
  for i = 1, #fields, 2 do
    if fields[i] == 's' then collect(fields[i + 1], all, true)
    elseif string.sub(fields[i], 1, 2) == 'k:' then collect(string.sub(fields[i + 1], 65), all) end
  end
  return all
end
local function use(used, name, id)
  redis.call('ZADD', used .. ':' .. name, 0, id)
  redis.call('SADD', used, name)
end
local function disuse(used, name, id)
  redis.call('ZREM', used .. ':' .. name, id)
  if redis.call('EXISTS', used .. ':' .. name) == 0 then redis.call('SREM', used, name) end
end
`

/**
 * KEYS: organization, ids, version, changes, audit, ids of keys, their state, names, their state, then the digests.
 * ARGV: what a digest's key begins with, id, expected version, settings or '', note for the audit, then id and settings
 * of each key. Everything is checked before anything is written.
 *
 * A version is the time in microseconds, or one more than the last. A plain count would give a version a second time
 * after a failover that lost the latest changes, and a gateway that knows the first one would miss the second.
 */
const CHANGE = script(`${NAMES}
local prefix, id, settings = ARGV[1], ARGV[2], ARGV[4]
if tonumber(redis.call('HGET', KEYS[1], 'v') or '0') ~= tonumber(ARGV[3]) then return {0} end
local digests = #KEYS - 9
for i = 1, digests do
  local owner = redis.call('GET', KEYS[9 + i])
  if owner and owner ~= id .. ' ' .. ARGV[4 + 2 * i] then return {-1, i, owner} end
end
local time = redis.call('TIME')
local former = redis.call('GET', KEYS[3]) or '0'
local latest = math.max(tonumber(former) + 1, time[1] * 1000000 + time[2])
local version = string.format('%.0f', latest)
local before, after = {}, {}
collect(redis.call('HGET', KEYS[1], 's') or '', before, true)
redis.call('SET', KEYS[3], version)
redis.call('HSET', KEYS[1], 'v', version)
if settings ~= '' then redis.call('HSET', KEYS[1], 's', settings) end
collect(redis.call('HGET', KEYS[1], 's') or '', after, true)
for i = 1, digests do
  local key, digest = ARGV[4 + 2 * i], string.sub(KEYS[9 + i], #prefix + 1)
  local known = redis.call('HGET', KEYS[1], 'k:' .. key)
  if known and string.sub(known, 1, 64) ~= digest then redis.call('DEL', prefix .. string.sub(known, 1, 64)) end
  if known then collect(string.sub(known, 65), before) end
  collect(ARGV[5 + 2 * i], after)
  redis.call('HSET', KEYS[1], 'k:' .. key, digest .. ARGV[5 + 2 * i])
  redis.call('SET', KEYS[9 + i], id .. ' ' .. key)
  redis.call('ZADD', KEYS[6], 0, key .. ' ' .. id)
end
local all -- Another key may name a model that this change leaves out.
for name in pairs(before) do
  if not after[name] then
    all = all or collectAll(KEYS[1])
    if not all[name] then disuse(KEYS[8], name, id) end
  end
end
for name in pairs(after) do use(KEYS[8], name, id) end
for _, state in ipairs({KEYS[7], KEYS[9]}) do
  if former == '0' or redis.call('HGET', state, 'v') == former then redis.call('HSET', state, 'v', version) end
end
redis.call('ZADD', KEYS[2], 0, id)
redis.call('XADD', KEYS[4], 'MAXLEN', '~', ${10 * MOST_CHANGES}, version .. '-0', 'o', id)
redis.call('XADD', KEYS[5], '*', 'o', id, 'e', ARGV[5])
return {latest}
`)

/**
 * Adds to an index what gateways of a release that does not keep it have changed, at most ARGV[2] organizations.
 * Its state is a hash: the index has all changes up to the version `v`, of those organizations whose ids are at most
 * `at`; without `at`, of all. First it goes through all organizations, then through what has changed.
 * KEYS: the index, the state, ids, changes, version. ARGV: what an organization's key begins with, how many. Returns 1
 * when more is to be done.
 * @param index defines the function `index(id)`; it may lower `most`
 */
const catchUp = (index: string) =>
  script(`
local most = tonumber(ARGV[2])
local latest = redis.call('GET', KEYS[5])
if not latest then return 0 end
local v, at = unpack(redis.call('HMGET', KEYS[2], 'v', 'at'))
if v == latest and not at then return 0 end
${index}
if v and not at then
  local entries = redis.call('XRANGE', KEYS[4], v .. '-0', '+', 'COUNT', most + 1)
  if entries[1] and entries[1][1] == v .. '-0' then
    for i = 2, #entries do index(entries[i][2][2]) end
    redis.call('HSET', KEYS[2], 'v', string.match(entries[#entries][1], '^%d+'))
    return #entries > most and 1 or 0
  end
  v = false -- The stream was cut behind that version.
end
if not v then
  at = ''
  redis.call('HSET', KEYS[2], 'v', latest)
end
local ids = redis.call('ZRANGEBYLEX', KEYS[3], at == '' and '-' or '(' .. at, '+', 'LIMIT', 0, most)
for _, id in ipairs(ids) do index(id) end
if #ids < most then redis.call('HDEL', KEYS[2], 'at') else redis.call('HSET', KEYS[2], 'at', ids[#ids]) end
return 1
`)
/** The indexes, each with its key and that of its state. */
const INDEXES = {
  keys: {
    keys: [KEYS, KEYED],
    script: catchUp(`
local function index(id)
  for _, field in ipairs(redis.call('HKEYS', ARGV[1] .. id)) do
    if string.sub(field, 1, 2) == 'k:' then redis.call('ZADD', KEYS[1], 0, string.sub(field, 3) .. ' ' .. id) end
  end
end`),
  },
  // What an organization named before such a change is not known any more, so it leaves all sets that it is not to be in.
  names: {
    keys: [USED, NAMED],
    script: catchUp(`${NAMES}
local known = {}
for _, name in ipairs(redis.call('SMEMBERS', KEYS[1])) do known[#known + 1] = name end
most = math.max(1, math.min(most, math.floor(20000 / (#known + 1))))
local function index(id)
  local all = collectAll(ARGV[1] .. id)
  for _, name in ipairs(known) do if not all[name] then disuse(KEYS[1], name, id) end end
  for name in pairs(all) do use(KEYS[1], name, id) end
end`),
  },
}
/** One call looks at this many organizations, which takes Redis about a millisecond; one beat makes so many calls. */
const INDEXED_TOGETHER = 200
const INDEX_CALLS = 100

/** KEYS: ids. ARGV: ids of organizations; the reply has those that are there. */
const HELD = script(`
local held = {}
for _, id in ipairs(ARGV) do if redis.call('ZSCORE', KEYS[1], id) then held[#held + 1] = id end end
return held
`)
/** One call asks for at most this many ids, which takes Redis less than a millisecond. */
const HELD_TOGETHER = 500

/** KEYS: the set of names. Returns each with the number of its organizations. */
const COUNT_NAMES = script(`
local counts = {}
for _, name in ipairs(redis.call('SMEMBERS', KEYS[1])) do
  counts[#counts + 1] = name
  counts[#counts + 1] = redis.call('ZCARD', KEYS[1] .. ':' .. name)
end
return counts
`)
/** KEYS: the set of names. ARGV: how many ids, then names. Returns the number of organizations and the first ids of each. */
const NAME_USERS = script(`
local users = {}
for i = 2, #ARGV do
  local key = KEYS[1] .. ':' .. ARGV[i]
  users[i - 1] = {redis.call('ZCARD', key), redis.call('ZRANGE', key, 0, tonumber(ARGV[1]) - 1)}
end
return users
`)
/** One call asks for at most this many names. */
const NAMES_TOGETHER = 200

/** A key's field of the organization's hash: 64 hex digits, then the settings. */
const DIGEST = 64

/** One call looks through at most this many entries of the audit. */
const AUDIT_SCAN = 2000

export class RedisAccounts implements AccountStore {
  readonly #client: RedisClient

  constructor(client: RedisClient) {
    this.#client = client
  }

  async find(sha256: string): Promise<StoredAccount | null> {
    const reply = (await this.#client.script(FIND, [digestKey(sha256)], [orgKey('')])) as (Buffer | null)[] | null
    if (reply === null || reply.includes(null)) return null
    const [id, key, version, settings, field] = reply.map(String)
    return {
      organization: { id: id!, version: Number(version), settings: settings! },
      key: { id: key!, sha256, settings: field!.slice(DIGEST) },
    }
  }

  async read(id: string): Promise<OrganizationWithKeys | null> {
    const { v, s, ...fields } = await this.#client.call(this.#client.redis.hgetall(orgKey(id)))
    if (v === undefined) return null
    const keys = Object.entries(fields).map(
      ([field, text]): StoredKey => ({
        id: field.slice(2),
        sha256: text.slice(0, DIGEST),
        settings: text.slice(DIGEST),
      }),
    )
    return { id, version: Number(v), settings: s!, keys: keys.sort((a, b) => (a.id < b.id ? -1 : 1)) }
  }

  async page(after: string, most: number): Promise<OrganizationWithKeys[]> {
    const { redis } = this.#client
    const from = after === '' ? '-' : `(${after}`
    const ids = await this.#client.call(redis.zrangebylex(IDS, from, '+', 'LIMIT', 0, most))
    const found = await Promise.all(ids.map(id => this.read(id)))
    return found.filter(organization => organization !== null)
  }

  async withKey(key: string, after: string, most: number): Promise<OrganizationWithKeys[]> {
    await this.#indexSome('keys')
    const from = after === '' ? `[${key} ` : `(${key} ${after}`
    // '!' follows the space that ends the key's id.
    const { redis } = this.#client
    const members = await this.#client.call(redis.zrangebylex(KEYS, from, `(${key}!`, 'LIMIT', 0, most))
    const found = await Promise.all(members.map(member => this.read(member.slice(key.length + 1))))
    return found.filter(organization => organization !== null)
  }

  /** Brings the indexes up to date, as far as one beat goes. */
  async index(): Promise<void> {
    for (const index of ['keys', 'names'] as const)
      for (let i = 0; i < INDEX_CALLS; i++) if (!(await this.#indexSome(index))) break
  }

  /** Brings the index of names up to date, however long that takes. */
  async indexNames(): Promise<void> {
    while (await this.#indexSome('names'));
  }

  /** @returns whether more is to be done */
  async #indexSome(index: keyof typeof INDEXES): Promise<boolean> {
    const { keys, script } = INDEXES[index]
    return (await this.#client.script(script, [...keys, IDS, CHANGES, VERSION], [orgKey(''), INDEXED_TOGETHER])) === 1
  }

  /** @throws StoreUnavailable while more is to be done than fits between two looks of a gateway */
  async #namesIndexed(): Promise<void> {
    for (let i = 0; i < INDEX_CALLS; i++) if (!(await this.#indexSome('names'))) return
    throw new StoreUnavailable('the index of the plans and models of accounts is being built; ask again in a minute')
  }

  async names(): Promise<NameCount[]> {
    await this.#namesIndexed()
    const reply = (await this.#client.script(COUNT_NAMES, [USED], [])) as (Buffer | number)[]
    const counts: NameCount[] = []
    for (let i = 0; i < reply.length; i += 2) {
      const text = String(reply[i])
      const kind = NAME_KINDS.find(kind => text.startsWith(`${kind}:`))!
      counts.push({ kind, name: text.slice(kind.length + 1), organizations: reply[i + 1] as number })
    }
    return counts
  }

  async users(kind: NameKind, names: readonly string[], most: number): Promise<NameUsers[]> {
    await this.#namesIndexed()
    const users: NameUsers[] = []
    for (let i = 0; i < names.length; i += NAMES_TOGETHER) {
      const some = names.slice(i, i + NAMES_TOGETHER)
      const members = some.map(name => `${kind}:${name}`)
      const reply = (await this.#client.script(NAME_USERS, [USED], [most, ...members])) as [number, Buffer[]][]
      for (const [k, [organizations, ids]] of reply.entries())
        if (organizations > 0) users.push({ kind, name: some[k]!, organizations, ids: ids.map(String) })
    }
    return users
  }

  count(): Promise<number> {
    return this.#client.call(this.#client.redis.zcard(IDS))
  }

  async held(ids: readonly string[]): Promise<string[]> {
    const held: string[] = []
    for (let i = 0; i < ids.length; i += HELD_TOGETHER) {
      const reply = (await this.#client.script(HELD, [IDS], ids.slice(i, i + HELD_TOGETHER))) as Buffer[]
      appendAll(held, reply.map(String))
    }
    return held
  }

  change(changes: readonly AccountChange[]): Promise<ChangeResult[]> {
    return Promise.all(changes.map(change => this.#change(change)))
  }

  async since(version: number): Promise<AccountsSince> {
    const { redis } = this.#client
    // The entry of the known version comes along: when it is missing, the stream was cut or lost since.
    const entries = await this.#client.call(redis.xrange(CHANGES, `${version}-0`, '+', 'COUNT', MOST_CHANGES + 2))
    const numbers = entries.map(([id]) => Number.parseInt(id, 10))
    if (version === 0 && entries.length === 0) return { version: 0, ids: [] }
    const known = version === 0 || numbers[0] === version
    if (!known || entries.length > MOST_CHANGES + 1)
      return { version: Number((await this.#client.call(redis.get(VERSION))) ?? 0), ids: null }
    const changed = version === 0 ? entries : entries.slice(1)
    return { version: numbers.at(-1)!, ids: changed.map(([, fields]) => fields[1]!) }
  }

  async note(audit: AuditNote): Promise<void> {
    await this.#client.call(this.#client.redis.xadd(AUDIT, '*', 'o', '', 'e', JSON.stringify(audit)))
  }

  async audit(filter: { organization?: string; before: string; most: number }): Promise<AuditPage> {
    const { organization, before, most } = filter
    const end = before === '' ? '+' : `(${before}`
    // The stream has no index by organization: a page looks through a bounded number of entries.
    const count = organization === undefined ? most : Math.max(most, AUDIT_SCAN)
    const found = await this.#client.call(this.#client.redis.xrevrange(AUDIT, end, '-', 'COUNT', count))
    const entries: AuditPage['entries'] = []
    for (const [id, [, of, , entry]] of found) {
      if (organization !== undefined && of !== organization) continue
      entries.push({ id, organization: of!, ...(JSON.parse(entry!) as AuditNote) })
      if (entries.length === most) return { entries, next: id }
    }
    return { entries, next: found.length < count ? null : found.at(-1)![0] }
  }

  /** Deletes what is above the bounds. @param now Unix ms */
  async trim({ keep, most }: AuditBounds, now: number): Promise<void> {
    const { redis } = this.#client
    await this.#client.call(redis.xtrim(AUDIT, 'MAXLEN', most))
    await this.#client.call(redis.xtrim(AUDIT, 'MINID', Math.max(0, Math.floor(now - keep))))
  }

  async #change({
    id,
    expected,
    settings,
    keys,
    audit = unknownNote(Date.now()),
  }: AccountChange): Promise<ChangeResult> {
    const reply = (await this.#client.script(
      CHANGE,
      [
        ...[orgKey(id), IDS, VERSION, CHANGES, AUDIT, KEYS, KEYED, USED, NAMED],
        ...keys.map(({ sha256 }) => digestKey(sha256)),
      ],
      [
        digestKey(''),
        id,
        expected,
        settings ?? '',
        JSON.stringify(audit),
        ...keys.flatMap(key => [key.id, key.settings]),
      ],
    )) as [number, number?, Buffer?]
    const [version, index, owner] = reply
    if (version > 0) return { version }
    if (version === 0) return { refused: 'changed' }
    const [organization, key] = String(owner).split(' ')
    return { refused: 'digest', sha256: keys[index! - 1]!.sha256, organization: organization!, key: key! }
  }
}
