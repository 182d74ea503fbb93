/**
 * Turns of conversations: a process that keeps recent conversations gives for each request what one gives that keeps
 * none, byte for byte, whatever is edited and where.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { registerPluginHooks } from '../../config/modules.ts'
import { conversation, type Plugin, request } from '../../core/plugin.ts'
import type { DialectName } from '../../core/ports/dialect.ts'
import { PNG } from '../../surfaces/described.ts'
import { surfaces } from '../../surfaces/index.ts'
import { Random } from '../random.ts'
import { memoryStore } from './kit.ts'
import { type Asking, type Outcome, Turns, type TurnsOptions } from './turns-kit.ts'

registerPluginHooks()
const { default: piiMask } = await import('../../plugins/extra/pii-mask.ts')

type Message = Record<string, any>
interface Talk {
  surface: 'chat' | 'messages' | 'responses'
  system: string
  tools: Message[]
  messages: Message[]
  /** Members beside these, in an order of their own. */
  more: [name: string, value: unknown][]
  /** Whether the tools stand before the messages. */
  toolsFirst: boolean
  calls: number
}

/** How a value is spelled: the same value of the same writer has the same bytes in each turn. */
const SPELLINGS: ((value: unknown) => string)[] = [
  value => JSON.stringify(value),
  value => JSON.stringify(value).replace(/[^\x00-\x7f]/g, c => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`),
  value => JSON.stringify(value, null, 1),
]

const SAYINGS = [
  'ann@example.com wrote: 4111 1111 1111 1111',
  'line\nbreak\tand "quotes" \\ and / slash',
  'Grüße, 日本語, 😀',
  'a lone \ud83d half',
  '{"looks":"like JSON",[}]',
  '',
]

function saying(random: Random): string {
  return random.chance(0.3) ? random.one(SAYINGS) : random.text(20 + random.below(random.one([100, 400, 3000])))
}

const NUMBERS = ['1', '1.10', '12345678901234567890', '-0', '1e3', '0.0000001']
const args = (random: Random) =>
  `{"path":${JSON.stringify(saying(random))}${random.one(['', ' , "limit":', ',"limit":']).replace(/:$/, () => `:${random.one(NUMBERS)}`)}}`

function tool(surface: Talk['surface'], i: number, random: Random): Message {
  const name = random.chance(0.1) ? `tool ${i} of a name that is an alias` : `tool_${i}`
  const description = random.text(300)
  const parameters = random.chance(0.2)
    ? { type: 'object' }
    : { type: 'object', properties: { path: { type: 'string', description: random.text(200) } }, required: ['path'] }
  if (surface === 'chat') return { type: 'function', function: { name, description, parameters } }
  if (surface === 'messages') return { name, description, input_schema: parameters }
  return { type: 'function', name, description, strict: false, parameters }
}

/** What the client adds to its history for one turn. */
function added(talk: Talk, random: Random): Message[] {
  const { surface } = talk
  const kind = random.below(5)
  const image = `data:image/png;base64,${PNG}`
  if (kind === 0) {
    if (surface === 'responses')
      return [{ type: 'message', role: 'user', content: [{ type: 'input_text', text: saying(random) }] }]
    return [{ role: 'user', content: random.chance(0.5) ? saying(random) : [{ type: 'text', text: saying(random) }] }]
  }
  if (kind === 1) {
    if (surface === 'chat') return [{ role: 'user', content: [{ type: 'image_url', image_url: { url: image } }] }]
    if (surface === 'messages') {
      const source = { type: 'base64', media_type: 'image/png', data: PNG }
      const document = { type: 'document', source: { type: 'text', media_type: 'text/plain', data: saying(random) } }
      return [
        {
          role: 'user',
          content: [{ type: 'image', source }, random.chance(0.5) ? document : { type: 'text', text: 'x' }],
        },
      ]
    }
    return [{ role: 'user', content: [{ type: 'input_image', image_url: image }] }]
  }
  if (kind === 2) {
    if (surface === 'messages') return [{ role: 'assistant', content: saying(random) || 'x' }]
    return [{ role: random.one(['assistant', 'developer', 'system']), content: saying(random) }]
  }
  const calls = Array.from({ length: 1 + random.below(3) }, () => ({
    id: `${random.chance(0.2) ? 'call_eba1_' : 'call_'}${talk.calls++}`,
    name: `tool_${random.below(talk.tools.length + 1)}`,
    input: args(random),
  }))
  const said = saying(random)
  if (surface === 'chat')
    return [
      {
        role: 'assistant',
        content: random.chance(0.2) ? null : said,
        tool_calls: calls.map(({ id, name, input }) => ({
          id,
          type: 'function',
          function: { name, arguments: input },
        })),
      },
      ...calls.map(({ id }) => ({ role: 'tool', tool_call_id: id, content: saying(random) })),
    ]
  if (surface === 'messages')
    return [
      {
        role: 'assistant',
        content: [
          { type: 'text', text: said || 'x' },
          ...calls.map(({ id, name, input }) => ({ type: 'tool_use', id, name, input: { raw: input } })),
        ],
      },
      {
        role: 'user',
        content: calls.map(({ id }) => ({ type: 'tool_result', tool_use_id: id, content: saying(random) })),
      },
    ]
  return [
    ...calls.map(({ id, name, input }) => ({ type: 'function_call', call_id: id, name, arguments: input })),
    ...calls.map(({ id }) => ({ type: 'function_call_output', call_id: id, output: saying(random) })),
  ]
}

function begun(random: Random): Talk {
  const surface = random.one(['chat', 'messages', 'responses'] as const)
  const talk: Talk = {
    surface,
    system: random.text(9000),
    tools: Array.from({ length: random.below(12) }, (_, i) => tool(surface, i, random)),
    messages: [],
    more: [[surface === 'responses' ? 'max_output_tokens' : 'max_tokens', 4000]],
    toolsFirst: random.chance(0.3),
    calls: 0,
  }
  if (random.chance(0.5)) talk.more.push(['temperature', 0.5])
  talk.messages.push({ role: 'user', content: random.text(100) })
  return talk
}

/** Messages of a history whose calls all have results stay so: those that belong together are one step. */
function edit(talk: Talk, random: Random): void {
  const { messages, tools, surface } = talk
  const at = random.below(messages.length)
  const before = JSON.parse(JSON.stringify(messages[at]))
  switch (random.below(14)) {
    case 0: {
      // A cache marker moves to the last message.
      if (surface !== 'messages') break
      for (const { content } of messages)
        if (Array.isArray(content)) for (const block of content) delete block.cache_control
      const last = messages.at(-1)!
      if (Array.isArray(last['content'])) last['content'].at(-1).cache_control = { type: 'ephemeral' }
      break
    }
    case 1:
      messages.splice(at, 0, { role: 'user', content: saying(random) || 'x' })
      break
    case 2:
      messages.splice(Math.max(1, at))
      break
    case 3:
      messages[at] = Object.fromEntries(Object.entries(before).reverse())
      break
    case 4:
      messages.push(before)
      break
    case 5:
      if (typeof before.content === 'string') messages[at] = { ...before, content: `${before.content}.` }
      break
    case 6:
      tools.push(tool(surface, tools.length, random))
      break
    case 7:
      if (tools.length > 0) tools[random.below(tools.length)] = tool(surface, random.below(tools.length), random)
      break
    case 8:
      talk.more = random.shuffled(talk.more)
      break
    case 9:
      talk.more = [...talk.more.filter(([name]) => name !== 'temperature'), ['temperature', random.one([0.7, 1, 3])]]
      break
    case 10:
      talk.more.push(['no_such_member', 1])
      break
    case 11:
      messages[at] = { ...before, no_such_member: saying(random) }
      break
    case 12:
      messages[at] = { ...before, role: 7 }
      break
    case 13:
      talk.toolsFirst = !talk.toolsFirst
  }
}

function write(talk: Talk, spell: (value: unknown) => string): string {
  const { surface, system, tools, messages, more } = talk
  const members: [string, unknown][] = [
    ['model', 'test-model'],
    ['stream', true],
  ]
  const history: [string, unknown] =
    surface === 'chat'
      ? ['messages', [{ role: 'system', content: system }, ...messages]]
      : [surface === 'messages' ? 'messages' : 'input', messages]
  if (surface === 'responses') members.push(['instructions', system])
  if (tools.length > 0 && talk.toolsFirst) members.push(['tools', tools])
  members.push(history)
  if (surface === 'messages')
    members.push(['system', [{ type: 'text', text: system, cache_control: { type: 'ephemeral' } }]])
  if (tools.length > 0 && !talk.toolsFirst) members.push(['tools', tools])
  const text = [...members, ...more].map(([name, value]) => `"${name}": ${spell(value)}`).join(',')
  // The input of a call of Messages is JSON in the body, with numbers as the client spells them.
  return `{${text.replaceAll(/\{\s*"raw":\s*("(?:[^"\\]|\\.)*")\s*\}/g, (_, raw) => JSON.parse(raw))}}`
}

const DIALECTS: DialectName[] = ['openai-chat', 'openai-responses', 'anthropic-messages', 'gemini']

/** Two processes that get the same requests; one keeps nothing. */
class Both {
  readonly plain: Turns
  readonly kept: Turns
  constructor(options: TurnsOptions = {}) {
    this.plain = new Turns({ ...options, recent: { bytes: 0 } })
    this.kept = new Turns(options)
  }

  reload(options: TurnsOptions): void {
    this.plain.reload({ ...options, recent: { bytes: 0 } })
    this.kept.reload(options)
  }

  async ask(surface: string, body: string, asking: Asking, what: string): Promise<number> {
    const [want, got] = [
      await this.plain.ask(surfaces[surface]!, body, asking),
      await this.kept.ask(surfaces[surface]!, body, asking),
    ]
    assert.deepEqual({ ...got, response: '' }, { ...want, response: '' }, what)
    return got.status
  }
}

const CHOICES: [what: string, TurnsOptions][] = [
  ['as it is by default', {}],
  [
    'unknown members are stripped',
    { validation: { unknown_fields: { chat: 'strip', messages: 'strip', responses: 'strip' } } },
  ],
  ['pii-mask', { above: [piiMask as unknown as Plugin] }],
  ['small limits', { validation: { max_nodes: 300, max_depth: 8 } }],
  ['room for two conversations', { recent: { bytes: 120_000, organization_bytes: 90_000 } }],
]

for (const [what, options] of CHOICES) {
  test(`what is kept changes nothing: ${what}`, async () => {
    const both = new Both(options)
    const seen = new Map<number, number>()
    for (let seed = 0; seed < 25; seed++) {
      const random = new Random(seed)
      // Two that begin alike, side by side.
      const talks = [begun(random)]
      if (random.chance(0.5)) talks.push(structuredClone(talks[0]!))
      const spell = random.one(SPELLINGS)
      const to = { dialect: random.one(DIALECTS), headers: {} }
      for (let turn = 0; turn < 8; turn++) {
        const talk = random.one(talks)
        const before = structuredClone(talk)
        if (turn > 0) talk.messages.push(...added(talk, random))
        if (random.chance(0.4)) edit(talk, random)
        const asking: Asking = { organization: random.chance(0.9) ? 'acme' : 'other', to }
        if (random.chance(0.1)) asking.to = { dialect: random.one(DIALECTS), model: 'other' }
        if (random.chance(0.02)) for (const one of [both.plain, both.kept]) one.clock.advance(11 * 60_000)
        const status = await both.ask(talk.surface, write(talk, spell), asking, `${what}, seed ${seed}, turn ${turn}`)
        seen.set(status, (seen.get(status) ?? 0) + 1)
        // What was refused is not sent again.
        if (status !== 200) Object.assign(talk, before)
      }
    }
    assert.ok(seen.get(200)! > 40 && seen.get(400)! > 5, `answers: ${[...seen]}`)
    assert.ok(both.kept.recent.sharedBytes > 500_000, `${both.kept.recent.sharedBytes} bytes were shared`)
    assert.equal(both.plain.recent.bytes, 0)
  })
}

// ---- one case at a time ---------------------------------------------------------------------------------------------

const user = (content: string) => ({ role: 'user', content })
const chat = (messages: Message[], more: object = {}) =>
  JSON.stringify({ model: 'test-model', messages, max_tokens: 100, stream: true, ...more })
/** Some 12 KB, so that it is kept; no two are alike. */
const long = (seed: number) => new Random(seed).text(12_000)

test('two bodies that are alike wherever one is sampled are told apart by their bytes', async () => {
  const both = new Both()
  const one = chat([user(long(1)), user('a')])
  const bytes = Buffer.from(one)
  for (let at = 100; at < 9000; at++) if (at % 1024 > 8 && bytes[at] === 0x61) bytes[at] = 0x62
  const other = bytes.toString()
  assert.notEqual(other, one)
  for (let turn = 0; turn < 5; turn++)
    for (const body of [one, other])
      assert.equal(
        await both.ask('chat', body.replace(/"a"|"a\.+"/, `"a${'.'.repeat(turn)}"`), {}, `turn ${turn}`),
        200,
      )
})

test('organizations share nothing, nor do surfaces, nor ways to check a body', async () => {
  const turns = new Turns()
  const body = chat([user(long(2))])
  const strip = { validation: { unknown_fields: { chat: 'strip' } } }
  const shared = async (surface: string, asking: Asking = {}) => {
    const before = turns.recent.sharedBytes
    await turns.ask(surfaces[surface]!, body, asking)
    return turns.recent.sharedBytes > before
  }
  for (const options of [{}, strip]) {
    turns.reload(options)
    for (const [surface, organization] of [
      ['chat', 'acme'],
      ['chat', 'other'],
      ['cursor', 'acme'],
    ] as const) {
      const seen = [await shared(surface, { organization }), await shared(surface, { organization })]
      // Conversations of `cursor` are checked alike with both options.
      if (options !== strip || surface === 'chat') assert.deepEqual(seen, [false, false], `${surface} ${organization}`)
      assert.ok(await shared(surface, { organization }))
    }
  }
})

test('the bounds of a body hold for all of it, and not for what is new alone', async () => {
  const nested = (depth: number): object => (depth === 0 ? {} : { inner: nested(depth - 1) })
  for (const [bounds, last] of [
    [{ max_nodes: 36 }, user('x')],
    [{ max_depth: 12 }, { role: 'assistant', tool_calls: [{ id: 'a', type: 'function', function: nested(9) }] }],
  ] as const) {
    const both = new Both({ validation: bounds })
    const messages: Message[] = [user(long(6))]
    const statuses: number[] = []
    for (let turn = 0; turn < 10; turn++) {
      messages.push(turn === 9 ? last : user('go on'))
      statuses.push(await both.ask('chat', chat(messages), {}, `${Object.keys(bounds)}, turn ${turn}`))
    }
    assert.deepEqual([statuses[5], statuses[9]], [200, 400])
    assert.ok(both.kept.recent.sharedBytes > 12_000)
  }
})

test('a long text goes on as the client spelled it, in each turn', async () => {
  const both = new Both()
  const messages: Message[] = [user(long(7))]
  for (let turn = 0; turn < 6; turn++) {
    messages.push(user(turn === 3 ? 'a/b'.repeat(15_000) : 'go on'))
    const body = chat(messages).replaceAll('a/b', 'a\\/b')
    assert.equal(await both.ask('chat', body, {}, `turn ${turn}`), 200)
  }
  assert.ok(both.kept.recent.sharedBytes > 12_000)
})

test('what unknown_fields: strip removed is told in each turn', async () => {
  const both = new Both({ validation: { unknown_fields: { chat: 'strip' } } })
  const messages: Message[] = [{ ...user(long(3)), mood: 'x' }]
  for (let turn = 0; turn < 5; turn++) {
    messages.push(user('go on'))
    await both.ask('chat', chat(messages, { colour: 1 }), {}, `turn ${turn}`)
  }
})

test('a plugin of an operator that changes values in place meets what only this request has', async () => {
  const inPlace: Plugin = {
    name: 'in-place',
    summary: 'Changes what it finds.',
    create: () => ({
      onRequest(x) {
        for (const message of x.get(request)['messages'] as Message[]) message['content'] += '!'
        for (const { parts } of x.get(conversation).turns) {
          for (const part of parts) if (part.type === 'text') part.text += '?'
        }
        for (const tool of x.get(conversation).tools) (tool as Message)['parameters'].title += '*'
        return undefined
      },
    }),
  }
  const both = new Both({ above: [inPlace], foreign: true })
  const messages: Message[] = [user(long(4))]
  const parameters = { type: 'object', properties: {}, title: 't' }
  const tools = [{ type: 'function', function: { name: 'f', parameters } }]
  for (let turn = 0; turn < 5; turn++) {
    messages.push(user('go on'))
    await both.ask('chat', chat(messages, { tools }), {}, `turn ${turn}`)
  }
  assert.equal(both.kept.recent.bytes, 0)
})

test('previous_response_id: a chain that is kept changes nothing, whatever became of its responses', async () => {
  const read = [0, 0]
  for (let seed = 0; seed < 40; seed++) {
    const random = new Random(seed)
    const stores = [await memoryStore(), await memoryStore()]
    for (const [i, { records }] of stores.entries()) {
      const get = records.get.bind(records)
      records.get = (...question) => {
        read[i]!++
        return get(...question)
      }
    }
    const recent = random.chance(0.3) ? { bytes: 60_000, organization_bytes: 20_000 } : {}
    const both = [new Turns({ store: stores[0]!, recent: { bytes: 0 } }), new Turns({ store: stores[1]!, recent })]
    /** The ids of each response, in the process that keeps nothing and in the other. */
    const responses: string[][] = []
    const alike = (outcome: Outcome, i: number) =>
      responses.reduce(
        (text, ids, n) => text.replaceAll(ids[i]!, `response ${n}`),
        JSON.stringify({ ...outcome, response: '' }),
      )
    for (let turn = 0; turn < 14; turn++) {
      const last = responses.length - 1
      // Most often the last one is continued, sometimes an earlier one, sometimes none.
      const previous = random.chance(0.85) ? last : random.chance(0.7) ? random.below(responses.length + 1) : -1
      const kind = random.below(8)
      if (kind === 0 && last > 0) {
        const gone = responses[random.below(responses.length)]!
        for (const [i, { records }] of stores.entries()) await records.delete('acme', 'response', gone[i]!)
      } else if (kind === 1) {
        const ms = random.one([1, 10, 25]) * 3_600_000
        for (const { clock } of both) clock.advance(ms)
      } else if (kind === 2) both[1]!.recent.clear()
      const asking = random.chance(0.05) ? { organization: 'other' } : {}
      const input = random.chance(0.5)
        ? random.text(100 + random.below(4000))
        : [
            { type: 'function_call', call_id: `call_${turn}`, name: 'f', arguments: '{"a": 1.0}' },
            { type: 'function_call_output', call_id: `call_${turn}`, output: random.text(50) },
          ]
      const body = { model: 'test-model', input, stream: true, ...(turn % 3 === 0 && { instructions: `turn ${turn}` }) }
      const outcomes: Outcome[] = []
      for (const [i, one] of both.entries()) {
        const id = responses[previous]?.[i]
        const asked = JSON.stringify({ ...body, ...(id && { previous_response_id: id }) })
        outcomes.push(await one.ask(surfaces['responses']!, asked, asking))
      }
      const [want, got] = outcomes as [Outcome, Outcome]
      assert.equal(alike(got, 1), alike(want, 0), `seed ${seed}, turn ${turn}`)
      if (want.response) responses.push([want.response, got.response!])
    }
  }
  assert.ok(read[1]! < 0.75 * read[0]!, `${read[1]} records were read where ${read[0]} are without`)
})

test('a text that was counted among others counts alone when it has become a document', async () => {
  const both = new Both()
  const parts = Array.from({ length: 30 }, (_, i) => new Random(i).text(1200))
  const body = (document: number) =>
    JSON.stringify({
      model: 'test-model',
      max_tokens: 10,
      messages: [
        {
          role: 'user',
          content: parts.map((data, i) =>
            i === document
              ? { type: 'document', source: { type: 'text', media_type: 'text/plain', data } }
              : { type: 'text', text: data },
          ),
        },
      ],
    })
  for (const document of [-1, -1, -1, 3, 3, 20, -1])
    await both.ask('messages', body(document), {}, `document ${document}`)
})
