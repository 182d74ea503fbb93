/** Compares what came with what is recorded, or records it. */
import assert from 'node:assert/strict'
import { type Book, books, difference } from './book.ts'

const UPDATE = process.env['GOLDEN_UPDATE'] === '1'
/** Cases of a book that are told; the rest are counted, so that a failure fits on a screen. */
const TOLD = 6

/** Tells what differs, or writes it. @param recordings one for each case of the book */
export function settle(book: Book, recordings: readonly string[][]): void {
  if (UPDATE) return book.write(recordings)
  const differing = book.entries.flatMap(({ case: { name }, recorded }, i) => {
    const found = difference(recorded, recordings[i]!)
    return found === undefined ? [] : [`  ${name}: ${found}`]
  })
  if (differing.length === 0) return
  const more = differing.length > TOLD ? [`  and ${differing.length - TOLD} more cases`] : []
  const head = `test/golden/recorded/${book.name}.txt: ${differing.length} of ${book.entries.length} cases differ`
  // An error without a stack: it would say nothing but this line.
  const fault = new assert.AssertionError({ message: [head, ...differing.slice(0, TOLD), ...more].join('\n') })
  fault.stack = fault.message
  throw fault
}

/** The books of a kind; of those, the ones that `npm run test:golden -- NAME` names. */
export function shelf(kind: string): Book[] {
  const only = process.env['GOLDEN_BOOK'] ?? ''
  return books().filter(book => book.setting('kind') === kind && book.name.includes(only))
}

export const title = ({ name, entries }: Book): string => `${name}: ${entries.length} cases`
