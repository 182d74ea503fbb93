/**
 * What time does to a stream: idle and ceiling stops, keep-alives, the head that goes out without an event. The clock
 * is the test's.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ManualClock } from '../../core/tools/clock.ts'
import { servedBy } from '../../plugins/shared/slots.ts'
import { behave, startFakeUpstream } from '../fake-upstream/server.ts'
import { startGateway, type TestGateway } from './harness.ts'

async function withClock(run: (t: TestGateway, clock: ManualClock) => Promise<void>): Promise<void> {
  const clock = new ManualClock()
  const t = await startGateway({ gateway: { clock } })
  try {
    await run(t, clock)
  } finally {
    await t.close()
  }
}

/** Reads a stream until its text matches, then hands back the reader. */
async function until(
  response: Response,
  pattern: RegExp,
): Promise<{ text: () => string; more: () => Promise<void>; rest: () => Promise<string> }> {
  const reader = response.body!.getReader()
  const decoder = new TextDecoder()
  let text = ''
  while (!pattern.test(text)) {
    const { done, value } = await reader.read()
    if (done) throw new Error(`the stream ended before ${pattern}: ${text}`)
    text += decoder.decode(value, { stream: true })
  }
  return {
    text: () => text,
    /** Waits for the next piece. */
    async more() {
      const { value } = await reader.read()
      text += decoder.decode(value, { stream: true })
    },
    async rest() {
      for (;;) {
        const { done, value } = await reader.read()
        if (done) return text
        text += decoder.decode(value, { stream: true })
      }
    },
  }
}

const MODEL =
  '  eb1-preview: { context_window: 400000, price: { input: 1.25, output: 10.00 }, backends: [{ provider: chat, model: sim-large }] }'

const CASES = [
  {
    surface: 'chat',
    path: '/v1/chat/completions',
    body: (text: string, effort?: string) => ({
      model: 'eb1-preview',
      stream: true,
      messages: [{ role: 'user', content: text }],
      ...(effort && { reasoning_effort: effort }),
    }),
    first: /"content":"[^"]/,
    ended: (reason: string) => (reason ? /"finish_reason":"length"[\s\S]*\[DONE\]/ : /./),
    keepAlive: /: keep-alive\n/g,
  },
  {
    surface: 'responses',
    path: '/v1/responses',
    body: (text: string, effort?: string) => ({
      model: 'eb1-preview',
      stream: true,
      input: text,
      ...(effort && { reasoning: { effort } }),
    }),
    first: /output_text\.delta/,
    ended: (reason: string) => new RegExp(`event: response\\.incomplete\\n[\\s\\S]*"reason":"${reason}"`),
    keepAlive: /event: keepalive\n/g,
  },
  {
    surface: 'messages',
    path: '/v1/messages',
    body: (text: string, effort?: string) => ({
      model: 'eb1-preview',
      stream: true,
      max_tokens: 5000,
      messages: [{ role: 'user', content: text }],
      ...(effort && { output_config: { effort } }),
    }),
    first: /text_delta/,
    ended: () => /"stop_reason":"max_tokens"[\s\S]*message_stop/,
    keepAlive: /event: ping\n/g,
  },
] as const

for (const c of CASES) {
  test(`[STR-1] [STR-2] [BILL-3] ${c.surface}: an idle stream stops at its row's limit, as incomplete, and is billed`, () =>
    withClock(async (t, clock) => {
      for (const [effort, idle] of [
        [undefined, 90_000],
        ['xhigh', 120_000],
      ] as const) {
        const response = await t.post(c.path, c.body('[[sim: stall 6]] tell me a story', effort))
        const stream = await until(response, c.first)
        clock.advance(idle - 1000)
        assert.equal(t.gateway.ingress.running.size, 1, 'still running just before the limit')
        clock.advance(1500)
        assert.match(await stream.rest(), c.ended('stream_idle_timeout'))
        const row = (await t.ledger()).at(-1)!
        assert.equal(row.outcome, 'incomplete')
        assert.ok(row.output > 0 && row.cost > 0)
      }
    }))

  test(`[STR-5] ${c.surface}: keep-alives every 15 s of silence, which are no model activity`, () =>
    withClock(async (t, clock) => {
      const response = await t.post(c.path, c.body('[[sim: stall 6]] tell me a story'))
      const stream = await until(response, c.first)
      for (let s = 0; s < 89; s++) clock.advance(1000)
      clock.advance(1500)
      const text = await stream.rest()
      // At 15, 30, 45, 60 and 75 s; the one due at 90 s meets the stop.
      assert.ok([5, 6].includes(text.match(c.keepAlive)!.length))
      assert.match(text, c.ended('stream_idle_timeout'))
    }))
}

test('[STR-2] a working stream is stopped at its ceiling, not before', () =>
  withClock(async (t, clock) => {
    const response = await t.post('/v1/responses', {
      model: 'eb1-preview',
      stream: true,
      input: '[[sim: tokens 4000; pace 10ms]] long',
      reasoning: { effort: 'minimal' },
    })
    const stream = await until(response, /output_text\.delta/)
    // Activity at every step: only the wall clock can end it.
    for (let minute = 0; minute < 4; minute++) {
      clock.advance(60_000)
      const seen = t.gateway.ingress.running.size
      assert.equal(seen, 1)
      // Some pieces may have been on their way already: the last of these came after the clock moved.
      for (let i = 0; i < 8; i++) await stream.more()
    }
    clock.advance(61_000)
    assert.match(await stream.rest(), /"reason":"stream_ceiling_timeout"/)
    assert.equal((await t.ledger()).at(-1)!.outcome, 'incomplete')
  }))

test('[STR-1] a buffered request obeys the same rows and ends as length', () =>
  withClock(async (t, clock) => {
    const pending = t.post('/v1/chat/completions', {
      model: 'eb1-preview',
      messages: [{ role: 'user', content: '[[sim: stall 6]] story' }],
    })
    while (t.simulator.requests.length === 0) await new Promise<void>(resolve => setImmediate(resolve))
    while (![...t.gateway.ingress.running].some(x => x.peek(servedBy)))
      await new Promise<void>(resolve => setImmediate(resolve))
    clock.advance(91_000)
    const body = (await (await pending).json()) as any
    assert.equal(body.choices[0].finish_reason, 'length')
    assert.ok(body.usage.completion_tokens > 0)
  }))

test('the head goes out after 30 s without an event, with keep-alives; no event by first_byte_timeout is an error frame', () =>
  withClock(async (t, clock) => {
    const pending = t.post('/v1/chat/completions', {
      model: 'eb1-preview',
      stream: true,
      reasoning_effort: 'xhigh',
      messages: [{ role: 'user', content: '[[sim: stall 0]] x' }],
    })
    while (t.simulator.requests.length === 0) await new Promise<void>(resolve => setImmediate(resolve))
    clock.advance(29_000)
    await new Promise<void>(resolve => setImmediate(resolve))
    clock.advance(1500)
    const response = await pending
    assert.equal(response.status, 200)
    clock.advance(16_000)
    const stream = await until(response, /: keep-alive/)
    clock.advance(74_000)
    await stream.rest()
    assert.match(stream.text(), /: keep-alive/)
    assert.match(stream.text(), /"code":"gateway_timeout"/)
  }))

/**
 * The idle limit (90 s) came before first_byte_timeout (120 s): a provider that never sent a byte was an empty reply
 * with `length`, billed for the prompt, and with a high effort, whose idle limit is 120 s, a 504.
 */
test('[STR-1] [ERR-6] a buffered reply is as good when its first event comes late; one that never begins is 504, whatever the effort', async () => {
  const clock = new ManualClock()
  const upstream = await startFakeUpstream()
  const t = await startGateway({
    gateway: { clock },
    providers: `  chat: { dialect: openai-chat, base_url: "${upstream.url}" }`,
    models: MODEL,
    plugins: { upstream: '{ breaker: { failures: 1000 } }' },
  })
  try {
    for (const { surface, path, body } of CASES) {
      for (const [comes, effort, limit] of [
        [true, undefined, 90_000],
        [false, undefined, 90_000],
        [false, 'xhigh', 120_000],
      ] as const) {
        let answer = () => {}
        const late = new Promise<void>(resolve => (answer = resolve))
        const stalled = upstream.whenStalled()
        upstream.script = async turn => {
          void turn.stall()
          await late
          await behave(turn)
        }
        const pending = t.post(path, { ...body('[[sim: text "late"]] x', effort), stream: false })
        await stalled
        clock.advance(31_000)
        if (comes) answer()
        else {
          clock.advance(limit - 31_000 - 1000)
          assert.equal(t.gateway.ingress.running.size, 1, 'still waiting just before the limit')
          clock.advance(1500)
        }
        const response = await pending
        const text = await response.text()
        const { outcome, cost } = (await t.ledger()).at(-1)!
        assert.equal(response.status, comes ? 200 : 504, `${surface}: ${text}`)
        assert.match(text, comes ? /"late"/ : /"gateway_timeout"/, surface)
        assert.deepEqual([outcome, cost > 0], comes ? ['completed', true] : ['upstream_error', false])
        if (!comes) assert.ok(response.headers.get('retry-after'))
        answer()
      }
    }
  } finally {
    await t.close()
    await upstream.close()
  }
})

test('[ERR-6] no first event by a short first_byte_timeout: 504 with Retry-After, before the head', async () => {
  const clock = new ManualClock()
  const t = await startGateway({ gateway: { clock }, plugins: { upstream: '{ first_byte_timeout: 5s }' } })
  try {
    const pending = t.post('/v1/chat/completions', {
      model: 'eb1-preview',
      stream: true,
      messages: [{ role: 'user', content: '[[sim: stall 0]] x' }],
    })
    while (t.simulator.requests.length === 0) await new Promise<void>(resolve => setImmediate(resolve))
    clock.advance(5500)
    const response = await pending
    assert.equal(response.status, 504)
    assert.equal(((await response.json()) as any).error.code, 'gateway_timeout')
    assert.ok(response.headers.get('retry-after'))
    const row = (await t.ledger()).at(-1)!
    assert.equal(row.outcome, 'upstream_error')
    assert.equal(row.cost, 0)
  } finally {
    await t.close()
  }
})
