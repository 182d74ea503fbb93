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
import type { UsageFilter, UsageSum } from '../../core/ports/store.ts'
import { FIGURES, HOUR_MS } from '../usage.ts'

const TEXTS = ['organization', 'key_id', 'model', 'provider', 'surface', 'outcome'] as const
/** The primary key of `usage`: the hour, counted from 1970, and the texts of the rows. */
export const USAGE_KEY = `hour, ${TEXTS.join(', ')}`
const COUNTS = ['requests', ...FIGURES] as const
const ADD = `ON CONFLICT DO UPDATE SET ${COUNTS.map(name => `${name} = ${name} + excluded.${name}`).join(', ')}`

/** Sums the rows from the first time until before the second. */
export const SUM_SLICE = `
INSERT INTO usage (${USAGE_KEY}, ${COUNTS.join(', ')})
SELECT time / ${HOUR_MS} AS hour, ${TEXTS.join(', ')}, count(*), ${FIGURES.map(name => `sum(${name})`).join(', ')}
FROM ledger WHERE time >= ? AND time < ? GROUP BY ${USAGE_KEY} ${ADD}`

export const USAGE_TABLES = `
CREATE TABLE usage (
  hour INTEGER NOT NULL,
  ${TEXTS.map(name => `${name} TEXT NOT NULL`).join(',\n  ')},
  ${COUNTS.map(name => `${name} INTEGER NOT NULL`).join(',\n  ')},
  PRIMARY KEY (${USAGE_KEY})
) STRICT, WITHOUT ROWID;
CREATE TABLE summed (since INTEGER NOT NULL) STRICT;
INSERT INTO summed SELECT coalesce(max(time) + 1, 0) FROM ledger;
CREATE TRIGGER ledger_summed AFTER INSERT ON ledger WHEN NEW.time >= (SELECT since FROM summed) BEGIN
  INSERT INTO usage (${USAGE_KEY}, ${COUNTS.join(', ')})
  VALUES (NEW.time / ${HOUR_MS}, ${[...TEXTS.map(name => `NEW.${name}`), 1, ...FIGURES.map(name => `NEW.${name}`)].join(', ')})
  ${ADD};
END;
`

const TAG_TEXTS = ['organization', 'tag', 'value', 'key_id', 'model'] as const
export const TAGGED_KEY = `hour, ${TAG_TEXTS.join(', ')}`

/** Tags of rows, and the sums of each value of a tag, which only rows with tags have. */
export const TAG_TABLES = `
ALTER TABLE ledger ADD COLUMN tags TEXT NOT NULL DEFAULT '';
CREATE TABLE tagged (
  hour INTEGER NOT NULL,
  ${TAG_TEXTS.map(name => `${name} TEXT NOT NULL`).join(',\n  ')},
  ${COUNTS.map(name => `${name} INTEGER NOT NULL`).join(',\n  ')},
  PRIMARY KEY (${TAGGED_KEY})
) STRICT, WITHOUT ROWID;
CREATE TRIGGER ledger_tagged AFTER INSERT ON ledger WHEN NEW.tags <> '' BEGIN
  INSERT INTO tagged (${TAGGED_KEY}, ${COUNTS.join(', ')})
  SELECT NEW.time / ${HOUR_MS}, NEW.organization, t.key, t.value, NEW.key_id, NEW.model, 1,
    ${FIGURES.map(name => `NEW.${name}`).join(', ')}
  FROM json_each(NEW.tags) AS t WHERE true ${ADD};
END;
`

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
  return { ...toSum(columns), provider: '', surface: '', outcome: '', tag: value as string }
}

/** At most this many sums are read before other work of the event loop runs. */
const PAGE = 2000

/** From what time on sums are complete, Unix milliseconds; infinite for a database that has none yet. */
export function summedSince(db: DatabaseSync): number {
  // No gateway of this release has opened the database.
  if (!db.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'summed'").get()) return Number.POSITIVE_INFINITY
  return db.prepare('SELECT since FROM summed').get()!['since'] as number
}

/** Pages of the sums of whole hours: from `first` until before `end`, counted from 1970. */
export async function* scanHours(
  db: DatabaseSync,
  { org, key, model }: UsageFilter,
  first: number,
  end: number,
): AsyncGenerator<UsageSum[]> {
  const only = (key === undefined ? '' : ' AND key_id = ?') + (model === undefined ? '' : ' AND model = ?')
  const values = [key, model].filter(value => value !== undefined)
  if (org === undefined) {
    // Each page begins after the last sum of the page before, so that a long read keeps no snapshot open.
    const next = db.prepare(
      `SELECT * FROM usage WHERE (${USAGE_KEY}) > (?, ?, ?, ?, ?, ?, ?) AND hour < ?${only}
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
  // The primary key begins with the hour, so one organization is looked up in each.
  const sums = db.prepare(`SELECT * FROM usage WHERE hour = ? AND organization = ?${only}`)
  const edge = (which: 'min' | 'max') =>
    db.prepare(`SELECT ${which}(hour) AS hour FROM usage`).get()!['hour'] as number | null
  const begin = Math.max(first, edge('min') ?? end)
  const past = Math.min(end, (edge('max') ?? 0) + 1)
  for (let hour = begin; hour < past; hour++) {
    const page = sums.all(hour, org, ...values)
    if (page.length) yield page.map(toSum)
    if (hour % PAGE === 0) await setImmediate()
  }
}

export function toSum(columns: Record<string, unknown>): UsageSum {
  const { hour, cache_write, ...same } = columns
  return { ...same, time: (hour as number) * HOUR_MS, cacheWrite: cache_write } as UsageSum
}
