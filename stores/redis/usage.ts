/**
 * The sums of the ledger in Redis. The script that appends a row to the stream counts it (lua/append.lua), so all
 * keys are in the slot of the stream.
 *
 *   {sluice:ledger}:summed              id of the last entry of the stream that is counted
 *   {sluice:ledger}:usage               sorted set: the keys of the months that have sums, by their number
 *   {sluice:ledger}:usage:2026-11       set: the organizations that have sums in this UTC month
 *   {sluice:ledger}:usage:2026-11:ORG   hash. Field: hour since 1970 and the TEXTS but the organization, with line breaks
 *                                       between; value: TOTALS, with spaces between
 *
 * A field of a release before has fewer texts, and its value fewer counts: what is missing is '' and 0. Such a release
 * adds to its own fields alone, and reads of the others what it knows.
 *
 *   {sluice:ledger}:tagged…             the same for the values of tags, which only rows with tags have. Field: hour, tag,
 *                                       value, key and model
 *
 * With `ledger.keep` a month is dropped when all its rows are older.
 */
import { type LedgerRow, TOTALS, type UsageFilter, type UsageSum } from '../../core/ports/store.ts'
import { memberOf } from '../columns.ts'
import type { TaggedSum } from '../move/end.ts'
import { divide, HOUR_MS, monthIndex, sumsOf, TEXTS, textsOf } from '../usage.ts'
import type { RedisClient } from './client.ts'
import { readDrained } from './drained.ts'
import { MONTHS, STREAM, SUMMED, scanRows, scanStream, TAGGED } from './ledger.ts'

/** One HSCAN or SSCAN reads about this many members, and this many hashes are read at once. */
const PAGE = 500
const TOGETHER = 50
/**
 * The id of an entry is when it was appended, by the clock of Redis. A row is looked for from this long before its hour;
 * what is not found there is looked for in the whole stream.
 */
const SKEW_MS = 60_000

/**
 * Pages of sums of the matching rows, in any order.
 * @param drained where rows are that have left the stream; null: nowhere
 */
export async function* scanUsage(
  client: RedisClient,
  drained: string | null,
  filter: UsageFilter,
  read?: (rows: number) => void,
): AsyncGenerator<UsageSum[]> {
  if (!(await isCounted(client))) {
    for await (const page of scanRows(client, drained, filter, read)) yield sumsOf(page, filter)
    return
  }
  const { first, end, rest } = divide(filter, 0)
  // Where a range begins or ends within an hour, the sum says how many rows of that hour have to be looked at.
  const rowsOf = new Map(rest.map(({ since }) => [Math.floor(since / HOUR_MS), 0]))
  for await (const page of scanSums(client, filter)) {
    read?.(page.length)
    for (const { time, requests } of page) {
      const rows = rowsOf.get(time / HOUR_MS)
      if (rows !== undefined) rowsOf.set(time / HOUR_MS, rows + requests)
    }
    if (filter.tag !== undefined) continue
    const whole = page.filter(({ time }) => time >= first * HOUR_MS && time < end * HOUR_MS)
    if (whole.length) yield whole
  }
  // The rows of an hour are counted by all sums, and its values of a tag by those of the tag.
  if (filter.tag !== undefined)
    for await (const page of scanSums(client, filter, TAGGED)) {
      read?.(page.length)
      const whole = page.filter(({ time }) => time >= first * HOUR_MS && time < end * HOUR_MS)
      if (whole.length) yield whole
    }
  for (const range of rest) {
    const hour = Math.floor(range.since / HOUR_MS)
    const inHour = { ...filter, since: hour * HOUR_MS, until: (hour + 1) * HOUR_MS }
    for await (const page of scanSome(client, drained, inHour, rowsOf.get(hour)!, read)) {
      const rows = page.filter(({ time }) => time >= range.since && time < range.until)
      const sums = sumsOf(rows, filter)
      if (sums.length) yield sums
    }
  }
}

/** Whether every entry of the stream, as it is now, is counted. */
async function isCounted(client: RedisClient): Promise<boolean> {
  const { redis } = client
  // In this order: what is appended and counted between the two does no harm.
  const [last, summed] = await Promise.all([
    client.call(redis.xrevrange(STREAM, '+', '-', 'COUNT', 1)),
    client.call(redis.get(SUMMED)),
  ])
  if (last.length === 0) return true
  if (summed === null) return false
  const [ms, number] = partsOf(summed)
  const [lastMs, lastNumber] = partsOf(last[0]![0])
  return ms > lastMs || (ms === lastMs && number >= lastNumber)
}

const partsOf = (id: string) => id.split('-').map(Number) as [ms: number, number: number]

/** Pages of `count` matching rows of one hour: reading ends when that many are found. */
async function* scanSome(
  client: RedisClient,
  drained: string | null,
  filter: UsageFilter & { since: number },
  count: number,
  read?: (rows: number) => void,
): AsyncGenerator<LedgerRow[]> {
  let left = count
  const passed = new Set<string>()
  const begin = Math.max(0, filter.since - SKEW_MS)
  for (const [from, to] of [
    [`${begin}-0`, '+'],
    ['-', `(${begin}-0`],
  ]) {
    if (left <= 0) return
    for await (const page of scanStream(client, filter, read, from, to)) {
      yield page
      for (const { request_id } of page) passed.add(request_id)
      left -= page.length
      if (left <= 0) return
    }
  }
  if (drained === null || left <= 0) return
  for await (const page of readDrained(drained, filter, passed, read)) {
    yield page
    left -= page.length
    if (left <= 0) return
  }
}

/** Pages of the matching sums of all hours that the range touches. */
async function* scanSums(
  client: RedisClient,
  { org, key, model, tag, since = 0, until = Number.POSITIVE_INFINITY }: UsageFilter,
  base: typeof MONTHS | typeof TAGGED = MONTHS,
): AsyncGenerator<UsageSum[]> {
  const { redis } = client
  const begin = Math.floor(since / HOUR_MS) * HOUR_MS
  const to = Number.isFinite(until) ? monthIndex(until) : '+inf'
  const sumsIn = async (month: string, organization: string): Promise<UsageSum[]> => {
    // A scan may bring a field twice.
    const sums = new Map<string, UsageSum>()
    let cursor = '0'
    do {
      const reply = await client.call(redis.hscan(`${month}:${organization}`, cursor, 'COUNT', PAGE))
      cursor = reply[0]
      for (let i = 0; i < reply[1].length; i += 2) {
        const sum = (base === TAGGED ? toTagged : toSum)(organization, reply[1][i]!, reply[1][i + 1]!)
        if (base === TAGGED && reply[1][i]!.split('\n', 2)[1] !== tag) continue
        if (key !== undefined && sum.key_id !== key) continue
        if (model !== undefined && sum.model !== model) continue
        if (sum.time >= begin && sum.time < until) sums.set(reply[1][i]!, sum)
      }
    } while (cursor !== '0')
    return [...sums.values()]
  }
  for (const month of await client.call(redis.zrangebyscore(base, monthIndex(since), to))) {
    const organizations = org === undefined ? await members(client, month) : [org]
    for (let i = 0; i < organizations.length; i += TOGETHER) {
      const some = organizations.slice(i, i + TOGETHER)
      const page = (await Promise.all(some.map(one => sumsIn(month, one)))).flat()
      if (page.length) yield page
    }
  }
}

/** Pages of all sums of the values of tags, with the name of the tag. */
export async function* scanAllTagged(client: RedisClient): AsyncGenerator<TaggedSum[]> {
  for (const month of await client.call(client.redis.zrangebyscore(TAGGED, '-inf', '+inf')))
    for (const organization of await members(client, month)) {
      const fields = await client.call(client.redis.hgetall(`${month}:${organization}`))
      yield Object.entries(fields).map(([field, value]) => {
        const {
          provider: _,
          surface: __,
          outcome: ___,
          provider_model: ____,
          tag,
          ...sum
        } = toTagged(organization, field, value)
        return { ...sum, tag: field.split('\n', 2)[1]!, value: tag! } as TaggedSum
      })
    }
}

async function members(client: RedisClient, set: string): Promise<string[]> {
  const all = new Set<string>()
  let cursor = '0'
  do {
    const reply = await client.call(client.redis.sscan(set, cursor, 'COUNT', PAGE))
    cursor = reply[0]
    for (const member of reply[1]) all.add(member)
  } while (cursor !== '0')
  return [...all]
}

/** The field of a sum in the hash of its month and organization. */
export function fieldOf(sum: UsageSum): string {
  return [sum.time / HOUR_MS, ...textsOf(sum).slice(1)].join('\n')
}

function toTagged(organization: string, field: string, value: string): UsageSum {
  const [hour, , tag, key_id, model] = field.split('\n')
  return { ...toSum(organization, [hour, key_id, model].join('\n'), value), tag }
}

function toSum(organization: string, field: string, value: string): UsageSum {
  const [hour, ...texts] = field.split('\n')
  const counts = value.split(' ')
  const sum: Record<string, unknown> = { time: Number(hour) * HOUR_MS, organization }
  for (const [i, name] of TEXTS.slice(1).entries()) sum[name] = texts[i] ?? ''
  for (const [i, name] of TOTALS.entries()) sum[memberOf(name)] = Number(counts[i] ?? 0)
  return sum as unknown as UsageSum
}
