/**
 * One row of the table of faults: what the upstream does, what the client gets on each surface in each mode, what the
 * ledger says, and that nothing is left behind.
 */
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { ManualClock, type Timer } from '../../core/tools/clock.ts'
import { startGateway, type TestGateway, type TestOptions } from '../e2e/harness.ts'
import { type FakeUpstream, type Script, settle, startFakeUpstream } from '../fake-upstream/server.ts'
import { freePort } from '../ports.ts'

export const SURFACES = ['chat', 'responses', 'messages'] as const
export type SurfaceName = (typeof SURFACES)[number]

/**
 * How a reply travels. `streamed`: as a stream all the way. `collected`: read from the upstream as a stream, given to
 * the client whole. `whole`: asked for whole.
 */
export const MODES = ['streamed', 'collected', 'whole'] as const
export type Mode = (typeof MODES)[number]

export type Expected =
  /** 200, the simulator's text, completed, billed. */
  | 'served'
  /** An error reply; nothing was delivered, nothing is billed. */
  | { status: number; code: string; retryAfter?: boolean; final?: boolean }
  /** 200, then one error frame and no other end; billed when output was delivered. */
  | { frame: string; billed: boolean }
  /** An ordinary, incomplete end (STR-2). */
  | { incomplete: 'stream_idle_timeout' | 'stream_ceiling_timeout' | 'max_output_tokens' }

export interface Row {
  name: string
  fault: Script
  expect: Expected | Record<Mode, Expected>
  model?: keyof typeof MODELS
  text?: string
  modes?: readonly Mode[]
  /** Requests that the upstream sees for each exchange. Default 1. */
  requests?: number
  /** Moves the clock when the script stalls, milliseconds. */
  advance?: number
  /** The text of a served reply, where it is not the simulator's own. */
  says?: string
}

/** One model for each dialect, all at the fault server; `closed` is a port where nobody listens. */
export const MODELS = {
  'openai-chat': 'eb1-preview',
  'openai-responses': 'eb1-efficient-preview',
  'anthropic-messages': 'eb1-fast-preview',
  gemini: 'eb1-frontier-preview',
  closed: 'eb1-closed-preview',
  'plain-tls': 'eb1-tls-preview',
}

export const TEXT = 'One two three four five six seven.'

/** An upstream that broke off before anything was passed on: 502; afterwards a frame. */
export const cut = (code = 'upstream_server_error'): Record<Mode, Expected> => ({
  streamed: { frame: code, billed: true },
  collected: { status: 502, code },
  whole: { status: 502, code },
})
export const failed: Expected = { status: 502, code: 'upstream_server_error' }

/**
 * A clock that stands still but for the backoff of retries: timers shorter than a tick of the stream clocks run at
 * once.
 */
export class TableClock extends ManualClock {
  override setTimer(ms: number, fn: () => void): Timer {
    if (ms >= 250) return super.setTimer(ms, fn)
    const immediate = setImmediate(fn)
    return { cancel: () => clearImmediate(immediate) }
  }
}

const PATHS: Record<SurfaceName, string> = {
  chat: '/v1/chat/completions',
  responses: '/v1/responses',
  messages: '/v1/messages',
}

export function bodyOf(surface: SurfaceName, mode: Mode, model: string, text: string): Record<string, unknown> {
  // Up to 2048 tokens are asked for whole, more are read as a stream (plugins/translation/index.ts).
  const cap = mode === 'whole' ? 900 : 5000
  const stream = mode === 'streamed'
  const messages = [{ role: 'user', content: text }]
  if (surface === 'chat') return { model, messages, stream, max_completion_tokens: cap }
  if (surface === 'responses') return { model, input: text, stream, max_output_tokens: cap }
  return { model, messages, stream, max_tokens: cap }
}

export interface Outcome {
  status: number
  headers: Headers
  text: string
  /** The connection ended without the terminator. */
  broken: boolean
}

/** Reads a reply to its end, however it ends. */
export async function read(response: Response): Promise<Outcome> {
  const decoder = new TextDecoder()
  let text = ''
  let broken = false
  try {
    for await (const piece of response.body!) text += decoder.decode(piece, { stream: true })
  } catch {
    broken = true
  }
  return { status: response.status, headers: response.headers, text, broken }
}

interface Frame {
  event: string
  json: any
  data: string
}

export function framesOf(text: string): Frame[] {
  const frames: Frame[] = []
  for (const block of text.split('\n\n')) {
    const lines = block.split('\n')
    const data = lines.find(line => line.startsWith('data: '))?.slice(6)
    if (data === undefined) continue
    const event = lines.find(line => line.startsWith('event: '))?.slice(7) ?? ''
    frames.push({ event, data, json: data === '[DONE]' ? null : JSON.parse(data) })
  }
  return frames
}

/** Error frames and successful ends of a stream, in the surface's own form. */
export function endsOf(surface: SurfaceName, text: string): { errors: string[]; ends: string[] } {
  const errors: string[] = []
  const ends: string[] = []
  for (const { event, json, data } of framesOf(text)) {
    if (surface === 'chat') {
      if (json?.error) errors.push(json.error.code)
      if (data === '[DONE]') ends.push('done')
    } else if (surface === 'responses') {
      if (event === 'error') errors.push(json.code)
      if (event === 'response.completed' || event === 'response.incomplete') ends.push(event)
      if (event === 'response.failed') assert.equal(json.response.status, 'failed')
    } else {
      if (event === 'error') errors.push(json.error.code)
      if (event === 'message_stop') ends.push(event)
    }
  }
  return { errors, ends }
}

/** What a reply says, streamed or whole. */
export function saidIn(surface: SurfaceName, mode: Mode, text: string): string {
  if (mode !== 'streamed') {
    const body = JSON.parse(text)
    if (surface === 'chat') return body.choices[0].message.content
    if (surface === 'messages') return body.content.map((block: any) => block.text ?? '').join('')
    return body.output
      .flatMap((item: any) => item.content ?? [])
      .map((part: any) => part.text ?? '')
      .join('')
  }
  let said = ''
  for (const { event, json } of framesOf(text)) {
    if (surface === 'chat') said += json?.choices?.[0]?.delta?.content ?? ''
    else if (surface === 'responses') said += event === 'response.output_text.delta' ? json.delta : ''
    else said += event === 'content_block_delta' ? (json.delta.text ?? '') : ''
  }
  return said
}

/** How a whole or streamed reply says that it is incomplete. */
function incompleteIn(surface: SurfaceName, mode: Mode, text: string, reason: string): void {
  if (mode !== 'streamed') {
    const body = JSON.parse(text)
    if (surface === 'chat') assert.equal(body.choices[0].finish_reason, 'length')
    else if (surface === 'messages') assert.equal(body.stop_reason, 'max_tokens')
    else assert.deepEqual([body.status, body.incomplete_details?.reason], ['incomplete', reason])
    return
  }
  const frames = framesOf(text)
  if (surface === 'chat') assert.ok(frames.some(({ json }) => json?.choices?.[0]?.finish_reason === 'length'))
  else if (surface === 'messages') assert.ok(frames.some(({ json }) => json?.delta?.stop_reason === 'max_tokens'))
  else assert.equal(frames.at(-1)!.json.response.incomplete_details.reason, reason)
}

/** Client errors that an upstream's answer turned into, and shared capacity: the ledger calls them refusals. */
const REFUSALS = new Set(['context_length_exceeded', 'invalid_value', 'capacity_exceeded'])

export interface Table {
  readonly t: TestGateway
  readonly upstream: FakeUpstream
  readonly clock: TableClock
  /** Timers of the gateway at rest. */
  readonly timers: number
}

/**
 * A gateway whose every model is at a fault server. One exchange at a time fits: a slot that is not given back refuses
 * the next.
 */
export async function startTable(options: TestOptions = {}): Promise<Table & { close(): Promise<void> }> {
  const upstream = await startFakeUpstream()
  const clock = new TableClock()
  const provider = (dialect: string, url = upstream.url) => `{ dialect: ${dialect}, base_url: "${url}", api_key: k }`
  const backends = Object.entries(MODELS).map(
    ([name, id]) =>
      `  ${id}: { context_window: 400000, price: { input: 1.25, output: 10.00 }, backends: [{ provider: at_${name.replace('-', '_')}, model: sim-faulty }] }`,
  )
  const t = await startGateway({
    organization: '    limits: { concurrent_requests: 1 }',
    models: backends.join('\n'),
    plugins: { upstream: '{ first_byte_timeout: 20s, breaker: { failures: 100000, error_rate: 1, open_for: 1ms } }' },
    ...options,
    gateway: { clock, ...options.gateway },
    yaml: undefined,
    extra: `platform: { max_concurrent_requests: 1, scale_limits_above: 1 }\n${options.extra ?? ''}`,
    providers: `  at_openai_chat: ${provider('openai-chat')}
  at_openai_responses: ${provider('openai-responses')}
  at_anthropic_messages: ${provider('anthropic-messages')}
  at_gemini: ${provider('gemini')}
  at_closed: ${provider('openai-chat', `http://127.0.0.1:${await freePort()}`)}
  at_plain_tls: ${provider('openai-chat', upstream.url.replace('http:', 'https:'))}`,
  })
  return {
    t,
    upstream,
    clock,
    timers: clock.pending,
    async close() {
      await t.close()
      await upstream.close()
    },
  }
}

/** Runs rows as tests: each on every surface, in each of its modes. */
export function faultTable(rows: readonly Row[]): void {
  let table: Awaited<ReturnType<typeof startTable>>
  before(async () => {
    table = await startTable()
  })
  after(() => table.close())
  for (const row of rows) {
    test(`${row.name}`, { timeout: 120_000 }, async () => {
      for (const surface of SURFACES) {
        for (const mode of row.modes ?? MODES) await exchange(table, row, surface, mode)
      }
    })
  }
}

async function exchange(table: Table, row: Row, surface: SurfaceName, mode: Mode): Promise<void> {
  const { t, upstream, clock } = table
  const where = `${row.name}, ${surface}, ${mode}`
  const expected = typeof row.expect === 'object' && 'streamed' in row.expect ? row.expect[mode] : row.expect
  // Breakers close, the retry budget fills, idle connections stay.
  clock.advance(60_000)
  upstream.script = row.fault
  const seen = upstream.requests.length
  const stalled = upstream.whenStalled()
  const model = MODELS[row.model ?? 'openai-chat']
  const pending = t.post(PATHS[surface], bodyOf(surface, mode, model, `[[sim: text "${row.text ?? TEXT}"]] go`))
  const reply = pending.then(read)
  if (row.advance !== undefined) {
    await stalled
    // The head and what was delivered so far are with the client before time moves.
    await flowed(
      t,
      pending,
      typeof expected === 'object' && ('frame' in expected || 'incomplete' in expected) && mode === 'streamed',
    )
    clock.advance(row.advance)
  }
  const outcome = await reply
  check(where, surface, mode, expected, outcome, row.says ?? row.text ?? TEXT)

  assert.equal(t.gateway.ingress.running.size, 0, `${where}: nothing runs on`)
  assert.equal(upstream.requests.length - seen, row.requests ?? 1, `${where}: requests that the upstream saw`)
  // Hangs (and the test with it) when a connection is kept inside a dead exchange.
  clock.advance(2000)
  await upstream.quiet()
  assert.ok(
    clock.pending <= table.timers,
    `${where}: ${clock.pending} timers are set, ${table.timers} before the first exchange`,
  )

  const id = outcome.headers.get('x-request-id')!
  const rows = (await t.ledger()).filter(entry => entry.request_id === id)
  assert.equal(rows.length, 1, `${where}: one ledger row`)
  const [entry] = rows
  const billed = entry!.cost > 0
  if (expected === 'served') assert.deepEqual([entry!.outcome, billed], ['completed', true], where)
  else if ('incomplete' in expected) assert.deepEqual([entry!.outcome, billed], ['incomplete', true], where)
  else if ('frame' in expected) assert.deepEqual([entry!.outcome, billed], ['upstream_error', expected.billed], where)
  else
    assert.deepEqual(
      [entry!.outcome, billed],
      [REFUSALS.has(expected.code) ? 'refused' : 'upstream_error', false],
      where,
    )
}

/** Waits until the gateway has read what the script wrote before it stalled. */
async function flowed(t: TestGateway, pending: Promise<Response>, head: boolean): Promise<void> {
  while (t.gateway.ingress.running.size === 0) await turn()
  if (head) await pending
  for (let i = 0; i < 3; i++) await settle()
}
const turn = () => new Promise<void>(resolve => setImmediate(resolve))

export function check(
  where: string,
  surface: SurfaceName,
  mode: Mode,
  expected: Expected,
  { status, headers, text, broken }: Outcome,
  says: string,
): void {
  if (expected === 'served') {
    assert.equal(status, 200, `${where}: ${text}`)
    assert.equal(broken, false, where)
    assert.equal(saidIn(surface, mode, text), says, where)
    if (mode === 'streamed')
      assert.deepEqual([endsOf(surface, text).errors, endsOf(surface, text).ends.length], [[], 1], where)
    return
  }
  if ('status' in expected) {
    assert.equal(status, expected.status, `${where}: ${text}`)
    const { error } = JSON.parse(text)
    assert.equal(error.code, expected.code, where)
    assert.equal(error.request_id, headers.get('x-request-id'), where)
    if (expected.retryAfter !== undefined)
      assert.equal(headers.has('retry-after'), expected.retryAfter, `${where}: Retry-After`)
    if (expected.final !== undefined)
      assert.equal(headers.get('x-should-retry') === 'false', expected.final, `${where}: x-should-retry`)
    assert.deepEqual(
      [...headers.keys()].filter(name => name.startsWith('x-ratelimit-') && expected.status === 429),
      [],
      where,
    )
    return
  }
  assert.equal(status, 200, `${where}: ${text}`)
  if ('incomplete' in expected) {
    assert.equal(broken, false, where)
    if (mode === 'streamed')
      assert.deepEqual([endsOf(surface, text).errors, endsOf(surface, text).ends.length], [[], 1], where)
    incompleteIn(surface, mode, text, expected.incomplete)
    return
  }
  assert.deepEqual(endsOf(surface, text), { errors: [expected.frame], ends: [] }, `${where}: ${text}`)
  assert.equal(broken, false, `${where}: the frame is the end, and the body ends behind it`)
}
