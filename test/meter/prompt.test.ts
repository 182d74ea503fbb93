import assert from 'node:assert/strict'
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { test } from 'node:test'
import type { Conversation } from '../../core/conversation.ts'
import {
  countPrompt,
  countPromptAsync,
  countTokens,
  createMeterPool,
  promptSize,
  SYNC_LIMIT,
} from '../../meter/index.ts'
import { conversation, golden } from './conversations.ts'
import { oracle } from './reference.ts'

const media = { image_tokens: 85, document_tokens: 1500 }
const directory = new URL('golden/', import.meta.url)

const user = (text: string, more: Partial<Conversation> = {}) =>
  conversation({ turns: [{ role: 'user', parts: [{ type: 'text', text }] }], ...more })

// To change the bill on purpose: delete the files, run with METER_GOLDEN=write, and read the difference.
test('[METER-1] golden files pin the rule', () => {
  for (const [name, value] of Object.entries(golden)) {
    const file = new URL(`${name}.json`, directory)
    if (process.env['METER_GOLDEN'] === 'write') {
      writeFileSync(
        file,
        `${JSON.stringify({ media, tokens: countPrompt(value, media), conversation: value }, null, 2)}\n`,
      )
    }
    const pinned = JSON.parse(readFileSync(file, 'utf8'))
    assert.deepEqual(pinned.conversation, JSON.parse(JSON.stringify(value)), name)
    assert.equal(countPrompt(pinned.conversation, pinned.media), pinned.tokens, name)
  }
  assert.deepEqual(
    readdirSync(directory).sort(),
    Object.keys(golden)
      .map(name => `${name}.json`)
      .sort(),
  )
})

test('[METER-1] the rule, summed by hand with js-tiktoken', () => {
  const t = (...texts: string[]) => texts.reduce((sum, text) => sum + oracle(text).length, 0)
  const reply = 3
  assert.equal(countPrompt(conversation(), media), reply)
  assert.equal(countPrompt(golden['hello']!, media), reply + 3 + t('Hello, world!'))
  assert.equal(
    countPrompt(golden['system-and-turns']!, media),
    reply +
      3 +
      t('You are a helpful assistant.', 'Answer briefly.') +
      4 * 3 +
      t('北京今天天气怎么样？', "I can't know. 😀", 'The date is 2026-11-21.'),
  )
  const tools = golden['tools']!
  assert.equal(
    countPrompt(tools, media),
    reply +
      3 * 3 +
      t('Weather in Oslo?', 'Looking.') +
      3 * 3 +
      t('get_weather', '{"city":"Oslo","unit":"c"}', 'run', 'shell', 'curl  wttr.in', 'get_weather', '{"city": "Ber') +
      3 * 3 +
      t('{"temperature":-3}', 'oslo: ❄️', 'see the picture') +
      85 +
      6 * 7 +
      t('get_weather', 'Current weather', JSON.stringify((tools.tools[0] as { parameters: unknown }).parameters)) +
      t('noop', 'mcp', '{"type":"object","properties":{}}') +
      t('run', 'shell', 'Runs a command', 'regex', '[a-z ]+', 'free') +
      t('web_search', 'example.com', 'example.org', '{"type":"approximate","city":"Oslo","country":"NO"}') +
      t('bash', 'Runs a shell command.', '{"type":"object","properties":{"command":{"type":"string"}}}'),
  )
})

test('[METER-3] images and documents count their minimum, a text document its text when that is more', () => {
  const words = countTokens('many words '.repeat(1000))
  assert.ok(words > 1500)
  const rest = 3 + 3 + countTokens('The report') + countTokens('Found on a desk')
  assert.equal(countPrompt(golden['media']!, media), rest + 2 * 85 + 3 * 1500 + words)
  assert.equal(
    countPrompt(golden['media']!, { image_tokens: 0, document_tokens: 0 }),
    rest + words + countTokens('A short note.'),
  )
  assert.equal(countPrompt(golden['media']!, { image_tokens: 1000, document_tokens: 9000 }), rest + 2 * 1000 + 4 * 9000)
})

test('[METER-3] tool results as part lists and custom tool outputs count', () => {
  const result = (kind: 'function' | 'custom', texts: string[]) =>
    countPrompt(
      conversation({
        turns: [
          {
            role: 'tool',
            parts: [
              {
                type: 'result',
                callId: 'c',
                kind,
                content: texts.map(text => ({ type: 'text' as const, text })),
                path: 'x',
              },
            ],
          },
        ],
      }),
      media,
    )
  for (const kind of ['function', 'custom'] as const) {
    assert.equal(result(kind, []), 9)
    assert.equal(result(kind, ['some output']), 9 + countTokens('some output'))
    assert.equal(
      result(kind, ['some', ' output', '!']),
      9 + countTokens('some') + countTokens(' output') + countTokens('!'),
    )
  }
})

test('replayed reasoning counts its summary; private data and what cannot be replayed count nothing', () => {
  const summary = countTokens('The user asks about a match.') + countTokens('I should search.')
  const search =
    3 +
    ['match result', 'Result', 'https://example.com/match', 'They won 3–1.', 'More', 'https://example.com/more'].reduce(
      (n, s) => n + countTokens(s),
      0,
    )
  assert.equal(
    countPrompt(golden['reasoning-and-search']!, media),
    3 + 3 + countTokens('Who won?') + 3 + summary + search + countTokens("I can't say."),
  )
})

test('[METER-1] only content counts: not surface, model, ids, paths, cache markers, controls or private data', () => {
  const scrub = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(scrub)
    if (value === null || typeof value !== 'object') return value
    const out: Record<string, unknown> = {}
    for (const [key, inner] of Object.entries(value)) {
      if (key === 'path' || key === 'id' || key === 'callId') out[key] = `other ${key} that is far longer`
      else if (key === 'handle') out[key] = 'another'
      else if (key === 'continuation' || key === 'maxUses' || key === 'strict' || key === 'isError' || key === 'detail')
        continue
      else out[key] = scrub(inner)
    }
    if (out['type'] === 'text') out['cache'] = { ttl: '1h' }
    return out
  }
  for (const [name, value] of Object.entries(golden)) {
    const other = scrub(value) as Conversation
    for (const surface of ['chat', 'responses', 'messages'] as const) {
      const changed: Conversation = {
        ...other,
        surface,
        requestedModel: 'something-else',
        model: 'eb1-large',
        stream: true,
        toolChoice: { type: 'required' },
        sampling: { stop: ['a', 'b'], logprobs: true, seed: 1 },
        reasoning: { effort: 'high' },
        maxOutputTokens: 5,
        cacheKey: 'k',
        previousResponseId: 'resp',
      }
      assert.equal(countPrompt(changed, media), countPrompt(value, media), `${name} on ${surface}`)
    }
  }
})

test("[METER-1] a call's arguments count alike as received text and as an object written out again", () => {
  const call = (input: string) =>
    countPrompt(
      conversation({
        turns: [
          { role: 'assistant', parts: [{ type: 'call', id: 'c', kind: 'function', name: 'f', input, path: 'x' }] },
        ],
      }),
      media,
    )
  const texts = [
    '{"a": 1, "b": [1.0, "\\u00e9"]}',
    ' {\n  "a" : 1 }',
    '{}',
    '',
    'null',
    '"x"',
    '{"__proto__": {"a":1}}',
    '{"a":"]]]"}',
  ]
  for (const text of texts) {
    let again = text
    try {
      again = JSON.stringify(JSON.parse(text))
    } catch {}
    assert.equal(call(text), call(again))
    assert.equal(call(text), 3 + 3 + 3 + countTokens('f') + countTokens(again))
  }
  // Too deep to be written again on every stack: counts as it stands, brackets in strings notwithstanding.
  for (const open of ['[', '{"a":', '["]",']) {
    const deep = open.repeat(100_000)
    assert.equal(call(deep), 9 + countTokens('f') + countTokens(deep))
  }
  const nested = `${'["]", '.repeat(300)}1${']'.repeat(300)}`
  assert.equal(call(nested), 9 + countTokens('f') + countTokens(nested))
})

test('parts over a kilobyte are counted once, and equal parts in one prompt too', async () => {
  const long = `${'All work and no play makes Jack a dull boy. '.repeat(3000)}once`
  assert.ok(long.length > SYNC_LIMIT)
  const first = user(long)
  assert.equal(promptSize(first), long.length)
  const expected = 6 + countTokens(long)
  assert.equal(countPrompt(first, media), expected)
  // A fresh conversation with a new turn: only the new turn is left to count.
  const second = conversation({
    turns: [
      { role: 'user', parts: [{ type: 'text', text: long }] },
      { role: 'assistant', parts: [{ type: 'text', text: 'New.' }] },
    ],
  })
  assert.equal(promptSize(second), 4)
  assert.equal(countPrompt(second, media), expected + 3 + countTokens('New.'))

  const pool = createMeterPool({ workers: 1 })
  let sent = 0
  const watching = {
    ...pool,
    count(texts: readonly string[], signal?: AbortSignal) {
      sent += texts.length
      return pool.count(texts, signal)
    },
  }
  const twice = `${long}twice`
  const doubled = conversation({
    turns: [{ role: 'user', parts: [twice, twice, long, 'short'].map(text => ({ type: 'text' as const, text })) }],
  })
  const total = 6 + 2 * countTokens(twice) + countTokens(long) + countTokens('short')
  assert.equal(await countPromptAsync(doubled, media, undefined, watching), total)
  assert.equal(sent, 2)
  assert.equal(countPrompt(structuredClone(doubled), media), total)
  await pool.close()
})

test('the size of a small prompt is its text, and of one beyond digesting at a go too', () => {
  assert.equal(promptSize(user('Hello')), 5)
  assert.equal(promptSize(user('x'.repeat(600_000))), 600_000)
})

test('[CNT-1] the asynchronous count is the same count', async () => {
  const pool = createMeterPool({ workers: 2 })
  for (const [name, value] of Object.entries(golden)) {
    assert.equal(
      await countPromptAsync(structuredClone(value), media, undefined, pool),
      countPrompt(value, media),
      name,
    )
  }
  const large = user(`${'😀的a '.repeat(150_000)}\ud83d`)
  assert.equal(
    await countPromptAsync(large, media, undefined, pool),
    6 + countTokens((large.turns[0]!.parts[0] as { text: string }).text),
  )
  await pool.close()
})
