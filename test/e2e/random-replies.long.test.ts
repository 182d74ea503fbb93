/**
 * Random replies of each dialect to each surface, over real connections: streamed in random pieces and accumulated by
 * the official client they are what the same reply is when buffered, and a stream that is cut ends in an error frame or
 * was whole (STR-6).
 */
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import Anthropic from '@anthropic-ai/sdk'
import fc from 'fast-check'
import OpenAI from 'openai'
import { type FakeUpstream, startFakeUpstream } from '../fake-upstream/server.ts'
import { bare } from '../surfaces/openai-kit.ts'
import { bodyOf, DIALECTS, PATHS, read, SURFACES, type SurfaceName, type Tool } from './conversations.ts'
import { startGateway, type TestGateway } from './harness.ts'

let upstream: FakeUpstream
let t: TestGateway
before(async () => {
  upstream = await startFakeUpstream()
  const provider = (dialect: string) => `{ dialect: ${dialect}, base_url: "${upstream.url}", api_key: k }`
  t = await startGateway({
    providers: `  chat: ${provider('openai-chat')}
  responses: ${provider('openai-responses')}
  messages: ${provider('anthropic-messages')}
  gemini: ${provider('gemini')}`,
    plugins: { upstream: '{ attempts: 1, breaker: { failures: 100000, error_rate: 1, window: 1ms, open_for: 1ms } }' },
  })
})
after(async () => {
  await t.close()
  await upstream.close()
})

const TOOLS: Tool[] = [{ name: 'look.up', schema: { type: 'object', properties: {} } }, { name: 'b'.repeat(80) }]
const MORE: Record<SurfaceName, Record<string, unknown>> = {
  chat: { reasoning_effort: 'high' },
  responses: { reasoning: { effort: 'high', summary: 'auto' }, include: ['reasoning.encrypted_content'] },
  messages: { thinking: { type: 'adaptive' } },
}

// ---- what the simulator says ----------------------------------------------------------------------------------------

const words = fc
  .array(fc.constantFrom('word', ' ', '😀', 'é', '\n\n', '"', '\\', 'data: x', '[DONE]', '👩‍👧', '\u2028'), {
    minLength: 1,
  })
  .map(list => `a${list.join('')}`)
const input = fc.dictionary(fc.constantFrom('q', 'é', '0'), fc.oneof(words, fc.integer(), fc.constant(null)), {
  maxKeys: 2,
})
/** In the order that every dialect's buffered reply can say too. */
const directives = fc
  .tuple(
    fc.constantFrom('', 'reason 1', 'reason 3', 'hidden 20'),
    words.map(text => `text ${JSON.stringify(text)}`),
    fc.array(
      fc.tuple(fc.constantFrom(1, 2), input).map(([n, value]) => `call #${n} ${JSON.stringify(value)}`),
      { maxLength: 3 },
    ),
    fc.integer({ min: 1, max: 9 }).map(n => `chunk ${n}`),
    fc.constantFrom('', 'usage none', 'usage late', 'quirk comments', 'quirk crlf'),
  )
  .map(([reason, text, calls, ...rest]) => [reason, text, ...calls, ...rest].filter(part => part !== '').join('; '))
/** Sizes of the pieces, in turn. */
const pieces = fc.array(fc.integer({ min: 1, max: 700 }), { minLength: 1, maxLength: 5 })

/** How much of a stream comes, and whether it ends between two events. */
const cuts = fc.record({ share: fc.noBias(fc.nat(1000)).map(n => n / 1000), between: fc.boolean() })

function* cutUp(bytes: Buffer, sizes: readonly number[]): Generator<Buffer> {
  for (let at = 0, i = 0; at < bytes.length; at += sizes[i++ % sizes.length]!)
    yield bytes.subarray(at, at + sizes[i % sizes.length]!)
}

// ---- what a client gets ---------------------------------------------------------------------------------------------

function accumulate(surface: SurfaceName, sse: string): Promise<any> {
  const headers = { 'content-type': 'text/event-stream; charset=utf-8' }
  const common = { baseURL: 'http://gateway.invalid', maxRetries: 0, fetch: async () => new Response(sse, { headers }) }
  const body = bodyOf(surface, 'm', [{ user: 'x' }], { more: { stream: true } }) as any
  if (surface === 'messages') return new Anthropic({ ...common, authToken: 'k' }).messages.stream(body).finalMessage()
  const client = new OpenAI({ ...common, apiKey: 'k' })
  if (surface === 'chat') return client.chat.completions.stream(body).finalChatCompletion()
  return client.responses.stream(body).finalResponse()
}

/** Without ids, times, and how much of the prompt was cached: that is less for whichever of the two came first. */
function comparable(surface: SurfaceName, object: any): unknown {
  const { prompt, output, reasoning } = read(surface, object)
  const { created, created_at, completed_at, usage, parsed_output, _request_id, ...rest } = bare(object)
  const { stream: _, ...plain } = rest
  const text = JSON.stringify(plain).replace(/\b(resp_|msg_|chatcmpl-|(?:call|item)_eba1_)[\w-]+/g, '$1')
  return { prompt, output, reasoning, plain: comparableMembers(surface, JSON.parse(text)) }
}

/** What the client adds, or leaves out of chunks. */
function comparableMembers(surface: SurfaceName, plain: any): unknown {
  if (surface === 'messages')
    return { ...plain, content: plain.content.map(({ parsed_output: _, ...block }: any) => block) }
  if (surface === 'responses') return plain
  const [{ message, finish_reason }] = plain.choices
  const calls = (message.tool_calls ?? []).map(({ id, type, function: called }: any) => ({ id, type, called }))
  return { content: message.content, refusal: message.refusal ?? null, calls, finish_reason }
}

const TERMINAL: Record<SurfaceName, RegExp> = {
  chat: /^data: \[DONE\]$/gm,
  responses: /^event: response\.(?:completed|incomplete)$/gm,
  messages: /^event: message_stop$/gm,
}
const ERROR: Record<SurfaceName, RegExp> = {
  chat: /^data: \{"error":/gm,
  responses: /^event: error$/gm,
  messages: /^event: error$/gm,
}
const count = (text: string, pattern: RegExp): number => text.match(pattern)?.length ?? 0

async function ask(surface: SurfaceName, model: string, said: string, stream: boolean) {
  const usage = surface === 'chat' && stream && { stream_options: { include_usage: true } }
  const more = { ...MORE[surface], stream, ...usage }
  const body = bodyOf(surface, model, [{ user: `[[sim: ${said}]] x` }], { tools: TOOLS, more })
  const response = await t.post(PATHS[surface], body)
  return { status: response.status, text: await response.text() }
}

for (const [dialect, model] of Object.entries(DIALECTS)) {
  for (const surface of SURFACES) {
    test(`[STR-6] ${dialect} to ${surface}: a random reply is the same streamed and buffered, and a cut one is no reply`, () =>
      fc.assert(
        fc.asyncProperty(directives, pieces, cuts, async (said, sizes, cut) => {
          upstream.script = async turn => turn.send(cutUp((await turn.reply()).body, sizes))
          const buffered = await ask(surface, model, said, false)
          assert.equal(buffered.status, 200, buffered.text)
          const streamed = await ask(surface, model, said, true)
          assert.equal(count(streamed.text, TERMINAL[surface]), 1)
          assert.equal(count(streamed.text, ERROR[surface]), 0)
          const whole = comparable(surface, await accumulate(surface, streamed.text))
          assert.deepEqual(whole, comparable(surface, JSON.parse(buffered.text)))

          upstream.script = async turn => {
            const { body, events } = await turn.reply()
            const left = cut.between
              ? Buffer.from(events.slice(0, Math.floor(cut.share * events.length)).join(''))
              : body.subarray(0, Math.floor(cut.share * body.length))
            return turn.send(cutUp(left, sizes))
          }
          const broken = await ask(surface, model, said, true)
          if (broken.status !== 200) return assert.equal(broken.status, 502, broken.text)
          assert.equal(count(broken.text, TERMINAL[surface]) + count(broken.text, ERROR[surface]), 1, broken.text)
          const typed = surface === 'messages' ? Anthropic.APIError : OpenAI.APIError
          if (count(broken.text, ERROR[surface]) === 1) return assert.rejects(accumulate(surface, broken.text), typed)
          // What finishes all the same had said its last word: at most its usage is missing.
          const { plain } = comparable(surface, await accumulate(surface, broken.text)) as { plain: unknown }
          assert.deepEqual(plain, (whole as { plain: unknown }).plain)
        }),
        { numRuns: 8, seed: 20_261_122 },
      ))
  }
}

test('[METER-1] a call without arguments counts the same, whether the provider writes {} or nothing', async () => {
  const said = 'call #1 {}; chunk 9'
  const output = async (surface: SurfaceName) =>
    read(surface, await accumulate(surface, (await ask(surface, DIALECTS['anthropic-messages'], said, true)).text))
      .output
  for (const surface of SURFACES) {
    upstream.script = async turn => turn.send((await turn.reply()).events)
    const written = await output(surface)
    upstream.script = async turn =>
      turn.send((await turn.reply()).events.filter(event => !event.includes('"partial_json":"{}"')))
    assert.equal(await output(surface), written, surface)
  }
})
