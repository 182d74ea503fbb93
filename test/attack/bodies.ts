/**
 * Mutated bodies on all surfaces: members replaced, removed, repeated and nested, and bytes changed, cut and inserted.
 * Every one must get an answer that is no 500, and the gateway must serve a good request afterwards.
 */

import type { Random } from '../random.ts'
import {
  bodyOf,
  finish,
  Gateway,
  judge,
  keyOf,
  lanes,
  MODELS,
  PATHS,
  type Part,
  type Result,
  type Surface,
  send,
  Watch,
} from './kit.ts'

const PART = 'bodies'
const PNG =
  'data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='
const schema = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] }

/** Valid bodies that use most of what a surface accepts. */
function seeds(model: string): [Surface, Record<string, unknown>][] {
  const chatCall = { id: 'call_1', type: 'function', function: { name: 'weather', arguments: '{"city":"Bern"}' } }
  const turn = { role: 'user', content: 'What is the weather?' }
  return [
    [
      'chat',
      bodyOf('chat', model, 'hello', {
        stream: true,
        stream_options: { include_usage: true },
        stop: ['x', 'y'],
        temperature: 0.5,
        top_p: 0.9,
        user: 'u',
      }),
    ],
    [
      'chat',
      {
        model,
        messages: [
          { role: 'system', content: 'Be brief.' },
          {
            role: 'user',
            content: [
              { type: 'text', text: 'See' },
              { type: 'image_url', image_url: { url: PNG, detail: 'low' } },
            ],
          },
          { role: 'assistant', content: null, tool_calls: [chatCall] },
          { role: 'tool', tool_call_id: 'call_1', content: 'sunny' },
        ],
        tools: [{ type: 'function', function: { name: 'weather', description: 'The weather', parameters: schema } }],
        tool_choice: 'auto',
        parallel_tool_calls: false,
        reasoning_effort: 'low',
        max_completion_tokens: 64,
      },
    ],
    [
      'responses',
      {
        model,
        store: false,
        stream: true,
        instructions: 'Be brief.',
        max_output_tokens: 64,
        reasoning: { effort: 'low', summary: 'auto' },
        input: [
          {
            type: 'message',
            role: 'user',
            content: [
              { type: 'input_text', text: 'See' },
              { type: 'input_image', image_url: PNG },
            ],
          },
          { type: 'function_call', call_id: 'call_1', name: 'weather', arguments: '{}' },
          { type: 'function_call_output', call_id: 'call_1', output: 'sunny' },
        ],
        tools: [{ type: 'function', name: 'weather', parameters: schema, strict: false }, { type: 'web_search' }],
      },
    ],
    ['responses', { model, input: 'hello', store: true, metadata: { a: 'b' } }],
    [
      'messages',
      {
        model,
        max_tokens: 2048,
        stream: true,
        system: [{ type: 'text', text: 'Be brief.', cache_control: { type: 'ephemeral' } }],
        thinking: { type: 'enabled', budget_tokens: 1024 },
        messages: [
          turn,
          {
            role: 'assistant',
            content: [{ type: 'tool_use', id: 'call_1', name: 'weather', input: { city: 'Bern' } }],
          },
          {
            role: 'user',
            content: [{ type: 'tool_result', tool_use_id: 'call_1', content: [{ type: 'text', text: 'sunny' }] }],
          },
        ],
        tools: [{ name: 'weather', description: 'The weather', input_schema: schema }],
        tool_choice: { type: 'auto' },
        stop_sequences: ['x'],
      },
    ],
    ['count', { model, system: 'Be brief.', messages: [turn, { role: 'assistant', content: 'Sunny.' }, turn] }],
  ]
}

/** Values that parsers, counters and translators have been wrong about. */
const HOSTILE: unknown[] = [
  null,
  true,
  false,
  0,
  -1,
  1.5,
  1e308,
  -1e308,
  1e-320,
  2 ** 53,
  '',
  ' ',
  '\0',
  '\ud800',
  'a\u0301'.repeat(500),
  '🜁'.repeat(2000),
  'x'.repeat(100_000),
  '<|endoftext|>',
  '__proto__',
  'constructor',
  '../../etc/passwd',
  '{"a":',
  [],
  {},
  [[]],
  [null],
  [{}],
  { type: null },
  { type: 'text' },
  { type: 'input_file', file_id: 'x' },
  { toString: 1 },
  { length: 1e9 },
  JSON.parse('{"then":1}'),
  'data:image/png;base64,',
  'file:///etc/passwd',
  'http://127.0.0.1:1/',
  'item_eba1_aaaa',
  'resp_00000000000000000000000000000000',
  '\r\nset-cookie: a',
  '%00',
  'system',
  'developer',
]

/** A value of its own: a later change of the tree must change neither the list nor another place of the tree. */
const hostile = (random: Random): unknown => structuredClone(random.one(HOSTILE))

type Place = { in: any; at: string | number }
function places(value: any, found: Place[] = []): Place[] {
  if (typeof value !== 'object' || value === null) return found
  const names: Iterable<string | number> = Array.isArray(value) ? value.keys() : Object.keys(value)
  for (const at of names) {
    found.push({ in: value, at })
    places(value[at], found)
  }
  return found
}

/** Changes one to three places of the tree. */
function mutateTree(random: Random, body: any): void {
  for (let n = random.one([1, 1, 2, 3]); n > 0; n--) {
    const all = places(body)
    if (all.length === 0) return
    const { in: holder, at } = random.one(all)
    const other = random.one(all)
    switch (random.below(7)) {
      case 0:
        if (Array.isArray(holder)) holder.splice(at as number, 1)
        else delete holder[at]
        break
      case 1:
        holder[random.one(['__proto__x', 'type', 'id', 'content', 'role', 'cache_control', random.word(5)])] =
          hostile(random)
        break
      case 2:
        holder[at] = structuredClone(other.in[other.at])
        break
      case 3:
        if (Array.isArray(holder))
          for (let i = random.below(50); i > 0; i--) holder.push(structuredClone(holder[at as number]))
        else holder[at] = [holder[at]]
        break
      case 4: {
        let nested: unknown = hostile(random)
        for (let i = random.below(200); i > 0; i--) nested = random.chance(0.5) ? [nested] : { a: nested }
        holder[at] = nested
        break
      }
      default:
        holder[at] = hostile(random)
    }
  }
}

function mutateBytes(random: Random, text: string): Buffer {
  let bytes = Buffer.from(text)
  for (let n = 1 + random.below(6); n > 0 && bytes.length > 0; n--) {
    const at = random.below(bytes.length)
    const to = Math.min(bytes.length, at + 1 + random.below(8))
    const piece = random.one([
      '"',
      '\\',
      '{',
      '}',
      '[',
      ']',
      ',',
      ':',
      '\\ud800',
      '\\u0000',
      '\xff',
      '1e999',
      '-',
      'null',
      '/**/',
      ' ',
    ])
    const middle = random.one([
      Buffer.alloc(0),
      Buffer.from(piece, 'latin1'),
      Buffer.concat([bytes.subarray(at, to), bytes.subarray(at, to)]),
    ])
    bytes = random.chance(0.05)
      ? bytes.subarray(0, at)
      : Buffer.concat([bytes.subarray(0, at), middle, bytes.subarray(to)])
  }
  return bytes
}

export async function bodies({ random, breaches, budgetMs, simulator }: Part): Promise<Result> {
  const gateway = await Gateway.start({ upstream: simulator, organizations: { bodies: 'custom' } })
  const watch = new Watch(gateway)
  const statuses: Record<string, number> = {}
  const key = keyOf('bodies')
  const cases = await lanes(16, performance.now() + budgetMs, async () => {
    const [surface, seed] = random.one(seeds(random.one(MODELS)))
    const tree = random.chance(0.75)
    if (tree) mutateTree(random, seed)
    // A text like toJSON or a function can't be in it; a lone surrogate can.
    const text = JSON.stringify(seed)
    const body = tree ? text : mutateBytes(random, text)
    const answer = await send(gateway.url, PATHS[surface], key, body)
    const status = `${answer.status}`
    statuses[status] = (statuses[status] ?? 0) + 1
    judge(PART, breaches, `${surface} ${body.toString().slice(0, 300)}`, answer)
  })
  const good = await send(gateway.url, PATHS.chat, key, bodyOf('chat', 'a-chat', 'hello'))
  if (good.status !== 200)
    breaches.add(PART, 'crash', 'a good request afterwards', `${good.status} ${good.text.slice(0, 200)}`)
  const note = Object.entries(statuses)
    .map(([status, n]) => `${n} × ${status}`)
    .join(', ')
  return { part: PART, cases, note, ...(await finish(PART, gateway, watch, breaches)) }
}
