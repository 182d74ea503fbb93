/**
 * A statement: the receipts of a month, one JSON object a line. The first line says whose it is and of when, the last
 * one how many receipts there are and what they cost, and is signed. Each line between has a receipt, its number, and a
 * digest of all that comes before and of the receipt itself, so that a line that is missing, added or moved is found.
 *
 *   {"object":"statement","version":1,"organization":"acme","month":"2026-11",…}
 *   {"n":1,"receipt":{…,"signature":{…}},"chain":"…"}
 *   {"object":"statement_end","receipts":1,"cost_nano_usd":65375,…,"chain":"…","signature":{…}}
 */
import { createHash } from 'node:crypto'
import type { LedgerRow } from '../../core/ports/store.ts'
import { canonical, type Receipt, receiptOf, type Signed, type SigningKey, signed } from './receipt.ts'

export interface StatementHead {
  object: 'statement'
  version: 1
  organization: string
  /** The statement of one key alone; null for all of the organization. */
  key: string | null
  /** A UTC month, `2026-11`. */
  month: string
  /** When it was made, ISO 8601: exchanges that had not ended then are missing. */
  made_at: string
}
export interface StatementLine {
  n: number
  receipt: Signed<Receipt>
  /** Base64url. */
  chain: string
}
export interface StatementEnd {
  object: 'statement_end'
  receipts: number
  input_tokens: number
  output_tokens: number
  cost_nano_usd: number
  chain: string
}

/** This many receipts are signed together, on the threads of Node's pool. */
const TOGETHER = 64

/** The digest that a statement begins with, and that of each line. */
export const chainOf = (head: object): string => digest(canonical(head))
export const chained = (before: string, receipt: object): string => digest(`${before}${canonical(receipt)}`)
const digest = (text: string): string => createHash('sha256').update(text).digest('base64url')

/** What the receipts of a statement come to. */
export class Totals {
  receipts = 0
  input_tokens = 0
  output_tokens = 0
  cost_nano_usd = 0

  add({ usage, cost_nano_usd }: Receipt): void {
    this.receipts++
    this.input_tokens += usage.input_tokens
    this.output_tokens += usage.output_tokens
    this.cost_nano_usd += cost_nano_usd
  }
}

/** The first instant of a UTC month, and that of the next; null for another text. */
export function monthOf(text: string): { since: number; until: number } | null {
  const [, year, month] = /^(\d{4})-(0[1-9]|1[0-2])$/.exec(text) ?? []
  if (year === undefined) return null
  return { since: Date.UTC(Number(year), Number(month) - 1), until: Date.UTC(Number(year), Number(month)) }
}

/** The lines of a statement, some at a time, each with its line feed. The first ones come when rows were read. */
export async function* statementLines(
  head: StatementHead,
  pages: AsyncIterable<readonly LedgerRow[]>,
  key: SigningKey,
): AsyncGenerator<string> {
  let lines = `${JSON.stringify(head)}\n`
  let chain = chainOf(head)
  const totals = new Totals()
  for await (const page of pages)
    for (let at = 0; at < page.length; at += TOGETHER) {
      const receipts = page.slice(at, at + TOGETHER).map(receiptOf)
      for (const receipt of await Promise.all(receipts.map(one => signed(one, key)))) {
        chain = chained(chain, receipt)
        totals.add(receipt)
        lines += `${JSON.stringify({ n: totals.receipts, receipt, chain } satisfies StatementLine)}\n`
      }
      yield lines
      lines = ''
    }
  const end = await signed<StatementEnd>({ object: 'statement_end', ...totals, chain }, key)
  yield `${lines}${JSON.stringify(end)}\n`
}
