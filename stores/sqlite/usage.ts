/**
 * The sums of the ledger in SQLite. A trigger adds each new row in the transaction that books it. So a crash leaves both
 * or none, a row that is offered again counts once, and a release that does not know of sums keeps them right, too.
 *
 * `summed` has one row: sums are complete for rows from that time on. After the migration that is what came last, and
 * the sweep goes back from there in slices (tables.ts). The trigger leaves out a row from before that time; the slice
 * that reaches it counts it.
 */
import type { DatabaseSync } from 'node:sqlite'
import { setImmediate } from 'node:timers/promises'
import { TOTALS, type UsageFilter, type UsageSum } from '../../core/ports/store.ts'
import { type Group, TEXTS_OF } from '../../core/ports/usage-groups.ts'
import { HOUR_MS, monthIndex, NOT_TOLD, TEXTS } from '../usage.ts'

const DAY_MS = 24 * HOUR_MS

/** The primary key of `usage`: the hour, counted from 1970, and the texts of the rows. */
export const USAGE_KEY = `hour, ${TEXTS.join(', ')}`
export const USAGE_COLUMNS = `${USAGE_KEY}, ${TOTALS.join(', ')}`

const addOf = (counts: readonly string[]): string =>
  `ON CONFLICT DO UPDATE SET ${counts.map(name => `${name} = ${name} + excluded.${name}`).join(', ')}`
/** What a row counts, in a trigger. */
const ofRow = (name: string): string =>
  name === 'requests' ? '1' : name === 'costed' ? 'NEW.provider_cost IS NOT NULL' : `coalesce(NEW.${name}, 0)`

/** The table with its trigger, with a key of the hour and these texts, and with these counts. */
function tables(texts: readonly string[], counts: readonly string[]) {
  const key = `hour, ${texts.join(', ')}`
  return {
    table: `
CREATE TABLE usage (
  hour INTEGER NOT NULL,
  ${texts.map(name => `${name} TEXT NOT NULL DEFAULT ''`).join(',\n  ')},
  ${counts.map(name => `${name} INTEGER NOT NULL DEFAULT 0`).join(',\n  ')},
  PRIMARY KEY (${key})
) STRICT, WITHOUT ROWID;
`,
    trigger: `
CREATE TRIGGER ledger_summed AFTER INSERT ON ledger WHEN NEW.time >= (SELECT since FROM summed) BEGIN
  INSERT INTO usage (${key}, ${counts.join(', ')})
  VALUES (NEW.time / ${HOUR_MS}, ${[...texts.map(name => `NEW.${name}`), ...counts.map(ofRow)].join(', ')})
  ${addOf(counts)};
END;
`,
  }
}

/** What the first release with sums had; like every step of the schema it never changes. */
const FIRST = {
  texts: ['organization', 'key_id', 'model', 'provider', 'surface', 'outcome'],
  counts: ['requests', 'input', 'cached', 'cache_write', 'output', 'reasoning', 'searches', 'cost'],
}
const first = tables(FIRST.texts, FIRST.counts)
export const USAGE_TABLES = `
${first.table}
CREATE TABLE summed (since INTEGER NOT NULL) STRICT;
INSERT INTO summed SELECT coalesce(max(time) + 1, 0) FROM ledger;
${first.trigger}`

const TAG_TEXTS = ['organization', 'tag', 'value', 'key_id', 'model'] as const
export const TAGGED_KEY = `hour, ${TAG_TEXTS.join(', ')}`
export const TAGGED_COLUMNS = `${TAGGED_KEY}, ${TOTALS.join(', ')}`

const taggedTrigger = (counts: readonly string[]): string => `
CREATE TRIGGER ledger_tagged AFTER INSERT ON ledger WHEN NEW.tags <> '' BEGIN
  INSERT INTO tagged (${TAGGED_KEY}, ${counts.join(', ')})
  SELECT NEW.time / ${HOUR_MS}, NEW.organization, t.key, t.value, NEW.key_id, NEW.model,
    ${counts.map(ofRow).join(', ')}
  FROM json_each(NEW.tags) AS t WHERE true ${addOf(counts)};
END;
`

/** Tags of rows, and the sums of each value of a tag, which only rows with tags have. */
export const TAG_TABLES = `
ALTER TABLE ledger ADD COLUMN tags TEXT NOT NULL DEFAULT '';
CREATE TABLE tagged (
  hour INTEGER NOT NULL,
  ${TAG_TEXTS.map(name => `${name} TEXT NOT NULL`).join(',\n  ')},
  ${FIRST.counts.map(name => `${name} INTEGER NOT NULL`).join(',\n  ')},
  PRIMARY KEY (${TAGGED_KEY})
) STRICT, WITHOUT ROWID;
${taggedTrigger(FIRST.counts)}`

const REPORTED = [
  'provider_input',
  'provider_cached',
  'provider_cache_write',
  'provider_cache_write_1h',
  'provider_output',
  'provider_reasoning',
  'provider_cost',
  'counted_input',
  'counted_output',
]
const second = tables([...FIRST.texts, 'provider_model'], [...FIRST.counts, ...REPORTED, 'costed'])
const before = ['hour', ...FIRST.texts, ...FIRST.counts].join(', ')
/** The provider's side: its columns of the ledger, and the sums with them. An earlier release leaves both empty. */
export const PROVIDER_SIDE = `
ALTER TABLE ledger ADD COLUMN provider_model TEXT NOT NULL DEFAULT '';
ALTER TABLE ledger ADD COLUMN service_tier TEXT NOT NULL DEFAULT '';
ALTER TABLE ledger ADD COLUMN price_used TEXT NOT NULL DEFAULT '';
ALTER TABLE ledger ADD COLUMN code TEXT NOT NULL DEFAULT '';
${['rounds', ...REPORTED, 'price_input', 'price_output', 'output_reserved']
  .map(name => `ALTER TABLE ledger ADD COLUMN ${name} INTEGER;`)
  .join('\n')}
DROP TRIGGER ledger_summed;
ALTER TABLE usage RENAME TO usage_before;
${second.table}
INSERT INTO usage (${before}) SELECT ${before} FROM usage_before;
DROP TABLE usage_before;
${second.trigger}
DROP TRIGGER ledger_tagged;
${[...REPORTED, 'costed'].map(name => `ALTER TABLE tagged ADD COLUMN ${name} INTEGER NOT NULL DEFAULT 0;`).join('\n')}
${taggedTrigger([...FIRST.counts, ...REPORTED, 'costed'])}`

const DAY_TEXTS = [...FIRST.texts.slice(1), 'provider_model']
const DAY_KEY = `organization, day, ${DAY_TEXTS.join(', ')}`
const COUNTS = [...FIRST.counts, ...REPORTED, 'costed']
/** A sum that an integer cannot hold stays at the largest: at a fault, no sweep would remove anything any more. */
const addToDay = `ON CONFLICT DO UPDATE SET ${COUNTS.map(name => `${name} = CAST(${name} + excluded.${name} AS INTEGER)`).join(', ')}`

/**
 * Sums of the same by day, one organization after the other: a year of one is read in a tenth of the time. The sweep
 * rolls up hours that are over, once all rows have sums. `rolled` has one row: sums of an hour and an organization up to
 * this place are in the days. Rows that come late for that are added by a trigger, whoever books them. Days go with
 * their hours: retention takes whole months.
 */
export const DAY_TABLES = `
CREATE TABLE usage_days (
  organization TEXT NOT NULL,
  day INTEGER NOT NULL,
  ${DAY_TEXTS.map(name => `${name} TEXT NOT NULL DEFAULT ''`).join(',\n  ')},
  ${COUNTS.map(name => `${name} INTEGER NOT NULL DEFAULT 0`).join(',\n  ')},
  PRIMARY KEY (${DAY_KEY})
) STRICT, WITHOUT ROWID;
CREATE TABLE rolled (hour INTEGER NOT NULL, organization TEXT NOT NULL) STRICT;
INSERT INTO rolled VALUES (0, '');
CREATE TRIGGER ledger_late AFTER INSERT ON ledger
WHEN (NEW.time / ${HOUR_MS}, NEW.organization) <= (SELECT hour, organization FROM rolled) BEGIN
  INSERT INTO usage_days (${DAY_KEY}, ${COUNTS.join(', ')})
  VALUES (NEW.organization, NEW.time / ${DAY_MS},
    ${[...DAY_TEXTS.map(name => `NEW.${name}`), ...COUNTS.map(ofRow)].join(', ')})
  ${addToDay};
END;
CREATE TRIGGER usage_removed AFTER DELETE ON usage
WHEN (OLD.hour, OLD.organization) <= (SELECT hour, organization FROM rolled) BEGIN
  DELETE FROM usage_days WHERE organization = OLD.organization AND day = OLD.hour / 24
    AND ${DAY_TEXTS.map(name => `${name} = OLD.${name}`).join(' AND ')};
END;`

/** Where sums are rolled up next to, of at most so many: the last of them, before an hour. */
export const ROLL_TO = `SELECT hour, organization FROM usage WHERE (hour, organization) > (?, ?) AND hour < ?
ORDER BY hour, organization LIMIT 1 OFFSET ?`
/** Rolls up what is behind the first place and not behind the second. */
export const ROLL_SLICE = `
INSERT INTO usage_days (day, ${[...TEXTS, ...COUNTS].join(', ')})
SELECT hour / 24, ${[...TEXTS, ...COUNTS].join(', ')}
FROM usage WHERE (hour, organization) > (?, ?) AND (hour, organization) <= (?, ?) ${addToDay}`

const sums = TOTALS.map(name =>
  name === 'requests' ? 'count(*)' : name === 'costed' ? 'count(provider_cost)' : `coalesce(sum(${name}), 0)`,
)
/** Sums the rows from the first time until before the second. */
export const SUM_SLICE = `
INSERT INTO usage (${USAGE_COLUMNS})
SELECT time / ${HOUR_MS} AS hour, ${TEXTS.join(', ')}, ${sums.join(', ')}
FROM ledger WHERE time >= ? AND time < ? GROUP BY ${USAGE_KEY} ${addOf(TOTALS)}`

/** Pages of the sums of one tag of whole hours: from `first` until before `end`, counted from 1970. */
export async function* scanTagged(
  db: DatabaseSync,
  { org, key, model, tag }: UsageFilter,
  first: number,
  end: number,
): AsyncGenerator<UsageSum[]> {
  const only = [
    ['organization', org],
    ['key_id', key],
    ['model', model],
  ].filter(([, value]) => value !== undefined) as [string, string][]
  const where = only.map(([name]) => ` AND ${name} = ?`).join('')
  const next = db.prepare(
    `SELECT * FROM tagged WHERE (${TAGGED_KEY}) > (?, ?, ?, ?, ?, ?) AND hour < ? AND tag = ?${where}
     ORDER BY ${TAGGED_KEY} LIMIT ${PAGE}`,
  )
  let after: (string | number)[] = [first, ...TAG_TEXTS.map(() => '')]
  for (;;) {
    const page = next.all(...after, end, tag!, ...only.map(([, value]) => value))
    if (page.length) yield page.map(toTagged)
    if (page.length < PAGE) return
    const last = page.at(-1) as Record<string, string | number>
    after = [last['hour']!, ...TAG_TEXTS.map(name => last[name]!)]
    await setImmediate()
  }
}

function toTagged({ tag: _, value, ...columns }: Record<string, unknown>): UsageSum {
  return { ...toSum(columns), ...NOT_TOLD, tag: value as string }
}

/** At most this many sums are read before other work of the event loop runs. */
const PAGE = 2000
/** The same for hours of one organization; days are read by the month. */
const HOURS = 168

/** From what time on sums are complete, Unix milliseconds; infinite for a database that has none yet. */
export function summedSince(db: DatabaseSync): number {
  // No gateway of this release has opened the database: it has no sums, or others.
  if (!db.prepare("SELECT 1 FROM pragma_table_info('usage') WHERE name = 'costed'").get())
    return Number.POSITIVE_INFINITY
  return db.prepare('SELECT since FROM summed').get()!['since'] as number
}

/** Pages of the sums of whole hours: from `first` until before `end`, counted from 1970. */
export async function* scanHours(
  db: DatabaseSync,
  { org, key, model, by }: UsageFilter,
  first: number,
  end: number,
): AsyncGenerator<UsageSum[]> {
  const only = (key === undefined ? '' : ' AND key_id = ?') + (model === undefined ? '' : ' AND model = ?')
  const values = [key, model].filter(value => value !== undefined) as string[]
  if (org === undefined) {
    // Each page begins after the last sum of the page before, so that a long read keeps no snapshot open.
    const next = db.prepare(
      `SELECT * FROM usage WHERE (${USAGE_KEY}) > (?${', ?'.repeat(TEXTS.length)}) AND hour < ?${only}
       ORDER BY ${USAGE_KEY} LIMIT ${PAGE}`,
    )
    let after: (string | number)[] = [first, ...TEXTS.map(() => '')]
    for (;;) {
      const page = next.all(...after, end, ...values)
      if (page.length) yield page.map(toSum)
      if (page.length < PAGE) return
      const last = page.at(-1) as Record<string, string | number>
      after = [last['hour']!, ...TEXTS.map(name => last[name]!)]
      await setImmediate()
    }
  }
  const texts = told(by)
  // Whole days that are rolled up, and the hours at both ends.
  const from = Math.ceil(first / 24)
  const until = texts === null ? 0 : Math.floor(Math.min(end, rolledHour(db)) / 24)
  const of = { org, only, values }
  if (texts === null || until <= from) return yield* scanOne(db, of, first, end, texts)
  yield* scanOne(db, of, first, from * 24, texts)
  // A page ends with its month at the latest, so days are told apart only where somebody asks for them.
  const apart = by!.includes('day') ? ['day', ...texts] : texts
  const sums = db.prepare(`
    SELECT min(day) * 24 AS hour, ${joined(texts)} FROM usage_days
    WHERE organization = ? AND day >= ? AND day < ?${only} GROUP BY ${['organization', ...apart].join(', ')}`)
  const least = db.prepare('SELECT min(day) AS day FROM usage_days WHERE organization = ?').get(org)
  for (let day = Math.max(from, (least?.['day'] as number | null) ?? until); day < until; ) {
    const next = Math.min(until, endOfMonth(day))
    const page = sums.all(org, day, next, ...values)
    if (page.length) yield page.map(toSum)
    await setImmediate()
    day = next
  }
  yield* scanOne(db, of, until * 24, end, texts)
}

/** The same of one organization, by the hours. @param texts as of `told` */
async function* scanOne(
  db: DatabaseSync,
  { org, only, values }: { org: string; only: string; values: string[] },
  first: number,
  end: number,
  texts: readonly string[] | null,
): AsyncGenerator<UsageSum[]> {
  // The primary key begins with the hour, so one organization is looked up in each.
  const edge = (which: 'min' | 'max') =>
    db.prepare(`SELECT ${which}(hour) AS hour FROM usage`).get()!['hour'] as number | null
  const begin = Math.max(first, edge('min') ?? end)
  const past = Math.min(end, (edge('max') ?? 0) + 1)
  const sums = db.prepare(`
    WITH RECURSIVE asked (hour) AS (VALUES (?) UNION ALL SELECT hour + 1 FROM asked WHERE hour + 1 < ?)
    SELECT ${texts ? `min(usage.hour) AS hour, ${joined(texts)}` : 'usage.*'}
    FROM asked CROSS JOIN usage ON usage.hour = asked.hour AND organization = ?${only}
    ${texts ? `GROUP BY ${['usage.hour / 24', 'organization', ...texts].join(', ')}` : ''}`)
  for (let hour = begin; hour < past; ) {
    const next = Math.min(past, (Math.floor(hour / HOURS) + 1) * HOURS)
    const page = sums.all(hour, next, org, ...values)
    if (page.length) yield page.map(toSum)
    await setImmediate()
    hour = next
  }
}

/**
 * What tells sums of one organization apart beside the day, where they are joined in the database: in C, which takes a
 * tenth of the time of a reader that adds them. Null where each hour is wanted.
 */
function told(groups: readonly Group[] | undefined): string[] | null {
  if (!groups || groups.includes('hour')) return null
  const texts = new Set<string>(groups.flatMap(group => TEXTS_OF[group]))
  return DAY_TEXTS.filter(name => texts.has(name))
}

/** Columns of joined sums, but for the hour. @param texts that are told */
function joined(texts: readonly string[]): string {
  const names = DAY_TEXTS.map(name => (texts.includes(name) ? name : `'' AS ${name}`))
  // total() is a number of JavaScript: it is exact as far as one is, and does not fail beyond.
  return ['organization', ...names, ...TOTALS.map(name => `total(${name}) AS ${name}`)].join(', ')
}

/** The first day, counted from 1970, of the month after that of a day. */
function endOfMonth(day: number): number {
  return Date.UTC(1970, monthIndex(day * DAY_MS) + 1) / DAY_MS
}

/** The hour, counted from 1970, before which everything is rolled up; 0 for a database that has no days yet. */
function rolledHour(db: DatabaseSync): number {
  if (!db.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'rolled'").get()) return 0
  return db.prepare('SELECT hour FROM rolled').get()!['hour'] as number
}

export function toSum(columns: Record<string, unknown>): UsageSum {
  const { hour, cache_write, ...same } = columns
  return { ...same, time: (hour as number) * HOUR_MS, cacheWrite: cache_write } as UsageSum
}
