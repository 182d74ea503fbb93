/** Which texts cite which pages, and how long that takes to find out. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import type { Citation } from '../../core/canon/events.ts'
import { Citations } from '../../plugins/web-search/citations.ts'

function cited(urls: string[], text: string): Citation[] {
  const citations = new Citations()
  citations.found(urls.map(url => ({ url, title: url })))
  const found: Citation[] = []
  const push = (event: object) => void found.push((event as { citation: Citation }).citation)
  citations.before({ type: 'text', text }, push)
  citations.before({ type: 'break' }, push)
  return found
}

test('[MSG-3] property: what stands in a text, whole, is cited, the longest where several do', () => {
  const piece = fc.constantFrom('http', 'https://a', '://a', '/1', '/10', '1', '.', ',', ' ', '?q', 'é')
  const joined = (most: number) => fc.array(piece, { maxLength: most }).map(pieces => pieces.join(''))
  const url = joined(6).map(rest => `http${rest}`)
  fc.assert(
    fc.property(fc.uniqueArray(url, { maxLength: 12 }), joined(40), (urls, text) => {
      const wanted: string[] = []
      for (let at = text.indexOf('http'); at !== -1; at = text.indexOf('http', at + 4)) {
        const fits = urls.filter(
          u => text.startsWith(u, at) && !/^[\w%~-]|^[./?#&=:]{1,2}[\w%]/.test(text.slice(at + u.length)),
        )
        if (fits.length > 0) wanted.push(`${at} ${fits.reduce((a, b) => (b.length > a.length ? b : a))}`)
      }
      assert.deepEqual(
        cited(urls, text).map(({ start, url: found }) => `${start} ${found}`),
        wanted,
      )
    }),
    { numRuns: 1000, seed: 20_261_122 },
  )
})

test('[REQ-2] thousands of replayed pages and a text full of URLs take no longer than their sizes together', () => {
  const pages = Array.from({ length: 20_000 }, (_, i) => `https://a.example/${i}`)
  const chain = Array.from({ length: 2000 }, (_, i) => `http://a${'a'.repeat(i)}`)
  assert.equal(cited(pages, 'see http '.repeat(20_000)).length, 0)
  assert.equal(cited(pages, pages.join(' ')).length, pages.length)
  assert.equal(cited(chain, `http://a${'a'.repeat(2500)} `.repeat(200)).length, 0)
})
