/**
 * The Lua scripts, which stand in lua/, and the constants and lists that are inserted into them (assemble.ts). Each
 * script is one atomic step. Each identifies its work by an id, so that sending it twice has the same effect as once.
 * Each uses keys of one hash slot only.
 *
 * Levels (stores/limits/rules.ts) are stored in groups (layout.ts). So an admission reads and writes two fields, one
 * for the organization and one for the key, instead of forty-four. The code for each place is written out, without a
 * loop, so that the numbers of a group are local variables, which one call unpacks and one call packs. A loop over
 * cells with two calls for each cell took three times as long.
 *
 * What admit.lua does to a level is `advance` of rules.ts in Lua. A model test checks that both agree.
 */
import { createHash } from 'node:crypto'
import { MOST_CHANGES } from '../../core/ports/accounts.ts'
import { FIGURES, RECENT_ROWS, TOTALS } from '../../core/ports/store.ts'
import { FAR_AHEAD } from '../limits/rules.ts'
import { USERS_LOOKED_AT } from '../limits/users.ts'
import { MARK_BASE, MARK_BYTES_PER_CHARACTER } from '../marks.ts'
import { NOTICES_KEPT } from '../notices.ts'
import { TEXTS } from '../usage.ts'
import { assemble, type Inserts } from './assemble.ts'
import type { Script } from './call.ts'
import {
  ASKED_GENERATION,
  BALANCE_AMOUNT,
  FINALS,
  GENERATION,
  GROUP_BYTES,
  GROUP_DOUBLES,
  HEAD,
  NONE,
  PLACE_DOUBLES,
  PLACES,
  RUNNING,
  STARTS,
  TAKEN,
} from './layout.ts'

/** In charge.lua, the place of the period of a cell that is a bucket. */
export const BUCKET = -1

/** The struct format of `count` little-endian doubles, as a Lua string. */
const doubles = (count: number) => `'<${'d'.repeat(count)}'`

const places = PLACES.map(({ word, kind, windowMs, period }, i) => ({
  kind,
  values: {
    PLACE: word,
    /** The index of its `used` in a table of the group's numbers. */
    USED: STARTS[i]! + 1,
    ...(windowMs !== undefined && { WINDOW_MS: windowMs }),
    ...(period !== undefined && { FAR_AHEAD: FAR_AHEAD[period] }),
  },
}))
const placesOf = (kind: string) => places.filter(place => place.kind === kind).map(({ values }) => values)

/** The columns of the ledger that name a sum beside its hour and organization. */
const SUM_TEXTS = TEXTS.slice(1)

export const INSERTS: Inserts = {
  constants: {
    NONE,
    BUCKET,
    GROUP_BYTES,
    GROUP_FORMAT: doubles(GROUP_DOUBLES),
    /** Where the groups of a request begin: the position of a byte, from 1. */
    REQUEST_START: 8 * HEAD + 1,
    /** What a request has for one group. */
    REQUEST_BYTES: 8 * PLACE_DOUBLES * PLACES.length,
    REQUEST_FORMAT: doubles(PLACE_DOUBLES * PLACES.length),
    /** What a settlement has for one group behind the request. */
    FINALS_BYTES: 8 * FINALS,
    FINALS_FORMAT: doubles(FINALS),
    /** In the group of a balance, and in what a request has for it: offsets of bytes. */
    TAKEN_OFFSET: 8 * TAKEN,
    GENERATION_OFFSET: 8 * GENERATION,
    BALANCE_AMOUNT_OFFSET: 8 * BALANCE_AMOUNT,
    ASKED_GENERATION_OFFSET: 8 * ASKED_GENERATION,
    /** In the group of an end user: the offset of the byte where the number of his running requests begins. */
    RUNNING_OFFSET: 8 * RUNNING,
    USERS_LOOKED_AT,
    /** One call of append.lua counts at most this many entries that others have left uncounted, beside its own. */
    COUNTED_TOGETHER: 200,
    /** A sum: its hour, then TOTALS. */
    SUM_ZEROS: TOTALS.map(() => 0).join(', '),
    SUM_FORMAT: `'${TOTALS.map(() => '%.0f').join(' ')}'`,
    COSTED: TOTALS.indexOf('costed') + 2,
    LAST_RECENT: RECENT_ROWS - 1,
    /** A script that stores something forgets at most this many members that have expired. */
    EXPIRED_BY_PUT: 20,
    /** One call evicts at most this many members, and forgets at most this many of each index that have expired. */
    RETAINED_SLICE: 500,
    MARK_BASE,
    MARK_BYTES_PER_CHARACTER,
    TWO_MARKS: 2 * MARK_BASE,
    NOTICES_KEPT,
    CHANGES_KEPT: 10 * MOST_CHANGES,
  },
  lists: {
    /** The places of a group, in the order in which they are stored, and those of each kind. */
    place: places.map(({ values }) => values),
    bucket: placesOf('bucket'),
    slots: placesOf('slots'),
    spend: placesOf('spend'),
    /** Has one entry in the scripts of organizations with a balance. */
    balance: [],
    /** Has one entry in the script of requests of end users. */
    user: [],
    /** The columns of the ledger that append.lua reads. */
    counted: ['time', 'organization', 'tags', ...SUM_TEXTS, ...FIGURES].map(name => ({ COLUMN: name })),
    text: SUM_TEXTS.map(name => ({ COLUMN: name })),
    /** The figures that append.lua sums, and their places in a sum: its hour and the number of rows come first. */
    figure: FIGURES.map((name, i) => ({ COLUMN: name, INDEX: i + 3 })),
  },
}

/**
 * The script of lua/NAME.lua, ready to be called. It is read here, so that no call reads a file.
 * @param with_ lists that are empty otherwise: the lines of each `--@each` of them are in the script once
 */
export function script(name: string, ...with_: readonly (keyof typeof INSERTS.lists)[]): Script {
  const once = Object.fromEntries(with_.map(list => [list, [{}]]))
  const { lua, lines } = assemble(name, { ...INSERTS, lists: { ...INSERTS.lists, ...once } })
  return { lua, lines, sha: createHash('sha1').update(lua).digest('hex') }
}
