/** Checks receipts and statements without a gateway: signatures, the chain, totals, and amounts against their counts. */
import { createHash, type KeyObject } from 'node:crypto'
import { canonical, faultOf, type Receipt, type Signed } from '../plugins/shared/receipt.ts'
import {
  chained,
  chainOf,
  monthOf,
  type StatementEnd,
  type StatementHead,
  type StatementLine,
  Totals,
} from '../plugins/shared/statement.ts'

export interface Fault {
  /** From 1. */
  line: number
  request_id?: string
  fault: string
}

/** What could not be checked of receipts, as they do not hold what it takes. It is no fault. */
export interface Note {
  note: string
  /** Of so many receipts. */
  receipts: number
  /** The first of them; the line from 1. */
  line: number
  request_id: string
}

/** What a file came to. */
export interface Checked {
  /** Null: the file has receipts alone, so nobody can tell whether one is missing. */
  statement: StatementHead | null
  receipts: number
  cost_nano_usd: number
  /** Ids of the keys that fit. */
  keys: string[]
  faults: Fault[]
  notes: Note[]
  /** Receipts that are billed and have no digest: no body can be held against them. */
  without_digest: number
  /** Up to when the statement can be whole, ISO 8601: the end of its month, or when it was made; null for receipts. */
  whole_until: string | null
}

/** A receipt that is as it was signed. */
interface Signature {
  /** Of the receipt without its signature: the same one may have been signed by two keys. */
  digest: string
  time: number
  organization: string
  key: string
  file: string
  line: number
}

/** An exchange that has not ended when a statement is made is not in it. None runs for longer, ms. */
const LONGEST = 24 * 3_600_000

/** What is known of the receipts of all files that are checked together. */
export class Known {
  readonly #receipts = new Map<string, Signature>()
  readonly #statements: { file: string; head: StatementHead; ids: ReadonlySet<string> }[] = []
  /** Whether there are several files. A statement alone knows its ids, and needs no more of a million receipts. */
  readonly several: boolean

  constructor(several = false) {
    this.several = several
  }

  /** @returns the receipt of the same request that is known already */
  add(receipt: Signed<Receipt>, file: string, line: number): (Signature & { same: boolean }) | null {
    const { signature: _, ...content } = receipt
    const { request_id, organization, key } = receipt
    const digest = createHash('sha256').update(canonical(content)).digest('base64url')
    const before = this.#receipts.get(request_id)
    if (before) return { ...before, same: before.digest === digest }
    this.#receipts.set(request_id, { digest, time: Date.parse(receipt.time), organization, key, file, line })
    return null
  }

  /** @param ids of all its receipts */
  addStatement(file: string, head: StatementHead, ids: ReadonlySet<string>): void {
    this.#statements.push({ file, head, ids })
  }

  /** The receipts that a statement would have to have, and has not. */
  *missing(): Generator<Fault & { file: string }> {
    for (const { file: of, head, ids } of this.#statements) {
      const { since, until } = monthOf(head.month)!
      // Of the last day before it was made, any may have been running.
      const end = Math.min(until, Date.parse(head.made_at) - LONGEST)
      for (const [request_id, { time, organization, key, file, line }] of this.#receipts) {
        if (ids.has(request_id) || organization !== head.organization) continue
        if ((head.key !== null && key !== head.key) || !(time >= since && time < end)) continue
        yield { file, line, request_id, fault: `the statement of its month, ${of}, does not have it` }
      }
    }
  }
}

/** This many lines are checked together, on the threads of Node's pool. */
const TOGETHER = 64
const UTF8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })
const LINE_FEED = 10

/** The lines of a file, without their line feeds. What follows the last line feed is the last one, `whole: false`. */
async function* linesOf(file: AsyncIterable<Uint8Array>): AsyncGenerator<{ bytes: Buffer; whole: boolean }> {
  let rest: Buffer[] = []
  for await (const piece of file) {
    let bytes = Buffer.from(piece.buffer, piece.byteOffset, piece.byteLength)
    for (let at = bytes.indexOf(LINE_FEED); at >= 0; at = bytes.indexOf(LINE_FEED)) {
      yield { bytes: Buffer.concat([...rest, bytes.subarray(0, at)]), whole: true }
      rest = []
      bytes = bytes.subarray(at + 1)
    }
    if (bytes.length > 0) rest.push(bytes)
  }
  if (rest.length > 0) yield { bytes: Buffer.concat(rest), whole: false }
}

/**
 * Checks a statement, or a file with a receipt a line.
 * @param found called with each receipt that is as it was signed, once where files have it twice
 * @param name the name of the file
 */
export async function checkFile(
  file: AsyncIterable<Uint8Array>,
  keys: ReadonlyMap<string, KeyObject>,
  found: (receipt: Receipt) => void = () => {},
  known = new Known(),
  name = '',
): Promise<Checked> {
  const check = new Check(keys, found, known, name)
  let together: Promise<void>[] = []
  let line = 0
  for await (const { bytes, whole } of linesOf(file)) {
    line++
    const value = check.read(bytes, line, whole)
    if (value === undefined) continue
    together.push(check.take(value, line))
    if (together.length < TOGETHER) continue
    await Promise.all(together)
    check.compare()
    together = []
  }
  await Promise.all(together)
  check.compare()
  return check.end(line)
}

type Value = Record<string, any>

class Check {
  readonly #keys: ReadonlyMap<string, KeyObject>
  readonly #found: (receipt: Receipt) => void
  readonly #faults: Fault[] = []
  readonly #notes = new Map<string, Note>()
  readonly #totals = new Totals()
  readonly #fitting = new Set<string>()
  readonly #ids = new Set<string>()
  readonly #known: Known
  readonly #name: string
  #head: StatementHead | null = null
  #chain = ''
  #ended = false
  /** Its end is as it was signed, and the lines lead to it. */
  #whole = false
  #withoutDigest = 0
  /** Receipts that are as they were signed, and were not compared yet. */
  #fit: { receipt: Signed<Receipt>; line: number }[] = []

  constructor(keys: ReadonlyMap<string, KeyObject>, found: (receipt: Receipt) => void, known: Known, name: string) {
    this.#keys = keys
    this.#found = found
    this.#known = known
    this.#name = name
  }

  /** Holds the receipts that fit against those that are known, in the order of their lines. */
  compare(): void {
    for (const { receipt, line } of this.#fit.sort((a, b) => a.line - b.line)) {
      const { body_sha256, usage, request_id } = receipt
      // Within a statement the same id twice has been told.
      const before = this.#head === null || this.#known.several ? this.#known.add(receipt, this.#name, line) : null
      if (before && !before.same) {
        const where = before.file === this.#name ? `line ${before.line}` : `line ${before.line} of ${before.file}`
        this.#fault(line, `another receipt of this request is signed too, in ${where}, and they differ`, request_id)
      }
      if (before?.same) continue
      if (!body_sha256 && usage.input_tokens > 0) this.#withoutDigest++
      this.#found(receipt)
    }
    this.#fit = []
  }

  #fault(line: number, fault: string, request_id?: string): void {
    this.#faults.push({ line, ...(request_id !== undefined && { request_id }), fault })
  }

  #note(line: number, note: string, request_id: string): void {
    const known = this.#notes.get(note)
    if (!known) this.#notes.set(note, { note, receipts: 1, line, request_id })
    else {
      known.receipts++
      if (line < known.line) Object.assign(known, { line, request_id })
    }
  }

  /** The value of a line; undefined when it has none. */
  read(bytes: Buffer, line: number, whole: boolean): Value | undefined {
    let text: string
    let value: unknown
    try {
      text = UTF8.decode(bytes)
      value = JSON.parse(text)
    } catch {
      this.#fault(line, 'it is no JSON: the line was changed, or is cut')
      return undefined
    }
    if (typeof value !== 'object' || value === null || Array.isArray(value)) {
      this.#fault(line, 'it is no JSON object')
      return undefined
    }
    const { object } = value as Value
    // Who prints a single receipt anew changes nothing of it. A statement is kept to its bytes.
    const single = this.#head === null && object === 'receipt'
    if (!single && (JSON.stringify(value) !== text || !whole)) this.#fault(line, 'it is not as it was written')
    return value
  }

  /** Takes a line. What goes by the order of lines is done before this returns its promise. */
  take(value: Value, line: number): Promise<void> {
    if (line === 1 && value['object'] === 'statement') return this.#begins(value as StatementHead, line)
    if (this.#head === null) return this.#receipt(value, line)
    if (this.#ended) {
      this.#fault(line, 'it stands behind the end of the statement')
      return DONE
    }
    if (value['object'] === 'statement_end') return this.#ends(value as Signed<StatementEnd>, line)
    return this.#line(value as StatementLine, line)
  }

  #begins(head: StatementHead, line: number): Promise<void> {
    this.#head = head
    this.#chain = chainOf(head)
    if (head.version !== 1) this.#fault(line, 'the statement is of a later release, which has to check it')
    if (typeof head.month !== 'string' || !monthOf(head.month)) this.#fault(line, 'the statement names no month')
    if (!(Date.parse(head.made_at) > 0)) this.#fault(line, 'the statement does not say when it was made')
    return DONE
  }

  #line({ n, receipt, chain, ...more }: StatementLine, line: number): Promise<void> {
    if (!isReceipt(receipt) || typeof chain !== 'string' || Object.keys(more).length > 0) {
      this.#fault(line, 'it is no line of a statement')
      return DONE
    }
    const { request_id } = receipt
    const expected = this.#totals.receipts + 1
    if (n !== expected) {
      const missing = Number.isSafeInteger(n) && n > expected ? n - expected : 0
      this.#fault(
        line,
        missing > 0
          ? `${missing === 1 ? 'a line is' : `${missing} lines are`} missing before it`
          : 'it is out of place',
        request_id,
      )
    }
    if (chained(this.#chain, receipt) !== chain && n === expected)
      this.#fault(line, 'it does not follow from the line before: one of them was changed, moved or added', request_id)
    // What follows is held against what this line says, so that one fault is told once.
    this.#chain = chain
    this.#add(receipt, line)
    if (Number.isSafeInteger(n) && n > 0) this.#totals.receipts = n
    return this.#receipt(receipt, line)
  }

  /** Adds what the statement's end adds up. */
  #add(receipt: Receipt, line: number): void {
    const { organization, key, month } = this.#head!
    const { since, until } = monthOf(month) ?? { since: 0, until: Number.POSITIVE_INFINITY }
    const time = Date.parse(receipt.time)
    const elsewhere = receipt.organization !== organization || (key !== null && receipt.key !== key)
    if (elsewhere || !(time >= since && time < until))
      this.#fault(line, 'it belongs to another statement', receipt.request_id)
    if (this.#ids.has(receipt.request_id)) this.#fault(line, 'the receipt is there twice', receipt.request_id)
    this.#ids.add(receipt.request_id)
    this.#totals.add(receipt)
  }

  async #receipt(receipt: Value, line: number): Promise<void> {
    if (!isReceipt(receipt)) return this.#fault(line, 'it is no receipt')
    const { request_id, version, signature } = receipt
    // The same receipt twice, in a file of receipts, is one.
    if (this.#head === null && !this.#ids.has(request_id)) this.#totals.add(receipt)
    this.#ids.add(request_id)
    const fault =
      version === 1 ? await this.#signatureFault(receipt) : 'the receipt is of a later release, which has to check it'
    if (fault !== null) return this.#fault(line, fault, request_id)
    this.#fitting.add(signature.key)
    const amount = checkAmount(receipt)
    if (amount?.fault !== undefined) this.#fault(line, amount.fault, request_id)
    if (amount?.note !== undefined) this.#note(line, amount.note, request_id)
    this.#fit.push({ receipt, line })
  }

  async #ends(end: Signed<StatementEnd>, line: number): Promise<void> {
    this.#ended = true
    const totals = { ...this.#totals }
    const chain = this.#chain
    const fault = await this.#signatureFault(end)
    if (fault !== null) return this.#fault(line, fault)
    this.#fitting.add(end.signature.key)
    const { receipts, cost_nano_usd, input_tokens, output_tokens } = end
    if (receipts !== totals.receipts)
      return this.#fault(line, `the statement had ${receipts} receipts, and the file has ${totals.receipts}`)
    if (chain !== end.chain) this.#fault(line, 'lines were changed, moved or added: the chain does not lead here')
    if (canonical(totals) !== canonical({ receipts, cost_nano_usd, input_tokens, output_tokens }))
      this.#fault(line, `the receipts come to ${totals.cost_nano_usd} nano-USD, and the statement to ${cost_nano_usd}`)
    this.#whole = true
  }

  async #signatureFault(object: Value): Promise<string | null> {
    const members = Object.keys(object['signature'] ?? {})
    if (members.length > 2) return 'its signature has further members'
    return faultOf(object, this.#keys)
  }

  end(line: number): Checked {
    if (line === 0) this.#fault(1, 'the file is empty')
    if (this.#head !== null && !this.#ended)
      this.#fault(line, 'the statement has no end: it is cut, and its last receipts are missing')
    const { receipts, cost_nano_usd } = this.#totals
    this.#faults.sort((a, b) => a.line - b.line)
    const head = this.#head
    const until = head && monthOf(head.month)?.until
    if (head && until && this.#whole && this.#known.several && this.#faults.length === 0)
      this.#known.addStatement(this.#name, head, this.#ids)
    const made = head ? Date.parse(head.made_at) : Number.NaN
    return {
      ...{ statement: this.#head, receipts, cost_nano_usd, keys: [...this.#fitting].sort() },
      ...{ faults: this.#faults, notes: [...this.#notes.values()] },
      ...{ without_digest: this.#withoutDigest },
      whole_until: until && made > 0 ? new Date(Math.min(made, until)).toISOString() : null,
    }
  }
}

const DONE = Promise.resolve()

/** Whether a value has what a receipt has, so that it can be added up. */
function isReceipt(value: unknown): value is Signed<Receipt> {
  const { object, request_id, time, usage, price, cost_nano_usd } = (value ?? {}) as Partial<Receipt>
  const { input_tokens, output_tokens, cached_tokens, cache_write_tokens } = usage ?? {}
  const counts = [input_tokens, output_tokens, cached_tokens, cache_write_tokens, cost_nano_usd]
  if (price) counts.push(price.input_pico_usd, price.output_pico_usd)
  return (
    object === 'receipt' &&
    typeof request_id === 'string' &&
    typeof time === 'string' &&
    price !== undefined &&
    counts.every(count => Number.isSafeInteger(count) && count! >= 0)
  )
}

/** The APIs whose requests may ask to be compacted; of another one no request has two calls with prices of their own. */
const COMPACTING: ReadonlySet<string> = new Set(['responses', 'messages', 'compact'])

/**
 * Whether a receipt costs more than its counts at its price. Less is no fault: input from a cache costs less, and
 * of a reply that is longer than its cap the rest is not billed. More is a note where the
 * receipt does not hold the rate: of a cache, or of the step of the other call of a compaction.
 */
export function checkAmount({ price, usage, cost_nano_usd: cost, surface }: Receipt): AmountFound | null {
  if (price === null) {
    if (cost === 0) return null
    return { note: 'has a cost and no price, as an older release booked it: the cost is not held against the counts' }
  }
  const pico =
    BigInt(usage.input_tokens) * BigInt(price.input_pico_usd) +
    BigInt(usage.output_tokens) * BigInt(price.output_pico_usd)
  // A cost is rounded once, and that of a request that was compacted twice.
  const most = Number(pico / 1000n) + 2
  if (cost <= most) return null
  if (usage.cache_write_tokens > 0 || usage.cached_tokens > 0)
    return { note: 'costs more than its counts at its price, and has tokens of a cache, whose rates no receipt tells' }
  if (COMPACTING.has(surface) && usage.output_tokens > 0)
    return {
      note: 'costs more than its counts at its price: one of two calls may have had another step of the price, where it was compacted, which no receipt tells',
    }
  return { fault: `it costs ${cost} nano-USD; its counts at its price come to ${Number(pico / 1000n)}` }
}

type AmountFound = { fault: string; note?: never } | { note: string; fault?: never }
