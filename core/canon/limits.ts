/**
 * Every limit that an account can have. One entry of `COUNTED` is one dimension with its limits. The keys of
 * gateway.yaml, the cells of an admission, the code and words of a denial, response headers, GET /v1/models, metrics
 * and docs are all derived from it. The stores keep any cells they are given.
 */

import type { Conversation } from './conversation.ts'
import { type Usage, ZERO_USAGE } from './events.ts'

/** How a limit is counted; `Cell` in core/ports/store.ts says what each kind does. */
export type CounterKind = 'bucket' | 'slots' | 'spend' | 'balance'

/** A limit of gateway.yaml. */
export interface Limit {
  /** Its key in gateway.yaml, e.g. `requests_per_minute`. */
  name: string
  description: string
}
export interface CountedLimit extends Limit {
  /**
   * The last word of its cells' ids, unique among all limits: `rpm` makes `o:rpm`. Stores keep levels under it, so it
   * must never change.
   */
  word: string
  /** The window of a rate limit in milliseconds: 60 000 or 86 400 000. */
  windowMs?: number
  /** The period of a spend limit. */
  period?: 'day' | 'month'
}

/** What an exchange consumed until it ended, and who pays for it. Zeros when no backend had the prompt. */
export interface Consumed {
  /**
   * It may be more than the bill: a prompt that a backend has and output that was made are consumed, whether or not the
   * client stayed for them; the bill has what was delivered (BILL-3).
   */
  usage: Usage
  /**
   * The prompt tokens that went to backends: at least those of `usage`, more where a file was fetched or a search took
   * several requests. Limits of tokens count them; nobody is billed for what is beyond `usage`.
   */
  sent: number
  /** What the ledger row bills, in nano-USD. */
  billed: number
  /**
   * What the rest of the usage costs at list price, in nano-USD, where it is not billed because the client left. What a
   * provider's fault left unbilled is not in it.
   */
  unbilled: number
}

export interface Counted {
  kind: CounterKind
  limits: readonly CountedLimit[]
  /** The dimension in a sentence: "The limit of 5 input tokens per minute". */
  words: string
  /**
   * What one exchange reserves at admission.
   * @param input tokens of the prompt
   * @param output the most tokens that the reply may have
   * @param cost the most that both may cost, in nano-USD
   * @param conversation undefined where the route has none
   */
  reserve(input: number, output: number, cost: number, conversation: Conversation | undefined): number
  /** What replaces the reservation. */
  settle(consumed: Consumed, reserved: number): number
  /** The table cell in docs/limits.md. */
  counts: string
  /** The line of docs/errors.md for a denial, and what the caller can do about it. */
  denied: string
  cure: string
  /** When to retry after a denial, in milliseconds, for cells that cannot compute it. */
  horizonMs?: number
  /**
   * Amounts are in nano-USD. Platform load does not shrink them, a denial has the code of spend and words that tell
   * nothing of billing (LIM-8), and response headers have USD, or nothing.
   */
  money?: 'in headers' | 'in no header'
  /** The least capacity of a cell, when a lower limit is set. */
  least?: number
  /**
   * A limit that no configuration sets, and that waiting does not help with: its one cell belongs to the organization,
   * and this is its id. `limits` is empty.
   */
  given?: string
  /** What holds where a set of limits (of one organization, key or model) does not say; undefined: no limit. */
  unset?(limits: Readonly<Partial<Record<string, number | null>>>): number | undefined
}

const MINUTE = 60_000
export const DAY = 86_400_000

/**
 * By dimension. The code of a denial is the dimension and `_limit_exceeded`; its headers are named by `headerFamily`.
 * Limits of money have one code of their own.
 */
export const COUNTED = {
  requests: {
    kind: 'bucket',
    limits: [
      { name: 'requests_per_minute', word: 'rpm', windowMs: MINUTE, description: 'Requests per minute.' },
      { name: 'requests_per_day', word: 'rpd', windowMs: DAY, description: 'Requests per day.' },
    ],
    words: 'requests',
    reserve: () => 1,
    settle: () => 1,
    counts: 'admitted requests',
    denied: 'Requests per minute or day.',
    cure: 'Wait as `Retry-After` says; spread requests out.',
  },
  tokens: {
    kind: 'bucket',
    limits: [
      { name: 'tokens_per_minute', word: 'tpm', windowMs: MINUTE, description: 'Input and output tokens per minute.' },
      { name: 'tokens_per_day', word: 'tpd', windowMs: DAY, description: 'Input and output tokens per day.' },
    ],
    words: 'tokens',
    reserve: (input, output) => input + output,
    settle: ({ usage, sent }) => sent + usage.output,
    counts: 'input and output',
    denied: 'Tokens per minute or day.',
    cure: 'Wait as `Retry-After` says; send less, or lower the output cap, which is reserved.',
  },
  input_tokens: {
    kind: 'bucket',
    limits: [
      { name: 'input_tokens_per_minute', word: 'itpm', windowMs: MINUTE, description: 'Input tokens per minute.' },
      { name: 'input_tokens_per_day', word: 'itpd', windowMs: DAY, description: 'Input tokens per day.' },
    ],
    words: 'input tokens',
    reserve: input => input,
    settle: ({ sent }) => sent,
    counts: 'input',
    denied: 'Input tokens per minute or day.',
    cure: 'Wait as `Retry-After` says; send shorter prompts.',
  },
  output_tokens: {
    kind: 'bucket',
    limits: [
      { name: 'output_tokens_per_minute', word: 'otpm', windowMs: MINUTE, description: 'Output tokens per minute.' },
      { name: 'output_tokens_per_day', word: 'otpd', windowMs: DAY, description: 'Output tokens per day.' },
    ],
    words: 'output tokens',
    reserve: (_, output) => output,
    settle: ({ usage }) => usage.output,
    counts: 'output',
    denied: 'Output tokens per minute or day.',
    cure: 'Wait as `Retry-After` says; lower the output cap, which is reserved.',
  },
  concurrency: {
    kind: 'slots',
    limits: [{ name: 'concurrent_requests', word: 'conc', description: 'Requests at once.' }],
    words: 'requests at the same time',
    reserve: () => 1,
    settle: () => 0,
    counts: 'requests at the same time',
    denied: 'Requests at the same time.',
    cure: 'Let a running request end first.',
    horizonMs: 1000,
  },
  unbilled: {
    kind: 'bucket',
    limits: [
      {
        name: 'unbilled_usd_per_day',
        word: 'ubpd',
        windowMs: DAY,
        description:
          'Most per day that may be consumed and not billed because clients leave early. Left out, it is a tenth of daily_spend_usd, else a tenth of a thirtieth of monthly_spend_usd; without either there is no such limit.',
      },
    ],
    words: 'unbilled spend',
    // Nobody knows before who will leave. A reservation of more would refuse those who stay; what runs when the limit is
    // reached may take the bucket below zero, and refill pays that first.
    reserve: (_input, _output, cost) => (cost > 0 ? 1 : 0),
    settle: ({ unbilled }) => unbilled,
    counts: 'cost of what was consumed and not billed because the client left',
    denied: 'A spend limit of the organization or key is reached.',
    cure: 'Wait as `Retry-After` says; read replies to their end.',
    money: 'in no header',
    // A reservation is 1 nano-USD, so under a limit of 0.00 ten thousand requests at once still fit, while what one
    // prompt costs does not.
    least: 10_000,
    unset: ({ daily_spend_usd: day, monthly_spend_usd: month }) =>
      day != null ? Math.floor(day / 10) : month != null ? Math.floor(month / 300) : undefined,
  },
  balance: {
    kind: 'balance',
    limits: [],
    given: 'o:balance',
    words: 'balance',
    reserve: (_input, _output, cost) => cost,
    settle: ({ billed }) => billed,
    counts: 'what is billed to an organization with `billing: prepaid`',
    denied: 'A spend limit of the organization or key is reached.',
    cure: 'As the message says; not retryable, since only a credit of the operator helps.',
    money: 'in no header',
  },
  spend: {
    kind: 'spend',
    limits: [
      { name: 'daily_spend_usd', word: 'day', period: 'day', description: 'Spend in one UTC day.' },
      { name: 'monthly_spend_usd', word: 'month', period: 'month', description: 'Spend in one UTC month.' },
    ],
    words: 'spend',
    reserve: (_input, _output, cost) => cost,
    settle: ({ billed }) => billed,
    counts: 'what is billed in the UTC day or month',
    denied: 'A spend limit of the organization or key is reached.',
    cure: 'As the message says: shorten the prompt or lower the output cap, wait for the next UTC day or month, or ask the operator for more. Not retryable when the request by itself is over the limit, or when waiting brings nothing back. Replies that clients do not read to their end have a limit, too.',
    money: 'in headers',
  },
} as const satisfies Record<string, Counted>

/** Limits of a single request. Nothing is counted for them: the plugin that knows the figure checks it. */
export const MAXIMA = [
  {
    name: 'max_input_tokens',
    description: 'Most prompt tokens of one request.',
    counts: 'the prompt of one request',
    denial: '400 `context_length_exceeded`',
  },
  {
    name: 'max_output_tokens',
    description: 'Most output tokens that one request may ask for. A request that names no cap gets no more.',
    counts: 'the output cap that a request names',
    denial: '400 `invalid_value`',
  },
  {
    name: 'max_request_tokens',
    description: 'Most tokens that one request can need: its prompt and its output cap.',
    counts: 'the estimate of one request',
    denial: '`request_token_budget_exceeded`',
  },
  {
    name: 'max_request_usd',
    description: 'Most that one request can cost, in USD.',
    counts: 'the most that one request can cost',
    denial: '`request_spend_cap_exceeded`',
  },
  {
    name: 'max_searches',
    description: 'Most web searches that the gateway makes for one request.',
    counts: 'the searches of one request',
    denial: 'none: the model is told that it has used up its searches, and answers',
  },
] as const satisfies readonly (Limit & { counts: string; denial: string })[]

export type Dimension = keyof typeof COUNTED
export type LimitName = (typeof COUNTED)[Dimension]['limits'][number]['name'] | (typeof MAXIMA)[number]['name']

/**
 * The name of a limit's headers behind `x-ratelimit-limit-`, `-remaining-` and `-reset-`. The dimension alone is the
 * minute, as the specification has it; a limit per day has headers of its own (decision 86).
 */
export const headerFamily = (dimension: Dimension, { windowMs }: { windowMs?: number }): string =>
  dimension.replaceAll('_', '-') + (windowMs === DAY ? '-day' : '')

/** In the order in which cells are checked and people are shown them. */
export const DIMENSIONS = Object.entries(COUNTED) as readonly [Dimension, Counted][]

export const LIMITS = [...DIMENSIONS.flatMap(([, { limits }]) => limits), ...MAXIMA] as readonly (Limit & {
  name: LimitName
})[]

/** True for limits in USD, which are stored in nano-USD; all others are whole numbers of their unit. */
export const isUsd = (name: string): boolean => /_usd(_|$)/.test(name)

/** What a dimension counts. */
export const countedOf = (dimension: Dimension): Counted => COUNTED[dimension]

/** Whether a cell holds what may be billed: a request is admitted only where the most that it can cost is left. */
export const holdsMoney = ({ kind }: { kind: CounterKind }): boolean => kind === 'spend' || kind === 'balance'

/** Whether amounts of this dimension are in nano-USD. */
export const isMoney = (dimension: Dimension): boolean => countedOf(dimension).money !== undefined

/** The capacity of a limit's cell where these limits are set; undefined: there is no such limit. */
export function capacityIn(
  limits: Readonly<Partial<Record<string, number | null>>>,
  counted: Counted,
  { name }: CountedLimit,
): number | undefined {
  const capacity = limits[name] ?? counted.unset?.(limits)
  return capacity === undefined ? undefined : Math.max(capacity, counted.least ?? 0)
}

/** With what the ids of an organization's cells begin, or those of a key: for all models, or for one. */
export const cellPrefix = (key: string | null, model: string | null): string =>
  (key === null ? 'o:' : `k:${key}:`) + (model === null ? '' : `m:${model}:`)

/**
 * The dimensions that an account can limit for each end user of a key. The stores keep all limits of a user together,
 * so a dimension of a newer limit than their layout cannot be one.
 */
const OF_USERS: ReadonlySet<Dimension> = new Set<Dimension>([
  'requests',
  'tokens',
  'input_tokens',
  'output_tokens',
  'concurrency',
  'spend',
])
export const USER_DIMENSIONS = DIMENSIONS.filter(([dimension]) => OF_USERS.has(dimension))

/** The limits that an account can set for each end user of a key. */
export const USER_LIMITS = USER_DIMENSIONS.flatMap(([, { limits }]) => limits) as readonly (CountedLimit & {
  name: LimitName
})[]

/** Of each key, the levels of this many end users are kept: those used last. All others have one shared level. */
export const USERS_KEPT = 1000

/** With what the ids of a key's cells of all other users begin. The ids of one user's have his name behind it. */
export const sharedPrefix = (key: string): string => `${cellPrefix(key, null)}u:`

/** The id of a user's own cell, by that of the shared one: `k:key_ci:u:rpm` and `alice` make `k:key_ci:u:alice:rpm`. */
export function userCellId(shared: string, user: string): string {
  const word = shared.lastIndexOf(':')
  return `${shared.slice(0, word)}:${user}${shared.slice(word)}`
}

/** The key of a cell of end users, and the user, null where it is shared by all others; null for any other cell. */
export function userOfCell(id: string): { key: string; user: string | null } | null {
  const [, key, user] = /^k:([^:]+):u:(?:(.*):)?[a-z]+$/s.exec(id) ?? []
  return key === undefined ? null : { key, user: user ?? null }
}

/** The least that an exchange counts once it was admitted, whatever became of it: a request, and its prompt. */
const admitted = (input: number): Consumed => ({
  usage: { ...ZERO_USAGE, input },
  sent: input,
  billed: 0,
  unbilled: 0,
})

/**
 * What buckets count of an exchange that a crash cut off (outcome `lost`): all that its organization and key may have
 * limits for, set or not.
 * @param model '' where the route has none
 * @param input tokens of the prompt
 */
export function countedOfLost(
  key: string,
  model: string,
  input: number,
): { cell: string; windowMs: number; amount: number }[] {
  const counts: { cell: string; windowMs: number; amount: number }[] = []
  for (const [, counted] of DIMENSIONS) {
    if (counted.kind !== 'bucket') continue
    const amount = counted.settle(admitted(input), counted.reserve(input, 0, 0, undefined))
    if (amount <= 0) continue
    for (const { word, windowMs } of counted.limits)
      for (const owner of [null, key])
        for (const one of model === '' ? [null] : [null, model])
          counts.push({ cell: cellPrefix(owner, one) + word, windowMs: windowMs!, amount })
  }
  return counts
}

/** The month of the last day asked for. A cache: making a Date for each exchange is slower. */
let monthOfDay = { day: Number.NaN, month: 0 }

/** Index of the UTC day or month that contains `now` (Unix ms): days since 1970, or 12 × year + month from 0. */
export function periodIndex(period: 'day' | 'month', now: number): number {
  const day = Math.floor(now / DAY)
  if (period === 'day') return day
  if (monthOfDay.day !== day) {
    const date = new Date(now)
    monthOfDay = { day, month: date.getUTCFullYear() * 12 + date.getUTCMonth() }
  }
  return monthOfDay.month
}

/** When a UTC day or month begins, Unix ms. @param index as of `periodIndex` */
export function periodStart(period: 'day' | 'month', index: number): number {
  return period === 'day' ? index * DAY : Date.UTC(Math.floor(index / 12), index % 12, 1)
}

/** The limit that a cell counts for. */
export function limitOf({
  dimension,
  windowMs,
  period,
}: { dimension: Dimension } & Pick<CountedLimit, 'windowMs' | 'period'>): CountedLimit {
  return countedOf(dimension).limits.find(limit => limit.windowMs === windowMs && limit.period === period)!
}

/** The dimensions whose denials have a code named after them. */
export type Rated = Exclude<Dimension, 'spend' | 'unbilled' | 'balance'>
export const denialCode = (dimension: Dimension) =>
  isMoney(dimension) ? 'rate_limit_exceeded' : (`${dimension as Rated}_limit_exceeded` as const)
