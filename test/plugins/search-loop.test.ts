/** The loop of gateway-run searches by itself: order, clocks, limits, and what stops it. No network, time by hand. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import type { Conversation, SearchResult } from '../../core/canon/conversation.ts'
import { GatewayError } from '../../core/canon/errors.ts'
import type { StreamEvent } from '../../core/canon/events.ts'
import type { Call, Exchange, Plugin, Send, Slot } from '../../core/plugin.ts'
import { SearchFailed, type SearchOptions, type SearchProvider } from '../../core/ports/search.ts'
import { Ticker } from '../../core/tools/ticker.ts'
import { plainConversation } from '../../plugins/testing.ts'
import { withSearchFunction } from '../../plugins/web-search/function-form.ts'
import { SearchLoop, type SearchLoopOptions } from '../../plugins/web-search/search-loop.ts'
import { asks, part, run, terminal, turn } from '../chain/harness.ts'
import { FORMS } from '../forms.ts'

const CLOCKS = { idle: 90_000, ceiling: 600_000, firstByte: 60_000, headWait: 30_000, drain: 0 }

/** A search provider that answers when the test says so. */
class ByHand implements SearchProvider {
  readonly asked: {
    query: string
    options: SearchOptions
    answer(results: SearchResult[]): void
    fail(error: unknown): void
  }[] = []
  search(query: string, options: SearchOptions): Promise<SearchResult[]> {
    return new Promise((answer, fail) => {
      this.asked.push({ query, options, answer, fail })
    })
  }
  of(query: string) {
    const found = this.asked.find(a => a.query === query)
    assert.ok(found, `${query} is being searched for`)
    return found
  }
}

interface Setup extends Partial<SearchLoopOptions> {
  clocks?: typeof CLOCKS
}

async function start(setup: Setup = {}, asked: Partial<Conversation> = {}, plugins: Plugin[] = []) {
  const { clocks = CLOCKS, ...more } = setup
  const client = plainConversation({ tools: [{ type: 'web_search', path: 'tools[0]' }], ...asked })
  const { conversation, ...form } = withSearchFunction(client)!
  const provider = new ByHand()
  const rounds: Conversation[] = []
  /** The prompt tokens that later rounds report. */
  const further: number[] = []
  let x!: Exchange
  let loop!: SearchLoop
  const r = await run([
    asks(client),
    ...plugins,
    terminal(exchange => {
      x = exchange
      const facts = {
        ...{ id: x.id, clock: x.clock, defer: x.defer.bind(x) },
        peek: (slot: Slot<unknown>) => x.peek(slot),
      }
      const report = { calledAgain: (tokens: number) => void further.push(tokens) }
      const call = {
        sent: conversation,
        input: 1000,
        clocks,
        startedMono: x.clock.mono(),
        facts,
        report,
      } as unknown as Call
      const next: Send = round => {
        rounds.push(round.sent)
        return { pause() {}, resume() {}, abort: () => undefined }
      }
      const ticker = new Ticker(x.clock, 250)
      const log = { debug() {}, info() {}, warn() {}, error() {} }
      const plan = { ...form, provider: 'by-hand', maxTurns: 8, maxSearches: 32, maxResultBytes: 10_000 }
      loop = new SearchLoop(call, x, next, { plan, provider, ticker, log, ...more })
      x.control(loop)
    }),
  ])
  await turn()
  const push = (...events: StreamEvent[]) => {
    for (const event of events) loop.emit(event)
  }
  let calls = 0
  /** A whole call; of the search unless another name is given. */
  const call = (args: string, name = 'web_search'): StreamEvent[] => {
    const index = calls++
    return [
      { type: 'tool_call', index, id: `call_${index}`, kind: 'function', name },
      { type: 'tool_args', index, text: args },
      { type: 'tool_end', index },
    ]
  }
  const search = (query: string) => call(JSON.stringify({ query }))
  const finish = (reason: 'stop' | 'tool_calls' | 'length' = 'tool_calls') => {
    loop.emit({ type: 'finish', reason })
    loop.end()
  }
  const shown = () => r.events().filter(e => e.type !== 'start' && e.type !== 'keep-alive')
  return {
    ...r,
    x,
    loop,
    provider,
    rounds,
    further,
    push,
    call,
    search,
    finish,
    shown,
    types: () => shown().map(e => e.type),
  }
}
const page = (n: number): SearchResult => ({
  title: `Page ${n}`,
  url: `https://example.com/${n}`,
  text: `extract ${n}`,
})

test('[MSG-3] searches run side by side, show in order, and what follows waits behind them', async () => {
  const t = await start()
  t.push({ type: 'text', text: 'one' }, ...t.search('a'), { type: 'text', text: 'two' }, ...t.search('b'))
  assert.deepEqual(
    t.provider.asked.map(a => a.query),
    ['a', 'b'],
  )
  assert.deepEqual(t.types(), ['text', 'search_start'])
  t.provider.of('b').answer([page(2)])
  await turn()
  assert.deepEqual(t.types(), ['text', 'search_start'])
  t.finish()
  t.provider.of('a').answer([page(1)])
  await turn()
  assert.deepEqual(t.types(), ['text', 'search_start', 'search_end', 'text', 'search_start', 'search_end'])
  assert.deepEqual(
    t
      .shown()
      .filter(e => e.type === 'search_end')
      .map(e => e.query),
    ['a', 'b'],
  )

  const [next] = t.rounds
  assert.deepEqual(
    next!.turns.map(turn => turn.role),
    ['user', 'assistant', 'tool'],
  )
  assert.deepEqual(
    next!.turns[1]!.parts.map(p => p.type),
    ['text', 'call', 'text', 'call'],
  )
  const results = next!.turns[2]!.parts as any[]
  assert.match(results[0].content[0].text, /https:\/\/example\.com\/1\nextract 1/)
  assert.deepEqual(
    results.map(p => p.callId),
    ['call_0', 'call_1'],
  )

  t.push({ type: 'text', text: 'done' })
  t.finish('stop')
  assert.equal((await t.settled).outcome, 'completed')
  assert.deepEqual(t.shown().at(-1).reason, 'stop')
  t.clock.advance(1000)
  assert.equal(t.clock.pending, 0)
})

// Rounds of searches are in no limit: 128 of them sent 11.7 MB to a provider for a prompt of 16 tokens.
test('the gateway makes so many searches for a request, and gives so many bytes of results', async () => {
  const t = await start()
  for (let round = 0; round < 4; round++) {
    const queries = Array.from({ length: 10 }, (_, i) => `${round} ${i}`)
    t.push(...queries.flatMap(query => t.search(query)))
    t.finish()
    for (const { query } of [...t.provider.asked]) if (queries.includes(query)) t.provider.of(query).answer([page(1)])
    await turn()
  }
  assert.equal(t.provider.asked.length, 32)
  const results = t.rounds.at(-1)!.turns.at(-1)!.parts as any[]
  assert.match(results.at(-1).content[0].text, /No more searches are allowed for this request/)
  assert.deepEqual(t.rounds.at(-1)!.toolChoice, { type: 'none' })

  const long = await start()
  long.push(...long.search('a'), ...long.search('b'))
  long.finish()
  const pages = Array.from({ length: 4 }, (_, i) => ({ ...page(i), text: '的'.repeat(1000) }))
  long.provider.of('b').answer(pages.slice(0, 2))
  await turn()
  long.provider.of('a').answer(pages)
  await turn()
  const given = (long.rounds[0]!.turns.at(-1)!.parts as any[]).map(part => part.content[0].text.match(/的+/g)?.length)
  assert.deepEqual(given, [1, 2])
  assert.deepEqual(long.rounds[0]!.toolChoice, { type: 'none' })
  long.push(...long.search('c'))
  long.finish()
  assert.equal(long.provider.asked.length, 2)
})

test('[MSG-3] a search has 10 s; a late answer changes nothing', async () => {
  const t = await start()
  t.push(...t.search('a'))
  t.finish()
  t.clock.advance(9_999)
  assert.deepEqual(t.types(), ['search_start'])
  t.clock.advance(1)
  await turn()
  assert.equal(t.shown().at(-1).errorCode, 'unavailable')
  assert.equal(t.provider.of('a').options.signal.aborted, true)
  t.provider.of('a').answer([page(1)])
  await turn()
  assert.equal(t.rounds.length, 1)
  const [result] = t.rounds[0]!.turns.at(-1)!.parts as any[]
  assert.equal(result.isError, true)
  assert.match(result.content[0].text, /could not be made/)
})

test('[MSG-3] a provider says why it failed, in words that the API has', async () => {
  const t = await start()
  t.push(...t.search('a'), ...t.search('b'))
  t.provider.of('a').fail(new SearchFailed('too_many_requests', 'busy'))
  t.provider.of('b').fail('not even an error')
  await turn()
  t.finish()
  assert.deepEqual(
    t
      .shown()
      .filter(e => e.type === 'search_end')
      .map(e => e.errorCode),
    ['too_many_requests', 'unavailable'],
  )
  assert.equal(t.rounds.length, 1)
})

test('[STR-1] [STR-2] idle and ceiling run on while only searches run, and end the reply as incomplete', async () => {
  for (const [clocks, reason, at] of [
    [{ ...CLOCKS, idle: 5000 }, 'idle_timeout', 5000],
    [{ ...CLOCKS, ceiling: 4000 }, 'ceiling_timeout', 4000],
  ] as const) {
    const t = await start({ clocks })
    t.push({ type: 'text', text: 'x' }, ...t.search('a'))
    t.finish()
    t.clock.advance(at - 300)
    assert.deepEqual(t.types(), ['text', 'search_start'])
    t.clock.advance(600)
    const settlement = await t.settled
    assert.equal(settlement.outcome, 'incomplete')
    assert.deepEqual(t.types(), ['text', 'search_start', 'search_end', 'finish'])
    assert.equal(t.shown().at(-1).reason, reason)
    assert.equal(t.provider.of('a').options.signal.aborted, true)
    assert.equal(t.rounds.length, 0)
    t.clock.advance(1000)
    assert.equal(t.clock.pending, 0)
  }
})

test('[STR-2] a round that a clock stopped waits for no search', async () => {
  const t = await start()
  t.push(...t.search('a'), { type: 'text', text: 'after' })
  t.loop.emit({ type: 'finish', reason: 'idle_timeout' })
  t.loop.end()
  assert.equal((await t.settled).outcome, 'incomplete')
  assert.deepEqual(t.types(), ['search_start', 'search_end', 'text', 'finish'])
})

test('[STR-6] a client that leaves, and an exchange that fails, stop the searches', async () => {
  const left = await start()
  left.push(...left.search('a'))
  left.finish()
  left.incoming.abort()
  assert.equal((await left.settled).outcome, 'client_gone')
  assert.equal(left.provider.of('a').options.signal.aborted, true)
  left.provider.of('a').answer([page(1)])
  await turn()
  assert.equal(left.rounds.length, 0)

  // The round's own request still runs, and breaks off.
  const failed = await start()
  failed.push(...failed.search('a'))
  failed.x.fail(new GatewayError('upstream_server_error', { message: 'x' }))
  await failed.settled
  assert.equal(failed.provider.of('a').options.signal.aborted, true)
  for (const t of [left, failed]) {
    t.clock.advance(1000)
    assert.equal(t.clock.pending, 0)
    assert.equal(t.settlements.length, 1)
  }
})

test('[STR-6] a reply that is only drained, for its usage, starts no search and no round', async () => {
  const t = await start()
  // What an attempt answers when the model is to be drained.
  t.x.control({ pause() {}, resume() {}, abort: reason => (reason === 'client_gone' ? 'draining' : undefined) })
  t.push({ type: 'text', text: 'x' }, ...t.search('a'))
  t.incoming.abort()
  t.push(...t.search('b'))
  t.finish()
  assert.equal((await t.settled).outcome, 'client_gone')
  assert.deepEqual(
    t.provider.asked.map(a => [a.query, a.options.signal.aborted]),
    [['a', true]],
  )
  assert.equal(t.rounds.length, 0)
})

// 128 searches sent 2.9 million tokens, of which 16 counted in the limits.
test('each round counts the whole prompt that it sends: that of the round before, what was said, and what was found', async () => {
  const t = await start()
  t.push(...t.search('a'))
  t.provider.of('a').answer([page(1)])
  await turn()
  t.finish()
  t.push(...t.search('b'))
  t.provider.of('b').answer([{ ...page(2), text: 'word '.repeat(500) }])
  await turn()
  t.finish()
  const [second, third] = t.further as [number, number]
  assert.ok(second > 1010 && second < 1100, `${second}: a call and a page`)
  assert.ok(third - second > 400 && third - second < 500, `${third - second}: a call and a page of 400 words`)
})

test('[MSG-3] a slow client’s pause is not the model’s silence', async () => {
  let release!: () => void
  const holder = part('holder', {
    onEvent(x, event) {
      if (event.type === 'search_start') release = x.hold()
      return undefined
    },
  })
  const t = await start({ clocks: { ...CLOCKS, idle: 5000 } }, {}, [holder])
  t.push(...t.search('a'))
  t.finish()
  t.clock.advance(8000)
  assert.equal(t.settlements.length, 0)
  release()
  t.provider.of('a').answer([])
  await turn()
  assert.deepEqual(t.types(), ['search_start', 'search_end'])
  assert.equal(t.rounds.length, 1)
})

test('[MSG-3] more searches than any round may hold are refused, and the loop goes on', async () => {
  const t = await start({}, { surface: 'messages', form: FORMS['messages'] })
  for (let i = 0; i < 20; i++) t.push(...t.search(`q${i}`))
  assert.equal(t.provider.asked.length, 16)
  for (const { answer } of t.provider.asked) answer([])
  await turn()
  t.finish()
  const codes = t
    .shown()
    .filter(e => e.type === 'search_end')
    .map(e => e.errorCode)
  assert.deepEqual(codes, [...Array(16).fill(undefined), ...Array(4).fill('max_uses_exceeded')])
  assert.equal(t.rounds.length, 1)
})

test('[METER-4] [METER-5] usage: prompt and cache of the first round, output and reasoning of all', async () => {
  const t = await start()
  t.push(...t.search('a'), { type: 'usage', usage: { prompt: 100, cached: 50, output: 20, reasoning: 5 } })
  t.provider.of('a').answer([])
  await turn()
  t.finish()
  t.push({ type: 'text', text: 'x' }, { type: 'usage', usage: { prompt: 300, cached: 290, output: 30, reasoning: 7 } })
  const seen: StreamEvent[] = []
  const emit = t.x.emit.bind(t.x)
  t.x.emit = event => {
    seen.push(event)
    emit(event)
  }
  t.finish('stop')
  await t.settled
  assert.deepEqual(
    seen.filter(e => e.type === 'usage').map(e => JSON.parse(JSON.stringify(e.usage))),
    [
      {
        ...{ prompt: 100, cached: 50, output: 50, reasoning: 12 },
        // Beside it what the provider gets for the prompts of both rounds.
        rounds: { count: 2, prompt: 400, cached: 340 },
      },
    ],
  )
})

test('[BILL-3] [METER-4] a round that a clock stops, behind one that was reported, is billed for what it reasoned', async () => {
  const t = await start()
  const seen: StreamEvent[] = []
  const emit = t.x.emit.bind(t.x)
  t.x.emit = event => {
    if (event.type === 'usage') seen.push(event)
    emit(event)
  }
  t.push(...t.search('a'), { type: 'usage', usage: { prompt: 100, output: 20, reasoning: 5 } })
  t.provider.of('a').answer([])
  await turn()
  t.finish()
  t.push({ type: 'reasoning', part: 0, text: 'one two three four five' })
  t.loop.emit({ type: 'finish', reason: 'idle_timeout' })
  t.loop.end()
  assert.equal((await t.settled).outcome, 'incomplete')
  assert.deepEqual(JSON.parse(JSON.stringify(seen)), [
    {
      type: 'usage',
      usage: { prompt: 100, output: 20, reasoning: 10, rounds: { count: 2, prompt: 100 } },
      estimated: true,
    },
  ])
})

/** What a round may hold. */
type Item = 'text' | 'search' | 'call' | 'reasoning' | 'refused'
test('[STR-6] property: whatever a round holds, and in whatever order its searches end, the client sees its items in order, once each', async () => {
  const item = fc.constantFrom<Item>('text', 'search', 'call', 'reasoning', 'refused')
  await fc.assert(
    fc.asyncProperty(fc.array(item, { maxLength: 12 }), fc.infiniteStream(fc.nat(1000)), async (items, random) => {
      const t = await start({}, { surface: 'messages', form: FORMS['messages'] })
      const expected: string[] = []
      const answered = new Set<number>()
      const answerSome = async () => {
        const open = t.provider.asked.map((_, i) => i).filter(i => !answered.has(i))
        const pick = random.next().value
        if (open.length === 0 || pick % 3 === 0) return
        const i = open[pick % open.length]!
        answered.add(i)
        if (pick % 5 === 0) t.provider.asked[i]!.fail(new Error('x'))
        else t.provider.asked[i]!.answer([page(i)])
        await turn()
      }
      for (const [i, kind] of items.entries()) {
        if (kind === 'text') t.push({ type: 'break' }, { type: 'text', text: `t${i}` })
        else if (kind === 'reasoning') t.push({ type: 'reasoning', text: `r${i}`, part: 0 }, { type: 'reasoning_end' })
        else if (kind === 'call') t.push(...t.call(`{"i":${i}}`, 'mine'))
        else t.push(...t.search(kind === 'refused' ? ' ' : `s${i}`))
        expected.push(`${kind === 'refused' ? 'search' : kind} ${i}`)
        await answerSome()
      }
      t.finish('stop')
      while (answered.size < t.provider.asked.length) await answerSome()
      const searches = items.some(kind => kind === 'search' || kind === 'refused')
      const goesOn = searches && !items.includes('call')
      assert.equal(t.rounds.length, goesOn ? 1 : 0)
      if (!goesOn) await t.settled

      const seen: string[] = []
      let open = ''
      let index = 0
      const starts = items.flatMap((kind, i) => (kind === 'search' || kind === 'refused' ? [i] : []))
      for (const event of t.shown()) {
        if (event.type === 'text') seen.push(`text ${event.text.slice(1)}`)
        else if (event.type === 'reasoning') seen.push(`reasoning ${event.text.slice(1)}`)
        else if (event.type === 'tool_args') seen.push(`call ${JSON.parse(event.text).i}`)
        else if (event.type === 'tool_call') assert.equal(event.index, index++)
        else if (event.type === 'search_start') {
          assert.equal(open, '')
          open = event.id
        } else if (event.type === 'search_end') {
          assert.equal(event.id, open)
          open = ''
          seen.push(`search ${starts.shift()}`)
        }
      }
      assert.equal(open, '')
      assert.deepEqual(seen, expected)
    }),
    { numRuns: 150 },
  )
})
