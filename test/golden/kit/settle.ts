/** Compares the results with the recordings, or writes new recordings. */
import assert from 'node:assert/strict'
import { type Book, books, difference } from './book.ts'

const UPDATE = process.env['GOLDEN_UPDATE'] === '1'
/** At most this many differing cases are shown. The others are only counted, so that a failure fits on a screen. */
const TOLD = 6

/** Fails with the differences, or writes the book. @param recordings one for each case of the book */
export function settle(book: Book, recordings: readonly string[][]): void {
  if (UPDATE) return book.write(recordings)
  const differing = book.entries.flatMap(({ case: { name }, recorded }, i) => {
    const found = difference(recorded, recordings[i]!)
    return found === undefined ? [] : [`  ${name}: ${found}`]
  })
  if (differing.length === 0) return
  const more = differing.length > TOLD ? [`  and ${differing.length - TOLD} more cases`] : []
  const head = `test/golden/recorded/${book.name}.txt: ${differing.length} of ${book.entries.length} cases differ`
  // The error has no stack, which would only show this line.
  const fault = new assert.AssertionError({ message: [head, ...differing.slice(0, TOLD), ...more].join('\n') })
  fault.stack = fault.message
  throw fault
}

/** The books of a kind; only those that `npm run test:golden -- NAME` names, if it names any. */
export function shelf(kind: string): Book[] {
  const only = process.env['GOLDEN_BOOK'] ?? ''
  return books().filter(book => book.setting('kind') === kind && book.name.includes(only))
}

export const title = ({ name, entries }: Book): string => `${name}: ${entries.length} cases`
