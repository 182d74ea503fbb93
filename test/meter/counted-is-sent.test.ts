/**
 * Counted is sent (decisions 48 and 73): whatever text a client can put into the request of a provider is counted, or
 * bounded. Strings of rich bodies on every surface are made long. Where one reaches a dialect's request, the count must
 * have grown as the request has. A field that a surface refuses when it is long is bounded.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import type { Conversation } from '../../core/canon/conversation.ts'
import type { Backend } from '../../core/ports/dialect.ts'
import { parseExactly } from '../../core/tools/json.ts'
import { countTokens, PromptCount } from '../../meter/index.ts'
import { exceedsCounted } from '../../plugins/shared/sent-bound.ts'
import { withSearchFunction } from '../../plugins/web-search/function-form.ts'
import { dialectOf, dialects } from '../../providers/index.ts'
import { sentTo, unfitFor } from '../../providers/structured-output.ts'
import { surfaces } from '../../surfaces/index.ts'
import { backendOf } from '../providers/dialect-kit.ts'

/** As in the gateway, the id of a call that is sent has a fixed length. */
const CONTEXT = { stream: true, upstreamCallId: () => 'call_derived' }

const SCHEMA = {
  type: 'object',
  properties: { city: { type: 'string', description: 'where' } },
  required: ['city'],
}
/** References are written out for servers that know only OpenAPI schemas. */
const REFERRING = {
  type: 'object',
  properties: { from: { $ref: '#/$defs/place' }, to: { $ref: '#/$defs/place' } },
  $defs: { place: { type: 'string', description: 'where', enum: ['here', 'there'] } },
}
const FORMAT = { ...SCHEMA, additionalProperties: false }
const PNG = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='

const BODIES: Record<string, Record<string, unknown>[]> = {
  chat: [
    {
      messages: [
        { role: 'system', content: 'system', name: 'sys' },
        { role: 'developer', content: [{ type: 'text', text: 'developer' }] },
        { role: 'user', name: 'ann', content: [{ type: 'text', text: 'hello' }] },
        {
          role: 'assistant',
          content: 'said',
          refusal: null,
          tool_calls: [{ id: 'call_1', type: 'function', function: { name: 'f', arguments: '{"city":"Oslo"}' } }],
        },
        { role: 'tool', tool_call_id: 'call_1', content: 'result' },
        { role: 'assistant', content: null, refusal: 'no' },
        { role: 'user', content: 'go on' },
      ],
      tools: [{ type: 'function', function: { name: 'f', description: 'does f', parameters: SCHEMA } }],
      stop: ['END'],
      user: 'u',
      safety_identifier: 's',
      prompt_cache_key: 'k',
      metadata: { key: 'value' },
      response_format: {
        type: 'json_schema',
        json_schema: { name: 'reply', description: 'a place', schema: FORMAT, strict: true },
      },
    },
    {
      messages: [
        {
          role: 'user',
          content: [
            { type: 'text', text: 'look' },
            { type: 'image_url', image_url: { url: 'https://example.com/a.png', detail: 'low' } },
            { type: 'image_url', image_url: { url: `data:image/png;base64,${PNG}` } },
            { type: 'file', file: { filename: 'a.pdf', file_data: 'data:application/pdf;base64,JVBERi0=' } },
            { type: 'file', file: { filename: 'a.txt', file_data: 'data:text/plain;base64,cGxhaW4=' } },
          ],
        },
      ],
      tools: [
        { type: 'function', function: { name: 'f', parameters: REFERRING } },
        { type: 'function', function: { name: 'g', parameters: SCHEMA } },
      ],
      tool_choice: {
        type: 'allowed_tools',
        allowed_tools: { mode: 'required', tools: [{ type: 'function', function: { name: 'f' } }] },
      },
    },
  ],
  responses: [
    {
      instructions: 'be kind',
      input: [
        { role: 'developer', content: 'developer' },
        { role: 'user', content: [{ type: 'input_text', text: 'hello' }] },
        { type: 'message', role: 'assistant', content: [{ type: 'output_text', text: 'said', annotations: [] }] },
        { type: 'function_call', call_id: 'call_1', name: 'f', arguments: '{"city":"Oslo"}' },
        { type: 'function_call_output', call_id: 'call_1', output: 'result' },
        { role: 'user', content: 'go on' },
      ],
      tools: [{ type: 'function', name: 'f', description: 'does f', parameters: SCHEMA }],
      user: 'u',
      safety_identifier: 's',
      prompt_cache_key: 'k',
      metadata: { key: 'value' },
    },
    {
      input: [
        {
          role: 'user',
          content: [
            { type: 'input_image', image_url: 'https://example.com/a.png', detail: 'low' },
            { type: 'input_file', filename: 'a.pdf', file_url: 'https://example.com/a.pdf' },
          ],
        },
      ],
    },
    {
      input: [
        { role: 'user', content: 'find' },
        {
          type: 'web_search_call',
          id: 'item_eba1_s',
          status: 'completed',
          action: { type: 'search', query: 'tides', sources: [{ type: 'url', url: 'https://example.com/a' }] },
        },
        { type: 'reasoning', id: 'item_eba1_r', summary: [{ type: 'summary_text', text: 'thought' }] },
        {
          type: 'tool_search_call',
          call_id: 'call_1',
          execution: 'client',
          status: 'completed',
          arguments: '{"query":"maps"}',
        },
        {
          type: 'tool_search_output',
          call_id: 'call_1',
          execution: 'client',
          status: 'completed',
          tools: [{ type: 'function', name: 'loaded', description: 'late', parameters: SCHEMA }],
        },
        {
          type: 'tool_search_call',
          call_id: 'call_2',
          execution: 'client',
          status: 'completed',
          arguments: { query: 'maps' },
        },
        { type: 'tool_search_output', call_id: 'call_2', execution: 'client', status: 'completed', tools: [] },
        { type: 'custom_tool_call', call_id: 'call_3', name: 'c', input: 'raw' },
        { type: 'custom_tool_call_output', call_id: 'call_3', output: 'result' },
        { type: 'function_call', call_id: 'call_4', name: 'f', namespace: 'n', arguments: '{}' },
        { type: 'function_call_output', call_id: 'call_4', output: [{ type: 'input_text', text: 'result' }] },
      ],
      tools: [
        { type: 'tool_search', execution: 'client', description: 'finds tools', parameters: SCHEMA },
        {
          type: 'namespace',
          name: 'n',
          description: 'names',
          tools: [{ type: 'function', name: 'f', parameters: SCHEMA }],
        },
        { type: 'custom', name: 'c', description: 'custom' },
        { type: 'web_search' },
      ],
      text: { format: { type: 'json_schema', name: 'reply', description: 'a place', schema: FORMAT, strict: true } },
    },
    {
      input: 'x',
      tools: [
        {
          type: 'custom',
          name: 'c',
          description: 'custom',
          format: { type: 'grammar', syntax: 'regex', definition: '[a-z]+' },
        },
        {
          type: 'web_search',
          filters: { allowed_domains: ['example.com'] },
          user_location: { type: 'approximate', city: 'Oslo', region: 'Oslo', country: 'NO', timezone: 'Europe/Oslo' },
        },
      ],
    },
  ],
  messages: [
    {
      max_tokens: 100,
      system: [{ type: 'text', text: 'system' }],
      messages: [
        { role: 'user', content: [{ type: 'text', text: 'hello' }] },
        {
          role: 'assistant',
          content: [
            { type: 'text', text: 'said' },
            { type: 'tool_use', id: 'toolu_1', name: 'f', input: { city: 'Oslo' } },
          ],
        },
        {
          role: 'user',
          content: [
            { type: 'tool_result', tool_use_id: 'toolu_1', content: [{ type: 'text', text: 'result' }] },
            { type: 'text', text: 'go on' },
          ],
        },
      ],
      tools: [{ name: 'f', description: 'does f', input_schema: SCHEMA }],
      stop_sequences: ['END'],
      metadata: { user_id: 'u' },
    },
    {
      max_tokens: 100,
      messages: [
        {
          role: 'user',
          content: [
            { type: 'image', source: { type: 'url', url: 'https://example.com/a.png' } },
            { type: 'image', source: { type: 'base64', media_type: 'image/png', data: PNG } },
            { type: 'document', source: { type: 'url', url: 'https://example.com/a.pdf' }, title: 't', context: 'c' },
            { type: 'document', source: { type: 'text', media_type: 'text/plain', data: 'plain' }, title: 't' },
            { type: 'text', text: 'read' },
          ],
        },
      ],
    },
    {
      max_tokens: 100,
      messages: [
        {
          role: 'user',
          content: [
            { type: 'search_result', source: 'https://s', title: 'S', content: [{ type: 'text', text: 'found' }] },
          ],
        },
        {
          role: 'assistant',
          content: [
            { type: 'thinking', thinking: 'thought', signature: 'item_eba1_t' },
            { type: 'server_tool_use', id: 'hist_eba1_s', name: 'web_search', input: { query: 'tides' } },
            {
              type: 'web_search_tool_result',
              tool_use_id: 'hist_eba1_s',
              content: [
                { type: 'web_search_result', url: 'https://a', title: 'A', encrypted_content: 'x', page_age: 'May 1' },
              ],
            },
            { type: 'text', text: 'said' },
            { type: 'tool_use', id: 'toolu_1', name: 'f', input: { city: 'Oslo' } },
          ],
        },
        {
          role: 'user',
          content: [
            {
              type: 'tool_result',
              tool_use_id: 'toolu_1',
              is_error: true,
              content: [
                { type: 'tool_reference', tool_name: 'late' },
                {
                  type: 'document',
                  source: { type: 'text', media_type: 'text/plain', data: 'plain' },
                  title: 't',
                  context: 'c',
                },
              ],
            },
          ],
        },
      ],
      tools: [
        { name: 'f', description: 'does f', input_schema: REFERRING },
        { type: 'web_search_20250305', name: 'web_search', blocked_domains: ['example.com'] },
      ],
    },
    {
      max_tokens: 100,
      messages: [{ role: 'user', content: 'x' }],
      tools: [
        { type: 'bash_20250124', name: 'bash' },
        {
          type: 'web_search_20250305',
          name: 'web_search',
          allowed_domains: ['example.com'],
          user_location: { type: 'approximate', city: 'Oslo', region: 'Oslo', country: 'NO', timezone: 'Europe/Oslo' },
        },
      ],
    },
  ],
}

/** Sent, not counted, and refused when long: by the number of the body and the path. */
const BOUNDED: Record<string, string[]> = {
  chat: ['0 stop[0]', '0 response_format.json_schema.name', '1 messages[0].content[1].image_url.url'],
  responses: ['1 input[0].content[0].image_url', '1 input[0].content[1].file_url', '2 text.format.name'],
  messages: ['0 stop_sequences[0]', '1 messages[0].content[0].source.url', '1 messages[0].content[2].source.url'],
}

/** Where a string or the name of a member stands, and which it is. */
type Place = { path: string; name: boolean; text: string; set(value: string): unknown }

/** Each string of a value, and each name of a member, with what makes the value in which that one alone is another. */
function* places(value: unknown, path = ''): Generator<Place> {
  if (typeof value === 'string') yield { path, name: false, text: value, set: text => text }
  else if (Array.isArray(value)) {
    for (const [i, item] of value.entries())
      for (const place of places(item, `${path}[${i}]`)) yield { ...place, set: text => value.with(i, place.set(text)) }
  } else if (value !== null && typeof value === 'object') {
    for (const [name, member] of Object.entries(value)) {
      const at = path === '' ? name : `${path}.${name}`
      for (const place of places(member, at)) yield { ...place, set: text => ({ ...value, [name]: place.set(text) }) }
      const { [name]: _, ...others } = value as Record<string, unknown>
      yield { path: `${at} (the name)`, name: true, text: name, set: text => ({ ...others, [text]: member }) }
    }
  }
}

const count = (conversation: Conversation) => new PromptCount(conversation).now({ image_tokens: 0, document_tokens: 0 })

function parsed(name: string, body: unknown): Conversation | null {
  const surface = surfaces[name]!
  try {
    const copy = copied(body) as Record<string, unknown>
    surface.validate(copy, 'reject')
    return surface.parse(copy)
  } catch {
    return null
  }
}

/** A copy that keeps the numbers of `parseExactly`. */
const copied = (value: unknown): unknown => parseExactly(JSON.stringify(value))

const BACKENDS: Backend[] = [
  ...Object.values(dialects).map(dialect => backendOf(dialect)),
  { ...backendOf(dialects['gemini']!), settings: { provider: {}, backend: { tool_schema: 'openapi' } } },
]

/** What goes to a backend, as a gateway writes it; null where the backend is unfit. */
function sentBody(conversation: Conversation, backend: Backend, counted = count(conversation)): string | null {
  const dialect = dialectOf(backend)
  let said = conversation
  if (unfitFor(said, backend, dialect)) {
    said = withSearchFunction(conversation)?.conversation ?? said
    if (unfitFor(said, backend, dialect)) return null
  }
  const { body } = dialect.request(sentTo(said, backend, dialect).conversation, backend, CONTEXT)
  assert.ok(!exceedsCounted({ body, backend, said }, conversation, counted, 0), 'the guard')
  return body
}

/** Tokens of all texts, names and numbers that stand in a request. */
function tokensIn(body: string): number {
  let tokens = 0
  const visit = (value: unknown): void => {
    if (typeof value === 'string') tokens += countTokens(value)
    else if (Array.isArray(value)) value.forEach(visit)
    else if (typeof value === 'object' && value !== null) {
      for (const [name, member] of Object.entries(value)) {
        tokens += countTokens(name)
        visit(member)
      }
    }
  }
  const spelled = (_: string, value: unknown, { source }: { source?: string } = {}) =>
    typeof value === 'number' ? source : value
  visit(JSON.parse(body, spelled))
  return tokens
}

/** Bodies of a surface, each with its count and what it is to each backend. */
const known = Object.fromEntries(
  Object.entries(BODIES).map(([name, bodies]) => [
    name,
    bodies.map(more => {
      const body = { model: 'm', ...more }
      const conversation = parsed(name, body)
      assert.ok(conversation, JSON.stringify(more))
      const sent = BACKENDS.map(backend => {
        const text = sentBody(conversation, backend)
        return text === null ? null : tokensIn(text)
      })
      return { body, counted: count(conversation), sent, places: [...places(body)] }
    }),
  ]),
)

const many = (text: string, times = 300) => text.repeat(times)
/** Texts of some 300 tokens and more, in whatever spelling a client may choose. */
const TEXTS: Record<string, string> = {
  letters: many('MarkerAb '),
  quotes: many('a" \\ '),
  lines: many('a\n\tb '),
  digits: many('1234567890'),
  wide: many('的 é 😀 '),
  halves: many('\ud83d x'),
  controls: many('\u0001\u001b x'),
  'a hidden member': `{"city":"${many('word ')}","city":""}`,
  'a hidden member of a member': `{"city":{"a":"${many('word ')}"},"city":{"a":1}}`,
  'white space': `{${many(' \n\t\r', 2000)}"city":1}`,
  'white space between': `{"city":[${many('1 , ')}1]}`,
  escapes: `{"city":"${many('\\u0041\\u0020')}"}`,
  'short escapes': `{"city":"${many('\\/ \\" ')}"}`,
  'escaped halves': `{"city":"${many('\\ud83d x')}"}`,
  zeros: `{"city":[${many('0.000000000000000000000000000,', 200)}0]}`,
  'long numbers': `{"city":[${many('1752345328847299117063412345.1,', 200)}-0,1e400,1E0]}`,
  'one number': `{"city":0.${many('0', 5000)}}`,
  'white space around a list': ` \n[ ${many('"a" , ')} "b" ] `,
  'a name': `{"${many('word ')}":1}`,
  'cut off': `{"city": "${many('word ')}`,
}

/** Base64 of an image, which counts by its pixels. */
const IMAGE = 'messages 1 messages[0].content[1].source.data'

/** Places whose text is sent and not counted as such, because it is bounded or media. */
const isBounded = (name: string, i: number, path: string) =>
  BOUNDED[name]!.includes(`${i} ${path}`) || `${name} ${i} ${path}` === IMAGE

/** How much more a text may be in a request than it counts: escapes within JSON that stands in a string. */
const ESCAPES = 2
/** A description behind references is written out, to four times what was counted. */
const REWRITTEN = 4
/** Tokens around a text, such as its name beside it. */
const AROUND = 64

/** Sets texts in a body, and says where the request grew more than the count. */
function grown(name: string, i: number, texts: { place: Place; text: string }[]): string[] {
  const { body, counted, sent } = known[name]![i]!
  let longer: unknown = body
  // Places are those of the body as it was: each is set where the others are set already.
  for (const { place, text } of texts) {
    const here = [...places(longer)].find(other => other.path === place.path)
    if (here) longer = here.set(text)
  }
  const conversation = parsed(name, longer)
  if (!conversation) return []
  const now = count(conversation)
  const more = now - counted
  return BACKENDS.flatMap((backend, k) => {
    const before = sent[k]
    const text = before === null ? null : sentBody(conversation, backend, now)
    if (text === null) return []
    const grew = tokensIn(text) - before!
    const most =
      (dialectOf(backend).rewritesSchemas?.(backend) ? REWRITTEN : ESCAPES) * Math.max(0, more) + AROUND * texts.length
    return grew <= most ? [] : [`${name} ${i} → ${backend.dialect}: ${grew} sent, ${more} counted`]
  })
}

for (const name of Object.keys(BODIES)) {
  // Arguments, white space, escapes, numbers and the age of search results were sent whole and counted as next to
  // nothing: 600 KB for 43 tokens.
  test(`[METER-1] ${name}: whatever a client writes in one place is counted as it is sent`, () => {
    for (const [i, { places }] of known[name]!.entries()) {
      for (const place of places) {
        if (isBounded(name, i, place.path)) continue
        // JSON is text, but where it is read.
        const isJson = /arguments|input/.test(place.path)
        for (const [what, text] of Object.entries(TEXTS))
          if (isJson || !/^[ \n]*[{[]/.test(text))
            assert.deepEqual(grown(name, i, [{ place, text }]), [], `${place.path}: ${what}`)
      }
    }
  })

  test(`[METER-1] ${name}: whatever a client writes in several places is counted as it is sent`, () => {
    const edits = fc.nat(known[name]!.length - 1).chain(i => {
      const free = known[name]![i]!.places.filter(({ path, name: isName }) => !isName && !isBounded(name, i, path))
      const one = fc.record({
        place: fc.constantFrom(...free),
        text: fc.oneof(
          fc.constantFrom(...Object.values(TEXTS)),
          fc.json({ noUnicodeString: false, maxDepth: 3 } as never).map(text => text.repeat(40)),
          fc.string({ unit: 'binary', maxLength: 20 }).map(text => text.repeat(100)),
        ),
      })
      return fc.tuple(fc.constant(i), fc.uniqueArray(one, { minLength: 1, maxLength: 3, selector: e => e.place.path }))
    })
    fc.assert(
      fc.property(edits, ([i, texts]) => assert.deepEqual(grown(name, i, texts), [])),
      { numRuns: 150 },
    )
  })

  test(`[METER-1] ${name}: what is sent and not counted is bounded, and is this`, () => {
    const mark = 'MarkerAb'
    const uncounted = new Set<string>()
    for (const [i, { body, counted, places }] of known[name]!.entries()) {
      const texts = JSON.stringify(body)
      assert.ok(!texts.includes(mark))
      for (const place of places) {
        const conversation = parsed(name, place.set(`${place.text}${mark}`))
        if (!conversation || count(conversation) > counted) continue
        if (BACKENDS.some(backend => sentBody(conversation, backend)?.includes(mark)))
          uncounted.add(`${i} ${place.path}`)
      }
    }
    assert.deepEqual([...uncounted], BOUNDED[name])
  })
}

// What names a tool or stands for an empty result counts nothing, and was written as often as the client sent it.
test('[METER-1] tools that are allowed many times, and results that say nothing, go out no more than once', () => {
  const sentBy = (name: string, body: object) => {
    const conversation = parsed(name, { model: 'm', ...body })!
    return BACKENDS.map(backend => sentBody(conversation, backend)?.length)
  }
  const allowing = (times: number) => ({
    ...BODIES['chat']![1],
    tool_choice: {
      type: 'allowed_tools',
      allowed_tools: { mode: 'required', tools: Array(times).fill({ type: 'function', function: { name: 'f' } }) },
    },
  })
  assert.deepEqual(sentBy('chat', allowing(5000)), sentBy('chat', allowing(1)))
  const finding = (times: number) => {
    const empty = { type: 'web_search_result', url: '', title: '', encrypted_content: '' }
    const content = [{ type: 'web_search_tool_result', tool_use_id: 'hist_eba1_s', content: Array(times).fill(empty) }]
    const use = { type: 'server_tool_use', id: 'hist_eba1_s', name: 'web_search', input: { query: 'tides' } }
    return {
      max_tokens: 9,
      messages: [
        { role: 'user', content: 'x' },
        { role: 'assistant', content: [use, ...content] },
      ],
      tools: [{ type: 'web_search_20250305', name: 'web_search' }],
    }
  }
  assert.deepEqual(sentBy('messages', finding(5000)), sentBy('messages', finding(0)))
})

test('[METER-1] numbers of arguments that a body carries as an object count as they are spelled', () => {
  const numbers = `{"city":[${many('0.000000000000000000000000000,', 200)}1e2]}`
  const at = known['messages']![0]!
  const [path] = at.places.filter(place => place.path === 'messages[1].content[1].input.city')
  assert.ok(path)
  const body = path.set('x') as any
  body.messages[1].content[1].input = parseExactly(numbers)
  const conversation = parsed('messages', body)!
  for (const [k, backend] of BACKENDS.entries()) {
    const text = sentBody(conversation, backend)!
    assert.ok(text.includes('1e2'))
    assert.ok(tokensIn(text) - at.sent[k]! <= count(conversation) - at.counted + AROUND)
  }
})
