/**
 * Counted is sent (decision 48): whatever text a client can put into the request of a provider is counted, or bounded.
 * Every string of a rich body on every surface is made long, one at a time. Where it reaches a dialect's request, the
 * count must have grown. A field that a surface refuses when it is long is bounded.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { PromptCount } from '../../meter/index.ts'
import { dialects } from '../../providers/index.ts'
import { surfaces } from '../../surfaces/index.ts'
import { backendOf } from '../providers/dialect-kit.ts'

/** Letters alone, so that no encoding changes them. */
const MARK = 'MarkerAb'.repeat(50_000)
/** As in the gateway, the id of a call that is sent has a fixed length. */
const CONTEXT = { stream: true, upstreamCallId: () => 'call_derived' }
/** The least growth. A URL counts a token for every 256 characters. */
const GROWTH = 100

const SCHEMA = {
  type: 'object',
  properties: { city: { type: 'string', description: 'where' } },
  required: ['city'],
}
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
    },
    {
      messages: [
        {
          role: 'user',
          content: [
            { type: 'text', text: 'look' },
            { type: 'image_url', image_url: { url: 'https://example.com/a.png', detail: 'low' } },
            { type: 'image_url', image_url: { url: `data:image/png;base64,${PNG}` } },
          ],
        },
      ],
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
  chat: ['0 stop[0]', '1 messages[0].content[1].image_url.url'],
  responses: ['1 input[0].content[0].image_url', '1 input[0].content[1].file_url'],
  messages: ['0 stop_sequences[0]', '1 messages[0].content[0].source.url', '1 messages[0].content[2].source.url'],
}

/** Each string of a value, and each name of a member, with the value in which that one alone is long. */
function* marked(value: unknown, mark: string, path = ''): Generator<[path: string, value: unknown]> {
  if (typeof value === 'string') yield [path, value + mark]
  else if (Array.isArray(value)) {
    for (const [i, item] of value.entries())
      for (const [at, made] of marked(item, mark, `${path}[${i}]`)) yield [at, value.with(i, made)]
  } else if (value !== null && typeof value === 'object') {
    for (const [name, member] of Object.entries(value)) {
      const at = path === '' ? name : `${path}.${name}`
      for (const [inner, made] of marked(member, mark, at)) yield [inner, { ...value, [name]: made }]
      const { [name]: _, ...others } = value as Record<string, unknown>
      yield [`${at} (the name)`, { ...others, [name + mark]: member }]
    }
  }
}

const count = (conversation: ConstructorParameters<typeof PromptCount>[0]) =>
  new PromptCount(conversation).now({ image_tokens: 0, document_tokens: 0 })

/**
 * The paths in bodies of a surface where a mark reaches a dialect's request.
 * @returns by path, by how much the count grew
 */
function reach(name: string, mark: string): Map<string, number> {
  const surface = surfaces[name]!
  const parse = (body: unknown) => {
    const copy = structuredClone(body) as Record<string, unknown>
    surface.validate(copy, 'reject')
    return surface.parse(copy)
  }
  const reached = new Map<string, number>()
  for (const [i, more] of BODIES[name]!.entries()) {
    const body = { model: 'm', ...more }
    const before = count(parse(body))
    for (const [path, longer] of marked(body, mark)) {
      let conversation: ReturnType<typeof parse>
      try {
        conversation = parse(longer)
      } catch {
        continue
      }
      for (const dialect of Object.values(dialects)) {
        const backend = backendOf(dialect)
        if (dialect.unfit(conversation, backend)) continue
        const { body: sent } = dialect.request(conversation, backend, CONTEXT)
        if (!(typeof sent === 'string' ? sent : JSON.stringify(sent)).includes(mark)) continue
        reached.set(`${i} ${path}`, count(conversation) - before)
      }
    }
  }
  return reached
}

for (const name of Object.keys(BODIES)) {
  test(`[METER-1] ${name}: what a client makes long is counted wherever it is sent`, () => {
    const reached = reach(name, MARK)
    assert.ok(reached.size >= 10, [...reached.keys()].join('\n'))
    assert.deepEqual(
      [...reached].filter(([, grown]) => grown < GROWTH),
      [],
    )
  })

  test(`[METER-1] ${name}: what is sent and not counted is bounded, and is this`, () => {
    const uncounted = [...reach(name, 'MarkerAb')].filter(([, grown]) => grown < 1).map(([path]) => path)
    assert.deepEqual(uncounted, BOUNDED[name])
  })
}
