/**
 * The ledger's stream as what is shipped. Redis gives ascending ids as it appends, so their order is the order of
 * commits.
 */
import { randomBytes } from 'node:crypto'
import { type Lag, type Page, PositionLost, type ShipSource, shipRow } from '../ship/ship.ts'
import { RedisClient } from './client.ts'
import { checkLayout } from './format.ts'
import { fromFields, SHIPPED, STREAM, SUMMED } from './ledger.ts'
import { script } from './scripts.ts'

const LEAD_SCRIPT = script('lead')
/** The store's identity. It is lost with the stream. */
const ID = `{${STREAM}}:id`
/** The key of the lease of the process that follows the ledger for a target. */
const shipperKey = (target: string) => `{${STREAM}}:shipper:${target}`
/** A process that ships no more is followed by another one after this many ms. */
const LEASE_MS = 30_000
/** Timeout of one call in ms: no client waits for it. */
const TIMEOUT_MS = 10_000
/** A lag is counted in pages of this many rows, up to LAG_PAGES of them. */
const LAG_PAGE = 1000
const LAG_PAGES = 10

/** @throws StoreUnavailable */
export async function openRedisSource(url: string, holder: string): Promise<ShipSource> {
  const quiet = () => {}
  const client = new RedisClient({
    url,
    timeout: TIMEOUT_MS,
    log: { debug: quiet, info: quiet, warn: quiet, error: quiet },
  })
  try {
    await client.connect()
    await checkLayout(client)
    const get = () => client.call(client.redis.get(ID))
    // A Redis that is full refuses even a SET that would change nothing.
    const known = await get()
    if (known === null) await client.call(client.redis.set(ID, randomBytes(16).toString('hex'), 'NX'))
    return new RedisSource(client, holder, known ?? (await get())!)
  } catch (error) {
    client.disconnect()
    throw error
  }
}

const requestOf = (fields: readonly string[]): string => fields[fields.indexOf('request_id') + 1]!

class RedisSource implements ShipSource {
  readonly id: string
  readonly #client: RedisClient
  readonly #holder: string
  /** The targets of the leases that this process may hold. */
  readonly #leases = new Set<string>()

  constructor(client: RedisClient, holder: string, id: string) {
    this.id = id
    this.#client = client
    this.#holder = holder
  }

  async page(after: string | null, most: number): Promise<Page> {
    const entries = await this.#entries(after === null ? '-' : idOf(after), after === null ? most : most + 1)
    if (after !== null) {
      const [first] = entries
      if (first?.[0] === idOf(after) && requestOf(first[1]) === after.slice(after.indexOf(' ') + 1)) entries.shift()
      // Retention removes entries from the beginning. An entry before one that is missing shows that another thing
      // removed it, such as a failover, and then ids below it may have been given again.
      else if (first?.[0] === idOf(after) || (await this.#entries('-', 1, `(${idOf(after)}`)).length > 0)
        throw new PositionLost(`the stream does not have the entry '${after}'`)
      else entries.splice(most)
    }
    const last = entries.at(-1)
    return {
      rows: entries.map(([, fields]) => shipRow(fromFields(fields))),
      position: last ? `${last[0]} ${requestOf(last[1])}` : after,
    }
  }

  async note(target: string, position: string | null): Promise<void> {
    const { redis } = this.#client
    await this.#client.call(redis.hset(SHIPPED, target, position ?? '0-0'))
  }

  async trim(position: string, tail: number): Promise<void> {
    const { redis } = this.#client
    const [length, summed] = await Promise.all([
      this.#client.call(redis.xlen(STREAM)),
      this.#client.call(redis.get(SUMMED)),
    ])
    // Rows that no sum has yet are counted from the stream.
    if (length <= tail || summed === null) return
    const until = isBefore(summed, idOf(position)) ? summed : idOf(position)
    await this.#client.call(redis.xtrim(STREAM, 'MINID', '~', until, 'LIMIT', length - tail))
  }

  async lag(target: string): Promise<Lag> {
    const noted = await this.#client.call(this.#client.redis.hget(SHIPPED, target))
    let from = noted === null ? '-' : `(${idOf(noted)}`
    let rows = 0
    let oldest: number | null = null
    for (let i = 0; i < LAG_PAGES; i++) {
      const page = await this.#entries(from, LAG_PAGE)
      if (i === 0 && page[0]) oldest = fromFields(page[0][1]).time
      rows += page.length
      if (page.length < LAG_PAGE) break
      from = `(${page.at(-1)![0]}`
    }
    return { rows, oldest }
  }

  async lead(target: string): Promise<boolean> {
    this.#leases.add(target)
    return (await this.#client.script(LEAD_SCRIPT, [shipperKey(target)], [this.#holder, LEASE_MS])) === 1
  }

  async close(): Promise<void> {
    for (const target of this.#leases)
      await this.#client.script(LEAD_SCRIPT, [shipperKey(target)], [this.#holder, 0]).catch(() => {})
    this.#client.disconnect()
  }

  #entries(from: string, most: number, to = '+'): Promise<[string, string[]][]> {
    return this.#client.call(this.#client.redis.xrange(STREAM, from, to, 'COUNT', most))
  }
}

/** Whether a stream id is before another one. */
function isBefore(a: string, b: string): boolean {
  const [ms, number] = a.split('-').map(Number) as [number, number]
  const [otherMs, otherNumber] = b.split('-').map(Number) as [number, number]
  return ms < otherMs || (ms === otherMs && number < otherNumber)
}

const idOf = (position: string): string => position.split(' ', 1)[0]!
