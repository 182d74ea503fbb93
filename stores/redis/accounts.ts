/**
 * Accounts in Redis. All their keys have one hash tag, and so one slot of a cluster: a change is one script, and a
 * look-up is one script that goes from the digest to the organization. Gateways ask rarely, because they cache.
 *
 *   {sluice:accounts}:org:<id>       hash: `v` version, `s` settings, `k:<key id>` digest and settings of a key
 *   {sluice:accounts}:about:<id>     hash: what the gateway ignores of it, `o` of the organization, `k:<key id>` of a key.
 *                                    It is apart because a release that does not know it takes each other field of
 *                                    the organization's hash for a key
 *   {sluice:accounts}:leaving        sorted set: the ids of organizations, by when they may be removed (Unix ms)
 *   {sluice:accounts}:gone           set: the ids of removed organizations, which are not given again
 *   {sluice:accounts}:gone:<id>      set: the ids of removed keys of an organization
 *   {sluice:accounts}:key:<digest>   the organization's id and the key's id, with a space between
 *   {sluice:accounts}:ids            sorted set of all ids, with equal scores: lists come in the order of ids
 *   {sluice:accounts}:keys           sorted set: `<key id> <organization id>` of each key, with equal scores
 *   {sluice:accounts}:keyed          hash: up to where that set is complete (catchUp)
 *   {sluice:accounts}:used           set: `plan:<name>` and `model:<name>` of what accounts name
 *   {sluice:accounts}:used:<member>  sorted set: the ids of the organizations that name it, with equal scores
 *   {sluice:accounts}:named          hash: up to where those sets are complete (catchUp)
 *   {sluice:accounts}:version        the version of the latest change
 *   {sluice:accounts}:audit          stream: who changed what; `o` organization, `e` JSON of the note
 *   {sluice:accounts}:credits:<id>   hash: the credits of an organization, by their ids, as JSON
 *   {sluice:accounts}:changes        stream: one entry for each of the latest changes; its id is `<version>-0`
 */

import { StoreUnavailable } from '../../core/canon/errors.ts'
import {
  type AccountChange,
  type AccountStore,
  type AccountsSince,
  type AuditBounds,
  type AuditNote,
  type AuditPage,
  type ChangeResult,
  type Credit,
  MOST_CHANGES,
  NAME_KINDS,
  type NameCount,
  type NameKind,
  type NameUsers,
  type OrganizationWithKeys,
  type StoredAccount,
  type StoredKey,
  unknownNote,
} from '../../core/ports/accounts.ts'
import { appendAll } from '../../core/tools/append.ts'
import { type RedisClient, tagOf } from './client.ts'
import { userNames } from './layout.ts'
import { BILLED } from './ledger.ts'
import { script } from './scripts.ts'

const TAG = '{sluice:accounts}:'
export const IDS = `${TAG}ids`
export const VERSION = `${TAG}version`
const CHANGES = `${TAG}changes`
export const AUDIT = `${TAG}audit`
export const KEYS = `${TAG}keys`
export const KEYED = `${TAG}keyed`
const USED = `${TAG}used`
const NAMED = `${TAG}named`
export const LEAVING = `${TAG}leaving`
export const GONE = `${TAG}gone`
export const aboutKey = (id: string) => `${TAG}about:${id}`
export const goneKey = (id: string) => `${TAG}gone:${id}`
export const orgKey = (id: string) => `${TAG}org:${id}`
export const creditsKey = (id: string) => `${TAG}credits:${id}`
export const digestKey = (sha256: string) => `${TAG}key:${sha256}`

const FIND = script('account_find')
const CHANGE = script('account_change')
/** The indexes, each with its key and that of its state. */
const INDEXES = {
  keys: {
    keys: [KEYS, KEYED],
    script: script('index_keys'),
  },
  names: {
    keys: [USED, NAMED],
    script: script('index_names'),
  },
}
/** One call looks at this many organizations, which takes Redis about a millisecond; one beat makes this many calls. */
const INDEXED_TOGETHER = 200
const INDEX_CALLS = 100

const HELD = script('accounts_held')
/** One call asks for at most this many ids, which takes Redis less than a millisecond. */
const HELD_TOGETHER = 500

const COUNT_NAMES = script('names_count')
const NAME_USERS = script('names_users')
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
    const { redis } = this.#client
    const [{ v, s, ...fields }, about, leaves] = await Promise.all([
      this.#client.call(redis.hgetall(orgKey(id))),
      this.#client.call(redis.hgetall(aboutKey(id))),
      this.#client.call(redis.zscore(LEAVING, id)),
    ])
    if (v === undefined) return null
    const keys = Object.entries(fields).map(
      ([field, text]): StoredKey => ({
        id: field.slice(2),
        sha256: text.slice(0, DIGEST),
        settings: text.slice(DIGEST),
        ...(about[field] !== undefined && { about: about[field] }),
      }),
    )
    return {
      ...{ id, version: Number(v), settings: s! },
      ...(about['o'] !== undefined && { about: about['o'] }),
      ...(leaves !== null && { leaves: Number(leaves) }),
      keys: keys.sort((a, b) => (a.id < b.id ? -1 : 1)),
    }
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
    for (const index of ['keys', 'names'] as const) await this.#indexed(index)
  }

  /** @returns whether the index is up to date, which takes at most the calls of one beat */
  async #indexed(index: keyof typeof INDEXES): Promise<boolean> {
    for (let i = 0; i < INDEX_CALLS; i++) if (!(await this.#indexSome(index))) return true
    return false
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
    if (await this.#indexed('names')) return
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

  async credits(id: string): Promise<Credit[]> {
    const found = await this.#client.call(this.#client.redis.hvals(creditsKey(id)))
    const credits = found.map(text => JSON.parse(text) as Credit)
    return credits.sort((a, b) => b.time - a.time || (a.id < b.id ? -1 : 1))
  }

  async credit(id: string, credit: string): Promise<Credit | null> {
    const found = await this.#client.call(this.#client.redis.hget(creditsKey(id), credit))
    return found === null ? null : (JSON.parse(found) as Credit)
  }

  async billed(id: string): Promise<number> {
    return Number((await this.#client.call(this.#client.redis.hget(BILLED, id))) ?? 0)
  }

  change(changes: readonly AccountChange[]): Promise<ChangeResult[]> {
    return Promise.all(changes.map(change => this.#change(change)))
  }

  leaving(now: number, most: number): Promise<string[]> {
    return this.#client.call(this.#client.redis.zrangebyscore(LEAVING, '-inf', now, 'LIMIT', 0, most))
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

  /** Deletes the levels of a removed key's end users. What stays, or is written by a request that runs, expires. */
  async #forgetUsers(id: string, key: string): Promise<void> {
    const { redis } = this.#client
    const { cells, order, all } = userNames(tagOf(id), key)
    await this.#client.call(redis.unlink(cells, order))
    await this.#client.call(redis.srem(all, key))
  }

  async #change(change: AccountChange): Promise<ChangeResult> {
    const { id, expected, settings = '', about = '', leaves, keys, removed = [], remove = false } = change
    const { audit = unknownNote(Date.now()), credit } = change
    const reply = (await this.#client.script(
      CHANGE,
      [
        ...[orgKey(id), IDS, VERSION, CHANGES, AUDIT, KEYS, KEYED, USED, NAMED],
        ...[aboutKey(id), GONE, goneKey(id), LEAVING, creditsKey(id)],
        ...keys.map(({ sha256 }) => digestKey(sha256)),
      ],
      [
        ...[digestKey(''), id, expected, settings, JSON.stringify(audit), about],
        ...[leaves === undefined ? '' : (leaves ?? '-'), remove ? '1' : ''],
        ...[credit?.id ?? '', credit ? JSON.stringify(credit) : ''],
        ...[removed.length, ...removed],
        ...keys.flatMap(key => [key.id, key.settings, key.about ?? '']),
      ],
    )) as [number, number?, Buffer?]
    const [version, index, owner] = reply
    if (version > 0) {
      for (const key of removed) await this.#forgetUsers(id, key).catch(() => {})
      return { version }
    }
    if (version === 0) return { refused: 'changed' }
    if (version === -3) return { refused: 'credited' }
    if (version === -2) return { refused: 'gone', key: keys[index! - 1]?.id ?? '' }
    const [organization, key] = String(owner).split(' ')
    return { refused: 'digest', sha256: keys[index! - 1]!.sha256, organization: organization!, key: key! }
  }
}
