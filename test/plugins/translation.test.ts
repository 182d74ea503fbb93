/**
 * `translation`: writes the upstream request of each attempt in its backend's dialect, when `upstream` asks, and reads
 * the reply back.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Conversation, Part, SurfaceName } from '../../core/canon/conversation.ts'
import { conversation, estimate } from '../../core/plugin.ts'
import type { Backend, DialectName } from '../../core/ports/dialect.ts'
import { JsonBytes } from '../../core/tools/json-bytes.ts'
import { candidates, identity, upstreamConversation, verbatim } from '../../plugins/shared/slots.ts'
import { joined, Verbatim } from '../../plugins/shared/verbatim.ts'
import { plainConversation, type RunOptions, runPlugin } from '../../plugins/testing.ts'
import { translation } from '../../plugins/translation/index.ts'
import { backend, caller, reading, text } from './kit.ts'

/** What goes to a backend for a conversation, and the log. */
async function write(over: Partial<Conversation> = {}, to: Partial<Backend> = {}, more: RunOptions<any> = {}) {
  const run = await runPlugin(translation, {
    reply,
    ...more,
    slots: [
      [identity, caller()],
      [conversation, plainConversation(over)],
      [candidates, [backend(to)]],
      ...(more.slots ?? []),
    ],
  })
  const [sent] = run.requests
  return { ...run, sent: sent!, body: JSON.parse(joined(sent!.body).toString()), raw: joined(sent!.body).toString() }
}

/** A whole reply of openai-chat. */
const reply = () => ({ headers: { 'content-type': 'text/event-stream' }, body: STREAM })
const STREAM = [
  { choices: [{ index: 0, delta: { content: 'hi' } }] },
  { choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] },
]
  .map(frame => `data: ${JSON.stringify(frame)}\n\n`)
  .concat('data: [DONE]\n\n')
  .join('')

const DIALECTS: [dialect: DialectName, path: RegExp, said: (body: any) => unknown][] = [
  ['openai-chat', /^\/chat\/completions$/, body => body.messages[0].content],
  ['openai-responses', /^\/responses$/, body => body.input[0].content[0].text],
  ['anthropic-messages', /^\/messages$|^\/v1\/messages$/, body => body.messages[0].content[0].text],
  ['gemini', /small:streamGenerateContent/, body => body.contents[0].parts[0].text],
]
for (const [dialect, path, said] of DIALECTS) {
  test(`a backend of dialect ${dialect} gets the conversation in it, under its own name of the model`, async () => {
    const { sent, body } = await write({}, { dialect })
    assert.match(sent.path, path)
    assert.equal(JSON.stringify(said(body)).includes('hello'), true)
    assert.ok(dialect === 'gemini' || body.model === 'small')
    assert.ok(!JSON.stringify(body).includes('test-model'))
  })
}

test('what routing put in the place of the conversation is what goes upstream', async () => {
  const instead = plainConversation({ turns: [{ role: 'user', parts: [text('instead')] }] })
  const { body } = await write({}, {}, { slots: [[upstreamConversation, instead]] })
  assert.match(JSON.stringify(body), /instead/)
  assert.doesNotMatch(JSON.stringify(body), /hello/)
})

test('what the backend answers comes back as events', async () => {
  const { events } = await write()
  assert.deepEqual(
    events.map(({ type, text, reason }) => [type, text ?? reason]),
    [
      ['start', undefined],
      ['text', 'hi'],
      ['finish', 'stop'],
    ],
  )
})

// ---- streamed or whole ----------------------------------------------------------------------------------------------

const STREAMS: [what: string, over: Partial<Conversation>, stream: boolean][] = [
  ['a client that wants a stream', { stream: true, maxOutputTokens: 10 }, true],
  ['a buffered reply of any length: its silence could outlast the idle clock', { stream: false }, true],
  ['a buffered reply with a small cap', { stream: false, maxOutputTokens: 2048 }, false],
  ['a buffered reply with a large cap', { stream: false, maxOutputTokens: 2049 }, true],
  ['one that thinks hard', { stream: false, maxOutputTokens: 10, reasoning: { effort: 'high' } }, true],
  ['one that thinks little', { stream: false, maxOutputTokens: 10, reasoning: { effort: 'low' } }, false],
  ['one with thinking switched on', { stream: false, maxOutputTokens: 10, reasoning: { thinking: 'adaptive' } }, true],
  [
    'one with thinking switched off',
    { stream: false, maxOutputTokens: 10, reasoning: { thinking: 'disabled' } },
    false,
  ],
]
for (const [what, over, stream] of STREAMS) {
  test(`read from the upstream ${stream ? 'as a stream' : 'whole'}: ${what}`, async () => {
    const { sent, body } = await write(over)
    const { accept } = sent.headers
    assert.deepEqual([accept, body.stream === true], [stream ? 'text/event-stream' : 'application/json', stream])
  })
}

// ---- ids, keys, and what must not leak ------------------------------------------------------------------------------

const called = (id: string): Partial<Conversation> => ({
  turns: [
    { role: 'user', parts: [text('hello')] },
    { role: 'assistant', parts: [{ type: 'call', id, kind: 'function', name: 'f', input: '{}', path: 'p' }] },
    {
      role: 'tool',
      parts: [{ type: 'result', callId: id, kind: 'function', content: [text('done')], path: 'q' }],
    },
  ],
})

test('[TOOL-4] a public call id becomes one that every dialect takes, the same in call and result, and the same each turn', async () => {
  const ids = async (id: string) => {
    const { body } = await write(called(id))
    return [body.messages[1].tool_calls[0].id, body.messages[2].tool_call_id]
  }
  const [call, result] = await ids('call_eba1_token.with~odd bytes')
  assert.match(call, /^call_[A-Za-z0-9_-]{24}$/)
  assert.equal(result, call)
  assert.deepEqual(await ids('call_eba1_token.with~odd bytes'), [call, call])
  assert.notEqual((await ids('call_eba1_another'))[0], call)
})

test('a client’s cache key goes upstream unreadable, and is another one for another organization', async () => {
  const keyOf = async (over: Partial<Conversation>, more?: RunOptions<any>) =>
    (await write(over, { dialect: 'openai-responses' }, more)).body.prompt_cache_key
  const key = await keyOf({ cacheKey: 'project-x' })
  assert.match(key, /^[\w-]{32}$/)
  assert.equal(await keyOf({ cacheKey: 'project-x' }), key)
  const other = { slots: [[identity, caller({ id: 'globex' })]] } as const
  assert.notEqual(await keyOf({ cacheKey: 'project-x' }, other), key)
  const session = await keyOf({}, { request: { headers: { 'session-id': 's-1' } } })
  assert.match(session, /^[\w-]{32}$/)
  assert.equal(await keyOf({}), undefined)
})

test('half of a surrogate pair goes upstream as U+FFFD: providers take JSON with one for no JSON', async () => {
  const said = async (words: string) => (await write({ turns: [{ role: 'user', parts: [text(words)] }] })).raw
  assert.match(await said('cut \ud83d'), /cut \ufffd/)
  assert.match(await said('whole \ud83d\ude00'), /whole 😀/)
  assert.match(await said('spelled \\ud83d'), /spelled \\\\ud83d/)
})

test('[GEN-2] a control that the dialect cannot carry is left out or lowered, and the log says which', async () => {
  const sampling = { stop: [], logprobs: false, seed: 7, temperature: 1.5 }
  const told = async (dialect: DialectName) => {
    const { log } = await write({ sampling }, { dialect })
    return log.map(({ level, fields }) => [level, fields.left_out])
  }
  assert.deepEqual(await told('anthropic-messages'), [['debug', ['temperature 1.5 as 1', 'seed']]])
  assert.deepEqual(await told('openai-chat'), [])
})

test('long texts go upstream as the bytes they came in', async () => {
  const long = `${'a long text '.repeat(2000)}https://e.x/`
  const bytes = Buffer.from(JSON.stringify({ content: long }).replaceAll('/', '\\/'))
  const shape = new JsonBytes(bytes)
  shape.readAll()
  const sent = new Verbatim()
  const { content } = sent.parse(shape) as { content: string }
  const parts: Part[] = [text(content)]
  const { raw, body } = await write({ turns: [{ role: 'user', parts }] }, {}, { slots: [[verbatim, sent]] })
  assert.ok(raw.includes('https:\\/\\/e.x\\/'))
  assert.equal(body.messages[0].content, long)
})

test('[MSG-1] previews that a Messages client asked for by name reach its own dialect alone', async () => {
  const request = { headers: { 'anthropic-beta': 'interleaved-thinking-2025-05-14' } }
  const headers = async (surface: SurfaceName, dialect: DialectName) =>
    JSON.stringify((await write({}, { dialect }, { request, surface: reading(surface) })).sent.headers)
  assert.match(await headers('messages', 'anthropic-messages'), /interleaved-thinking/)
  assert.doesNotMatch(await headers('chat', 'anthropic-messages'), /interleaved-thinking/)
  assert.doesNotMatch(await headers('messages', 'openai-chat'), /interleaved-thinking/)
})

// The 8,192 of a dialect that needs a cap were more than a small server's whole window: each request without a cap of
// its own was refused.
test('the cap that a dialect sends where nothing sets one is no more than the window leaves', async () => {
  const slots = [[estimate, { input: 1500 }]] as const
  const cap = async (to: Partial<Backend>, over: Partial<Conversation> = {}) =>
    (await write(over, { dialect: 'anthropic-messages', ...to }, { slots })).body.max_tokens
  assert.equal(await cap({ contextWindow: 2048 }), 548)
  assert.equal(await cap({ contextWindow: 1500 }), 1)
  assert.equal(await cap({ contextWindow: 200_000 }), 8192)
  assert.equal(await cap({}), 8192)
  // The client's own cap is its own affair.
  assert.equal(await cap({ contextWindow: 2048 }, { maxOutputTokens: 900, maxOutputField: 'max_tokens' }), 900)
  const { body } = await write({}, { dialect: 'openai-chat', contextWindow: 2048 }, { slots })
  assert.equal(body.max_completion_tokens ?? body.max_tokens, undefined)
})
