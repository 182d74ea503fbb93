import assert from 'node:assert/strict'
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { test } from 'node:test'
import fc from 'fast-check'
import type { Conversation, Part } from '../../core/canon/conversation.ts'
import { countTokens, createMeterPool, PromptCount, SYNC_LIMIT } from '../../meter/index.ts'
import { conversation, golden } from './conversations.ts'
import { oracle } from './reference.ts'

const media = { image_tokens: 85, document_tokens: 1500 }
const directory = new URL('golden/', import.meta.url)

const count = (value: Conversation, minimums = media) => new PromptCount(value).now(minimums)

const user = (text: string, more: Partial<Conversation> = {}) =>
  conversation({ turns: [{ role: 'user', parts: [{ type: 'text', text }] }], ...more })

// To change the bill on purpose: delete the files, run with METER_GOLDEN=write, and read the difference.
test('[METER-1] golden files pin the rule', () => {
  for (const [name, value] of Object.entries(golden)) {
    const file = new URL(`${name}.json`, directory)
    if (process.env['METER_GOLDEN'] === 'write') {
      writeFileSync(file, `${JSON.stringify({ media, tokens: count(value, media), conversation: value }, null, 2)}\n`)
    }
    const pinned = JSON.parse(readFileSync(file, 'utf8'))
    assert.deepEqual(pinned.conversation, JSON.parse(JSON.stringify(value)), name)
    assert.equal(count(pinned.conversation, pinned.media), pinned.tokens, name)
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
  assert.equal(count(conversation(), media), reply)
  assert.equal(count(golden['hello']!, media), reply + 3 + t('Hello, world!'))
  assert.equal(
    count(golden['system-and-turns']!, media),
    reply +
      3 +
      t('You are a helpful assistant.', 'Answer briefly.') +
      4 * 3 +
      t('北京今天天气怎么样？', "I can't know. 😀", 'The date is 2026-11-21.'),
  )
  const tools = golden['tools']!
  assert.equal(
    count(tools, media),
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
  assert.equal(count(golden['media']!, media), rest + 2 * 85 + 3 * 1500 + words)
  assert.equal(
    count(golden['media']!, { image_tokens: 0, document_tokens: 0 }),
    // One each by their size: an image and a PDF of three bytes.
    rest + words + countTokens('A short note.') + 1 + 1,
  )
  assert.equal(count(golden['media']!, { image_tokens: 1000, document_tokens: 9000 }), rest + 2 * 1000 + 4 * 9000)
})

test('[METER-3] tool results as part lists and custom tool outputs count', () => {
  const result = (kind: 'function' | 'custom', texts: string[]) =>
    count(
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
    [
      'match result',
      'Result',
      'https://example.com/match',
      'They won 3–1.',
      'today',
      'More',
      'https://example.com/more',
    ].reduce((n, s) => n + countTokens(s), 0)
  assert.equal(
    count(golden['reasoning-and-search']!, media),
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
      assert.equal(count(changed, media), count(value, media), `${name} on ${surface}`)
    }
  }
})

test("[METER-1] a call's arguments count alike as received text and as an object written out again", () => {
  const call = (input: string) =>
    count(
      conversation({
        turns: [
          { role: 'assistant', parts: [{ type: 'call', id: 'c', kind: 'function', name: 'f', input, path: 'x' }] },
        ],
      }),
      media,
    )
  const texts = [
    '{"a": 1, "b": [1, "\\u00e9"]}',
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
  // Numbers are sent as they are spelled, so they have to count as that.
  for (const zeros of [26, 1000].map(n => `{"a":[1.${'0'.repeat(n)},-0,1e3,175928847299117063]}`))
    assert.equal(call(zeros.replaceAll(',', ' , ')), 9 + countTokens('f') + countTokens(zeros))
  // The last of members of one name is what a reader of JSON sees, so it alone is sent.
  assert.equal(call(`{"a":"${'word '.repeat(1000)}","a":""}`), call('{"a":""}'))
  // Half of a surrogate pair is sent as U+FFFD.
  assert.equal(call('{"a":"\\ud83d"}'), call('{"a":"\ufffd"}'))
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
  assert.equal(new PromptCount(first).size, long.length + 16)
  const expected = 6 + countTokens(long)
  assert.equal(count(first, media), expected)
  // A fresh conversation with a new turn: only the new turn is left to count.
  const second = conversation({
    turns: [
      { role: 'user', parts: [{ type: 'text', text: long }] },
      { role: 'assistant', parts: [{ type: 'text', text: 'New.' }] },
    ],
  })
  assert.equal(new PromptCount(second).size, 4 + 16)
  assert.equal(count(second, media), expected + 3 + countTokens('New.'))

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
  assert.equal(await new PromptCount(doubled).inPool(media, undefined, watching), total)
  assert.equal(sent, 2)
  assert.equal(count(structuredClone(doubled), media), total)
  await pool.close()
})

test('the size of a small prompt is its text and 16 a part, and of one beyond digesting at a go too', () => {
  assert.equal(new PromptCount(user('Hello')).size, 5 + 16)
  assert.equal(new PromptCount(user('x'.repeat(600_000))).size, 600_000 + 16)
  // Very many very short parts are work too, and not for the event loop.
  const crumbs = conversation({
    turns: [{ role: 'user', parts: Array.from({ length: 5000 }, () => ({ type: 'text' as const, text: 'x' })) }],
  })
  assert.ok(new PromptCount(crumbs).size > SYNC_LIMIT)
})

test('a history is recognised in rows, its short parts too, and what was changed in it is counted anew', () => {
  let serial = 0
  const words = (n: number) => `${serial++} is a number, and these are words. `.repeat(Math.ceil(n / 36)).slice(0, n)
  const texts = Array.from({ length: 300 }, (_, i) => words(i % 10 === 0 ? 5000 : 400))
  const talk = (list: string[], minimums = media) => {
    const value = conversation({
      turns: list.map((text, i) => ({ role: i % 2 ? 'assistant' : 'user', parts: [{ type: 'text', text }] })),
    })
    const prompt = new PromptCount(value)
    const { size } = prompt
    assert.equal(
      prompt.now(minimums),
      list.reduce((sum, text) => sum + 3 + countTokens(text), 3),
    )
    return size
  }
  assert.ok(talk(texts) > 200_000)
  // What stands behind the last complete row is short.
  assert.ok(talk(texts) < 1 << 15)
  assert.ok(talk([...texts, words(300)]) < 1 << 15)
  const changed = texts.with(150, texts[150]!.replace('number', 'figure'))
  const size = talk(changed)
  assert.ok(size > 400 && size < 1 << 16, `${size}`)
  // The border between two parts is moved, which changes counts: nothing of the old row is taken.
  talk([...texts.slice(0, 3), `${texts[3]}wor`, `ds${texts[4]}`, ...texts.slice(5)])
  talk([...texts.slice(0, 3), `${texts[3]}w`, `ords${texts[4]}`, ...texts.slice(5)])
})

test('[METER-1] histories that grow, shrink and change, with documents between, count as if never counted before (60 cases)', async () => {
  const pool = createMeterPool({ workers: 1 })
  const vocabulary = ['the ', 'word', '😀', '\ud800', ' 12', '的是', '\n\n', "'s", '  ', 'Foo']
  const part = fc
    .tuple(
      fc.constantFrom(...vocabulary),
      fc.constantFrom(...vocabulary),
      fc.constantFrom(1, 2, 100, 700, 3000, 9000),
      fc.boolean(),
    )
    .map(([a, b, n, document]): Part => {
      const text = (a + b).repeat(n)
      return document ? { type: 'document', source: { kind: 'text', text }, path: '' } : { type: 'text', text }
    })
  await fc.assert(
    fc.asyncProperty(
      fc.array(part, { minLength: 1, maxLength: 30 }),
      fc.array(fc.tuple(fc.nat(), fc.nat(), fc.option(part)), { maxLength: 6 }),
      fc.constantFrom(0, 85, 4000),
      async (parts, changes, document_tokens) => {
        const minimums = { image_tokens: 85, document_tokens }
        const expected = (list: Part[]) =>
          list.reduce((sum, p) => {
            if (p.type === 'text') return sum + countTokens(p.text)
            return p.type === 'document' && p.source.kind === 'text'
              ? sum + Math.max(document_tokens, countTokens(p.source.text))
              : sum
          }, 6)
        const check = async (list: Part[], inPool: boolean) => {
          const prompt = new PromptCount(conversation({ turns: [{ role: 'user', parts: list }] }))
          assert.equal(inPool ? await prompt.inPool(minimums, undefined, pool) : prompt.now(minimums), expected(list))
        }
        await check(parts, false)
        let list = parts
        for (const [at, remove, added] of changes) {
          list = list.toSpliced(at % (list.length + 1), remove % 3, ...(added ? [added] : []))
          await check(list, at % 2 === 0)
        }
      },
    ),
    { numRuns: 60, seed: 12 },
  )
  await pool.close()
})

test('[CNT-1] the asynchronous count is the same count', async () => {
  const pool = createMeterPool({ workers: 2 })
  for (const [name, value] of Object.entries(golden)) {
    assert.equal(
      await new PromptCount(structuredClone(value)).inPool(media, undefined, pool),
      count(value, media),
      name,
    )
  }
  const large = user(`${'😀的a '.repeat(150_000)}\ud83d`)
  assert.equal(
    await new PromptCount(large).inPool(media, undefined, pool),
    6 + countTokens((large.turns[0]!.parts[0] as { text: string }).text),
  )
  await pool.close()
})
