/** What a model's reply says of pages (plugins/web-search/model-search.ts). */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import type { StreamEvent } from '../../core/canon/events.ts'
import { SearchReader, searchBackend } from '../../plugins/web-search/model-search.ts'

const text = (t: string): StreamEvent => ({ type: 'text', text: t })
const cites = (url: string, end?: number): StreamEvent => ({
  type: 'citation',
  citation: { url, title: `About ${url}`, ...(end !== undefined && { start: 0, end }) },
})
const found = (...urls: string[]): StreamEvent => ({
  type: 'search_end',
  id: 'ws_1',
  query: 'q',
  results: urls.map(url => ({ title: '', url, text: `own words of ${url}` })),
})

function read(...events: StreamEvent[]): SearchReader {
  const reader = new SearchReader()
  for (const event of events) reader.push(event)
  reader.end()
  return reader
}

test('a page has the paragraphs that cite it; the others, which were only found, come behind with their own text', () => {
  const block = 'High water is at noon.\nLow water is at six.'
  const reader = read(
    found('https://a.example', 'https://b.example', 'https://c.example'),
    text(block),
    {
      ...cites('https://b.example', block.length),
    } as StreamEvent,
    cites('https://a.example', 10),
  )
  assert.deepEqual(reader.results(5), [
    { title: 'About https://a.example', url: 'https://a.example', text: 'High water is at noon.', pageAge: undefined },
    { title: 'About https://b.example', url: 'https://b.example', text: 'Low water is at six.', pageAge: undefined },
    { title: '', url: 'https://c.example', text: 'own words of https://c.example', pageAge: undefined },
  ])
  assert.equal(reader.results(2).length, 2)
})

test('what cites no page goes with the first; a citation without a place is of its whole block', () => {
  const reader = read(text('In short: noon.'), { type: 'break' }, text('Twice a day.'), cites('https://a.example'))
  assert.deepEqual(reader.results(5), [
    { title: 'About https://a.example', url: 'https://a.example', text: 'In short: noon.\nTwice a day.' },
  ])
})

test('a reply without pages has no results, whatever it says', () => {
  assert.deepEqual(read(text('I know that by heart.')).results(5), [])
})

test('any reply: no more results than wanted, each page once, and no text that was not there', () => {
  const url = fc.constantFrom('https://a.example', 'https://b.example', 'https://c.example')
  const event = fc.oneof(
    fc.string().map(text),
    fc.tuple(url, fc.option(fc.nat(40), { nil: undefined })).map(([page, end]) => cites(page, end)),
    fc.array(url).map(urls => found(...urls)),
    fc.constant<StreamEvent>({ type: 'break' }),
  )
  fc.assert(
    fc.property(fc.array(event), fc.nat(4), (events, most) => {
      const said = events.map(e => (e.type === 'text' ? e.text : '')).join('')
      const results = read(...events).results(most)
      assert.ok(results.length <= most)
      assert.equal(new Set(results.map(page => page.url)).size, results.length)
      for (const page of results)
        for (const line of page.text?.split('\n') ?? [])
          assert.ok(line.startsWith('own words of ') || line === '' || said.includes(line), line)
    }),
  )
})

test('a backend that is listed is taken with its cost and settings; a provider that cannot search is refused', () => {
  const provider = { name: 'p', dialect: 'openai-responses', base_url: 'http://x', headers: {}, settings: {} } as any
  const listed = { provider: 'p', model: 'm', supports: new Set(['web_search']), cost: {} } as any
  const models = { one: { backends: [listed] } } as any
  assert.equal(searchBackend({ providers: { p: provider }, models }, 'p', 'm'), listed)
  const made = searchBackend({ providers: { p: provider }, models }, 'p', 'other')
  assert.ok(typeof made === 'object')
  assert.deepEqual([made.id, made.cost, made.supports.has('web_search')], ['p/other', undefined, true])
  const narrowed = { one: { backends: [{ ...listed, id: 'p/m', supports: new Set(['tools']) }] } } as any
  assert.match(searchBackend({ providers: { p: provider }, models: narrowed }, 'p', 'm') as string, /does not search/)
  assert.match(searchBackend({ providers: {}, models: {} }, 'p', 'm') as string, /name of one of 'providers'/)
  assert.match(searchBackend({ providers: {}, models: {} }, null, 'm') as string, /name of one of 'providers'/)
})
