/** response-cache: which requests are the same, and what is forgotten. test/e2e/response-cache.test.ts has the replies. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { registerPluginHooks } from '../../../config/modules.ts'
import type { Conversation, Part, Tool } from '../../../core/canon/conversation.ts'
import type { StreamEvent } from '../../../core/canon/events.ts'
import type { Call, CallSink } from '../../../core/ports/call.ts'
import { plainConversation } from '../../../plugins/testing.ts'

// With them a file can import `sluice`.
registerPluginHooks()
const { default: plugin } = await import('../../../plugins/extra/response-cache.ts')

const OPTIONS = {
  share: 0,
  keep: 1000,
  kept_in: 'process' as 'process' | 'store',
  max_bytes: 1 << 20,
  each: 1 << 20,
  max_reply: 10_000,
  max_request: 10_000,
}

/** A cache whose backend answers with as many characters as it is told to. */
class Cache {
  now = 0
  readonly #layer
  #asked = false
  #length = 0
  constructor(options: Partial<typeof OPTIONS> = {}) {
    const made = plugin.create({ ...OPTIONS, ...options }, { clock: { now: () => this.now } } as never) as any
    this.#layer = made.callLayer((_: Call, sink: CallSink) => {
      this.#asked = true
      sink.emit({ type: 'text', text: 'x'.repeat(this.#length) })
      sink.emit({ type: 'finish', reason: 'stop' })
      sink.end()
    })
  }

  /** @returns whether a backend was asked */
  ask(asked: Conversation, { organization = 'acme', length = 1, input = 1 } = {}): boolean {
    this.#asked = false
    this.#length = length
    const facts = {
      incoming: { headers: new Map() },
      get: () => ({ organization: { id: organization } }),
      set() {},
      clock: { now: () => this.now },
    }
    const sink = { emit(_: StreamEvent) {}, flush: () => true, end() {}, fail: assert.fail, closed: false }
    this.#layer({ asked, sent: asked, input, facts, report: { answeredInstead() {} } } as never, sink)
    return this.#asked
  }
}

const user = (...parts: Part[]): Conversation['turns'][number] => ({ role: 'user', parts })
const text = (words: string): Part => ({ type: 'text', text: words })
const base = plainConversation({ turns: [user(text('hi'))] })
const f: Tool = { type: 'function', name: 'f', parameters: { type: 'object', properties: {} }, path: 'tools[0]' }

test('whatever a model could see, or shapes its reply, makes another request', () => {
  const others: Partial<Conversation>[] = [
    { model: 'another' },
    { surface: 'messages' },
    { system: [{ type: 'text', text: 'hi' }] },
    { turns: [user(text('h'), text('i'))] },
    { turns: [{ role: 'assistant', parts: [text('hi')] }] },
    { turns: [user({ type: 'refusal', text: 'hi' })] },
    { tools: [f] },
    { tools: [{ ...f, parameters: { type: 'object', properties: { path: { type: 'string' } } } } as Tool] },
    { tools: [{ ...f, strict: true } as Tool] },
    { tools: [f], toolChoice: { type: 'required' } },
    { parallelToolCalls: !base.parallelToolCalls },
    { maxOutputTokens: 7 },
    { maxSearches: 1 },
    { verbosity: 'low' },
    { output: { strict: true, path: 'a' } },
    { output: { strict: true, path: 'a', schema: { type: 'object' } } },
    { sampling: { ...base.sampling, seed: 1 } },
    { sampling: { ...base.sampling, stop: ['x'] } },
    { reasoning: { effort: 'low' } },
    { turns: [user({ type: 'image', source: { kind: 'data', mediaType: 'image/png', data: 'AAAA' }, path: 'a' })] },
    { turns: [user({ type: 'image', source: { kind: 'data', mediaType: 'image/png', data: 'AAAB' }, path: 'a' })] },
    { turns: [user(text('hi')), { role: 'assistant', parts: [{ type: 'reasoning', summary: ['a'] }] }] },
    { turns: [user(text('hi')), { role: 'assistant', parts: [{ type: 'reasoning', summary: ['b'] }] }] },
  ]
  const cache = new Cache()
  const all = [base, ...others.map(other => ({ ...base, ...other }))]
  for (const each of all) assert.equal(cache.ask(each), true, JSON.stringify(each))
  for (const each of all) assert.equal(cache.ask(each), false, JSON.stringify(each))
  assert.equal(cache.ask(base, { organization: 'another' }), true)
})

test('how it is sent makes none: streams, names of models, ids, paths, marks of caches, bookkeeping of clients', () => {
  const run = (id: string, words: string) => [
    user(text('hi')),
    {
      role: 'assistant' as const,
      parts: [
        { type: 'reasoning' as const, summary: ['so'], handle: `r${id}` },
        { type: 'call' as const, id, kind: 'function' as const, name: 'f', input: words, path: id },
        { type: 'call' as const, id: `${id}b`, kind: 'function' as const, name: 'f', input: words, path: id },
      ],
    },
    {
      role: 'tool' as const,
      parts: [
        {
          type: 'result' as const,
          callId: id,
          kind: 'function' as const,
          content: [{ type: 'text', text: '1' }],
          path: id,
        },
        {
          type: 'result' as const,
          callId: `${id}b`,
          kind: 'function' as const,
          content: [{ type: 'text', text: '2' }],
          path: id,
        },
      ] as Part[],
    },
  ]
  const cache = new Cache()
  assert.equal(cache.ask({ ...base, turns: run('a', '{}') }), true)
  assert.equal(cache.ask({ ...base, turns: run('z', '{}') }), false)
  assert.equal(cache.ask({ ...base, turns: run('a', '[]') }), true)
  // Results that change places with each other are other results.
  const crossed = run('a', '{}')
  crossed[2]!.parts.reverse()
  assert.equal(cache.ask({ ...base, turns: crossed }), true)
  assert.equal(cache.ask(base), true)
  for (const same of [
    { stream: true },
    { requestedModel: 'an-alias' },
    { cacheKey: 'k' },
    { store: false },
    { turns: [user({ type: 'text', text: 'hi', cache: { ttl: '1h' } })] },
  ])
    assert.equal(cache.ask({ ...base, ...same }), false, JSON.stringify(same))
  const booked = (words: string) => ({
    ...base,
    system: [{ type: 'text' as const, text: words, meteredOnly: true as const }],
  })
  assert.equal(cache.ask(booked('session=1')), true)
  assert.equal(cache.ask(booked('session=2')), false)
})

test('what more than the request decides is always asked, and so is what is too long', () => {
  const cache = new Cache()
  const always: Partial<Conversation>[] = [
    { tools: [{ type: 'web_search' } as Tool] },
    { turns: [user({ type: 'image', source: { kind: 'url', url: 'https://example.com' }, path: 'a' })] },
    { turns: [user(text('x'.repeat(10_001)))] },
    { turns: [] },
    { generate: false },
    { compaction: { only: true, keeps: 'nothing', path: 'a' } },
  ]
  for (const each of [...always, ...always]) assert.equal(cache.ask({ ...base, ...each }), true, JSON.stringify(each))
  for (const _ of [1, 2]) assert.equal(cache.ask(base, { input: 10_001 }), true)
  for (const _ of [1, 2]) assert.equal(cache.ask(base, { length: 10_001 }), true)
  const edge = { ...base, turns: [user(text('x'.repeat(10_000)))] }
  assert.deepEqual([cache.ask(edge), cache.ask(edge)], [true, false])
})

test('for any use, what is kept is what a plain list with the same bounds keeps (property)', () => {
  const [EACH, ALL, KEEP] = [4000, 6000, 50]
  const step = fc.record({ organization: fc.nat(3), n: fc.nat(4), length: fc.nat(1500), wait: fc.nat(20) })
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), steps => {
      const cache = new Cache({ each: EACH, max_bytes: ALL, keep: KEEP })
      // What was used last stands last.
      let kept: { organization: number; n: number; size: number; at: number }[] = []
      const used: number[] = []
      const touch = (organization: number) => {
        const place = used.indexOf(organization)
        if (place >= 0) used.splice(place, 1)
        used.push(organization)
      }
      const sum = (organization?: number) =>
        kept.reduce(
          (all, one) => all + (organization === undefined || one.organization === organization ? one.size : 0),
          0,
        )
      const drop = (organization: number) => {
        const oldest = kept.find(one => one.organization === organization)!
        kept = kept.filter(one => one !== oldest)
      }
      for (const { organization, n, length, wait } of steps) {
        cache.now += wait
        const found = kept.find(one => one.organization === organization && one.n === n)
        kept = kept.filter(one => one !== found)
        const fresh = found && cache.now - found.at < KEEP
        const asked = cache.ask(
          { ...base, turns: [user(text(String(n)))] },
          { organization: String(organization), length },
        )
        assert.equal(asked, !fresh)
        if (fresh) {
          kept.push(found)
          touch(organization)
          continue
        }
        const events = [
          { type: 'text', text: 'x'.repeat(length) },
          { type: 'finish', reason: 'stop' },
        ]
        const size = JSON.stringify(events).length + 512
        while (sum(organization) + size > EACH) drop(organization)
        while (sum() + size > ALL) drop(used.find(other => kept.some(one => one.organization === other))!)
        kept.push({ organization, n, size, at: cache.now })
        touch(organization)
      }
    }),
    { numRuns: 300 },
  )
})

test('at its bounds: a reply lasts until its end, a request may be as long as it may, and replies fill an organization', () => {
  const cache = new Cache({ each: 2 * (512 + 100) })
  assert.deepEqual([cache.ask(base, { input: 10_000 }), cache.ask(base)], [true, false])
  cache.now += 999
  assert.equal(cache.ask(base), false)
  cache.now += 1
  // The JSON of its events has 100 bytes.
  const events = (length: number) => [
    { type: 'text', text: 'x'.repeat(length) },
    { type: 'finish', reason: 'stop' },
  ]
  const length = 100 - JSON.stringify(events(0)).length
  const second = { ...base, model: 'another' }
  const third = { ...base, model: 'a third' }
  assert.deepEqual(
    [base, second, base, second, third, base].map(each => cache.ask(each, { length })),
    [true, true, false, false, true, true],
  )
})

test('bounds that contradict each other do not load', () => {
  const check = (options: Partial<typeof OPTIONS>) => plugin.check!({ ...OPTIONS, ...options }, {} as never)
  assert.deepEqual(check({}), [])
  assert.match(check({ each: (1 << 20) + 1 })[0]!, /each is above max_bytes/)
  assert.match(check({ max_reply: (1 << 20) + 1 })[0]!, /max_reply is above each/)
  const stored = { kept_in: 'store' as const, each: 1, max_bytes: 1 }
  assert.deepEqual(check(stored), [])
  assert.match(check({ ...stored, max_reply: (1 << 20) + 1 })[0]!, /max_reply is above 1 MiB/)
})
