/** Compaction on every dialect, through a listening gateway, with the official clients: what they get, send back, and pay. */
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { PromptCount } from '../../meter/index.ts'
import { surfaces } from '../../surfaces/index.ts'
import { eventually } from '../eventually.ts'
import { defaultYaml, startGateway, type TestGateway } from './harness.ts'

const MODELS = ['eb1-preview', 'eb1-efficient-preview', 'eb1-fast-preview', 'eb1-frontier-preview']
const WORDS = 'word '.repeat(60)
/** The simulator says this of a prompt whose last message has it, be it a summary or an answer. */
const saying = (words: string) => `[[sim: text ${JSON.stringify(words)}]]`

const history = (last: string) => [
  { role: 'user' as const, content: `The first request. ${WORDS}` },
  { role: 'assistant' as const, content: 'Done.' },
  { role: 'user' as const, content: last },
]
const COMPACT = [{ type: 'compaction' as const, compact_threshold: 50 }]
const edits = (more: object = {}) => ({
  context_management: { edits: [{ type: 'compact_20260112', trigger: { type: 'input_tokens', value: 50 }, ...more }] },
})
const typesOf = (items: any[]) => items.map(({ type }) => type)

let t: TestGateway
before(async () => {
  t = await startGateway({
    yaml: url => {
      const yaml = defaultYaml(url)
      const line = /^ {2}completions: .*$/m.exec(yaml)![0]
      const bare = line.replace('completions:', 'bare:').replace('compaction, ', '')
      const routes = Object.entries({ responses: 'responses', compact: 'compact', messages: 'messages' }).map(
        ([path, surface]) => `  - { match: POST /bare/${path}, surface: ${surface}, pipeline: bare }\n`,
      )
      return yaml.replace(line, `${line}\n${bare}`).replace('routes:\n', `routes:\n${routes.join('')}`)
    },
  })
})
after(() => t.close())

/** The bodies of requests for completions that reached the upstream since the last call. */
function sent(): any[] {
  const all = t.simulator.requests as unknown as { method: string; json: any }[]
  return all.splice(0).map(({ json }) => json)
}
async function response(body: object, stream = false): Promise<any> {
  const whole = { model: MODELS[0], ...body } as any
  return stream ? t.openai().responses.stream(whole).finalResponse() : t.openai().responses.create(whole)
}
async function message(body: object, stream = false): Promise<any> {
  const whole = { model: MODELS[0], max_tokens: 500, ...body } as any
  const { messages } = t.anthropic().beta
  return stream ? messages.stream(whole).finalMessage() : messages.create(whole)
}
async function counted(path: string, body: object): Promise<any> {
  return (await t.post(path, { model: MODELS[0], ...body })).json()
}
const tokensOf = (surface: string, body: object): number =>
  new PromptCount(surfaces[surface]!.parse({ model: 'm', max_tokens: 1, ...body })).now({
    image_tokens: 85,
    document_tokens: 1500,
  })
async function lastRow() {
  return (await t.ledger()).at(-1)!
}

describe('responses', () => {
  for (const model of MODELS) {
    test(`[RESP-10] ${model}: compact and go on, by the endpoint, by a trigger, and above a threshold`, async () => {
      sent()
      const compacted = (await t.openai().responses.compact({ model, input: history(saying('so far')) as any })) as any
      assert.equal(compacted.object, 'response.compaction')
      assert.deepEqual(typesOf(compacted.output), ['message', 'message', 'compaction'])
      assert.equal(sent().length, 1)
      const next = await response({ model, input: [...compacted.output, { role: 'user', content: 'And now?' }] })
      assert.match(JSON.stringify(sent()), /so far/)
      assert.deepEqual(typesOf(next.output), ['message'])

      for (const stream of [false, true]) {
        const input = [...history(saying('so far')), { type: 'compaction_trigger' }]
        const triggered = await response({ model, input }, stream)
        assert.deepEqual([triggered.status, typesOf(triggered.output)], ['completed', ['compaction']])
        const above = await response({ model, input: history(saying('both')), context_management: COMPACT }, stream)
        assert.deepEqual(typesOf(above.output), ['compaction', 'message'])
        assert.match(above.output_text, /both/)
        assert.equal(sent().length, 3)
      }
    })
  }

  test('one row has both calls, each priced by its own prompt, and the usage is that of the row', async () => {
    const input = history(saying('so far'))
    const reply = await response({ input, context_management: COMPACT })
    const row = await lastRow()
    const [capsule] = reply.output
    const second = await counted('/v1/responses/input_tokens', { input: [capsule] })
    assert.equal(row.input, tokensOf('responses', { input }) + second.input_tokens)
    assert.deepEqual(
      [reply.usage.input_tokens, reply.usage.output_tokens, row.surface],
      [row.input, row.output, 'responses'],
    )
  })

  test('the history that a client sends along with a compaction is not sent again, and not counted', async () => {
    const first = await response({ input: history(saying('so far')), context_management: COMPACT })
    const bare = [...first.output, { role: 'user', content: 'Next?' }]
    const whole = [...history(saying('so far')), ...bare]
    const [short, long] = await Promise.all(
      [bare, whole].map(async input => (await counted('/v1/responses/input_tokens', { input })).input_tokens),
    )
    assert.equal(long, short)
    sent()
    await response({ input: whole })
    assert.doesNotMatch(JSON.stringify(sent()), /first request/)
  })

  test('[RESP-2] [RESP-10] a retained compaction is continued by its id, without what it stands for; its items can be listed', async () => {
    for (const body of [
      { input: history(saying('so far')), context_management: COMPACT },
      { input: [...history(saying('so far')), { type: 'compaction_trigger' }] },
    ]) {
      const first = await response(body)
      const second = await response({ previous_response_id: first.id, input: 'Next?' })
      sent()
      await response({ previous_response_id: second.id, input: 'And then?' })
      const [{ messages }] = sent()
      const said = JSON.stringify(messages)
      assert.match(said, /so far.*Next\?.*And then\?/)
      assert.equal(
        /first request/.test(said),
        !('context_management' in body),
        'messages of the user stay for a trigger',
      )
      assert.doesNotMatch(said, /Done\./)
      const items = ((await t.openai().get(`/responses/${first.id}/input_items`)) as any).data
      assert.ok(items.some((item: any) => item.type === 'compaction' && item.encrypted_content.startsWith('cmp_eba1_')))
    }
  })

  test('a continued response is compacted with all that is behind it', async () => {
    const first = await response({ input: history('Hello.') })
    sent()
    const compacted = (await t.openai().responses.compact({
      ...{ model: MODELS[0]!, previous_response_id: first.id },
      input: saying('all of it'),
    })) as any
    assert.match(JSON.stringify(sent()), /first request/)
    assert.equal(compacted.output.at(-1).type, 'compaction')
  })

  const refusals: [string, object, string, string, RegExp][] = [
    [
      'forged',
      { input: [{ type: 'compaction', encrypted_content: 'cmp_eba1_AAAA' }] },
      'invalid_value',
      'input[0].encrypted_content',
      /no compaction of this service/,
    ],
    [
      'a trigger before the end',
      { input: [{ type: 'compaction_trigger' }, ...history('x')] },
      'invalid_value',
      'input[0]',
      /last item/,
    ],
    [
      'a threshold of nothing',
      { input: 'x', context_management: [{ type: 'compaction', compact_threshold: 0 }] },
      'invalid_value',
      'context_management[0].compact_threshold',
      /at least 1/,
    ],
    [
      'two of them',
      { input: 'x', context_management: [...COMPACT, ...COMPACT] },
      'invalid_value',
      'context_management',
      /at most 1/,
    ],
  ]
  for (const [what, body, code, param, words] of refusals) {
    test(`${what}: refused, by its name`, async () => {
      sent()
      const reply = await t.post('/v1/responses', { model: MODELS[0], ...body })
      const { error } = (await reply.json()) as any
      assert.deepEqual([reply.status, error.code, error.param], [400, code, param])
      assert.match(error.message, words)
      assert.equal(sent().length, 0)
    })
  }

  test('a model is required, and members of other requests are not known', async () => {
    for (const [body, code, param] of [
      [{ input: 'x' }, 'missing_required_parameter', 'model'],
      [{ model: MODELS[0], input: 'x', stream: true }, 'unknown_parameter', 'stream'],
      [{ model: MODELS[0] }, 'missing_required_parameter', 'input'],
    ] as const) {
      const reply = await t.post('/v1/responses/compact', body)
      const { error } = (await reply.json()) as any
      assert.deepEqual([reply.status, error.code, error.param], [400, code, param])
    }
  })

  test('a compaction that fails before its stream begins is an error of its own status, which names what asked', async () => {
    const rows = (await t.ledger()).length
    const reply = await t.post('/v1/responses', {
      ...{ model: MODELS[0], stream: true, context_management: COMPACT },
      input: history('[[sim: refuse "no"]]'),
    })
    const { error } = (await reply.json()) as any
    assert.deepEqual([reply.status, error.code, error.param], [502, 'upstream_server_error', 'context_management'])
    const row = (await t.ledger())[rows]!
    assert.deepEqual([row.outcome, row.cost], ['upstream_error', 0])
  })
})

describe('messages', () => {
  for (const [i, model] of MODELS.entries()) {
    const stream = i % 2 === 1
    test(`[MSG-7] ${model}: a compaction is a block, and stands for what was before it`, async () => {
      const first = await message({ model, messages: history(saying('so far')), ...edits() }, stream)
      assert.deepEqual(typesOf(first.content), ['compaction', 'text'])
      assert.equal(first.content[0].content, 'so far')
      assert.deepEqual(first.context_management, { applied_edits: [] })
      const messages = [
        ...history('x'),
        { role: 'assistant', content: first.content },
        { role: 'user', content: 'Next?' },
      ]
      sent()
      await message({ model, messages }, stream)
      const [body] = sent()
      assert.match(JSON.stringify(body), /so far/)
      assert.doesNotMatch(JSON.stringify(body), /first request/)
    })
  }

  test('usage is that of the answer; the list of calls adds up to the row', async () => {
    const reply = await message({ messages: history(saying('so far')), ...edits() })
    const { input_tokens, cache_read_input_tokens, output_tokens, iterations } = reply.usage
    assert.deepEqual(typesOf(iterations), ['compaction', 'message'])
    assert.deepEqual(
      [iterations[1].input_tokens, iterations[1].cache_read_input_tokens, iterations[1].output_tokens],
      [input_tokens, cache_read_input_tokens, output_tokens],
    )
    const row = await lastRow()
    const sum = (member: string) => iterations.reduce((all: number, one: any) => all + one[member], 0)
    assert.deepEqual(
      [sum('input_tokens') + sum('cache_read_input_tokens'), sum('output_tokens')],
      [row.input, row.output],
    )
  })

  test('pause_after_compaction and `compaction` end with the block', async () => {
    for (const body of [edits({ pause_after_compaction: true }), { compaction: { type: 'summarize' } }]) {
      for (const stream of [false, true]) {
        const reply = await message({ messages: history(saying('so far')), ...body }, stream)
        assert.deepEqual([reply.stop_reason, typesOf(reply.content)], ['compaction', ['compaction']])
        assert.deepEqual([reply.usage.input_tokens, typesOf(reply.usage.iterations)], [0, ['compaction']])
      }
    }
  })

  test('instructions of the client are sent, counted and billed', async () => {
    const messages = history('Hello.')
    sent()
    await message({ messages, ...edits({ pause_after_compaction: true, instructions: saying('my way') }) })
    assert.match(JSON.stringify(sent()[0].messages.at(-1)), /my way/)
    assert.equal((await lastRow()).input, tokensOf('messages', { messages }) + countOf(saying('my way')))
  })

  const uses = (...ids: string[]) =>
    ids.flatMap(id => [
      { role: 'assistant', content: [{ type: 'tool_use', id, name: 'read', input: { file: id } }] },
      { role: 'user', content: [{ type: 'tool_result', tool_use_id: id, content: `Contents of ${id}. ${WORDS}` }] },
    ])
  const TOOLS = [{ name: 'read', input_schema: { type: 'object' } }]
  const clear = {
    type: 'clear_tool_uses_20250919',
    trigger: { type: 'tool_uses', value: 2 },
    keep: { type: 'tool_uses', value: 1 },
  }

  test('[MSG-7] edits are applied before the prompt is counted, and the reply and a count tell what they did', async () => {
    const body = { messages: [{ role: 'user', content: 'Go.' }, ...uses('a', 'b', 'c')], tools: TOOLS }
    const edited = { ...body, context_management: { edits: [clear] } }
    sent()
    const reply = await message(edited)
    const said = JSON.stringify(sent()[0])
    assert.deepEqual(
      [/Contents of a/.test(said), /Contents of b/.test(said), /Contents of c/.test(said)],
      [false, false, true],
    )
    const [applied] = reply.context_management.applied_edits
    const before = tokensOf('messages', body)
    const row = await lastRow()
    assert.deepEqual(applied, {
      ...{ type: 'clear_tool_uses_20250919', cleared_tool_uses: 2 },
      cleared_input_tokens: before - row.input,
    })
    const count = await counted('/v1/messages/count_tokens', edited)
    assert.deepEqual(count, { input_tokens: row.input, context_management: { original_input_tokens: before } })
    const streamed = await message(edited, true)
    assert.deepEqual(streamed.context_management, reply.context_management)
  })

  test('a summary that was changed beside its seal is refused; without the seal it is the client’s own', async () => {
    const first = await message({ messages: history(saying('so far')), ...edits({ pause_after_compaction: true }) })
    const [block] = first.content
    const withBlock = (changed: object) => [
      { role: 'assistant', content: [{ ...block, ...changed }] },
      { role: 'user', content: 'Next?' },
    ]
    const refused = await t.post('/v1/messages', {
      model: MODELS[0],
      max_tokens: 9,
      messages: withBlock({ content: 'else' }),
    })
    assert.equal(refused.status, 400)
    assert.match(
      ((await refused.json()) as any).error.message,
      /'messages\[0\]\.content\[0\]\.encrypted_content' holds another/,
    )
    sent()
    await message({ messages: withBlock({ content: 'my own words', encrypted_content: null }) })
    assert.match(JSON.stringify(sent()), /my own words/)
    await message({ messages: withBlock({ content: null, encrypted_content: null }) })
    assert.doesNotMatch(JSON.stringify(sent()), /<summary>/)
  })
})

function countOf(words: string): number {
  const bare = { messages: [{ role: 'user', content: 'x' }] }
  const more = {
    messages: [
      {
        role: 'user',
        content: [
          { type: 'text', text: 'x' },
          { type: 'text', text: words },
        ],
      },
    ],
  }
  return tokensOf('messages', more) - tokensOf('messages', bare)
}

test('Chat Completions and Cursor have no form for a compaction', async () => {
  const input = [...history('x'), { type: 'compaction_trigger' }]
  const chat = await t.post('/v1/chat/completions', {
    model: MODELS[0],
    messages: history('x'),
    context_management: COMPACT,
  })
  assert.equal(((await chat.json()) as any).error.code, 'unknown_parameter')
  assert.throws(() => surfaces['cursor']!.parse({ model: 'm', input }), /has no form in a chat completion/)
})

test('a client that leaves while its conversation is compacted pays for nothing, and no second call is made', async () => {
  sent()
  const stop = new AbortController()
  const body = { model: MODELS[0], stream: true, input: history('[[sim: delay 30s]]'), context_management: COMPACT }
  const asked = fetch(`${t.url}/v1/responses`, {
    ...{ method: 'POST', signal: stop.signal, body: JSON.stringify(body) },
    headers: { 'content-type': 'application/json', authorization: 'Bearer sk-test-0001-secret' },
  })
  const { requests } = t.simulator as unknown as { requests: unknown[] }
  const rows = (await t.ledger()).length
  await eventually(() => requests.length === 1)
  stop.abort()
  await assert.rejects(asked)
  await eventually(async () => (await t.ledger()).length > rows)
  const row = await lastRow()
  assert.deepEqual([row.outcome, row.cost, requests.length], ['client_gone', 0, 1])
})

test('in a pipeline without the line, what needs it is refused by name; what was compacted goes on', async () => {
  const ask = (path: string, body: object) => t.post(`/bare/${path}`, { model: MODELS[0], ...body })
  const refused = async (path: string, body: object) => {
    const reply = await ask(path, body)
    assert.equal(reply.status, 400)
    assert.match(((await reply.json()) as any).error.message, /it asks for compaction, which is not offered here/)
  }
  await refused('responses', { input: history('x'), context_management: COMPACT })
  await refused('responses', { input: [...history('x'), { type: 'compaction_trigger' }] })
  await refused('compact', { input: history('x') })
  await refused('messages', { max_tokens: 9, messages: history('x'), ...edits() })
  const keepAll = { context_management: { edits: [{ type: 'clear_thinking_20251015', keep: 'all' }] } }
  const kept = await ask('messages', { max_tokens: 9, messages: history('x'), ...keepAll })
  assert.equal(kept.status, 200, 'an edit that clears nothing needs nothing')
  const { output } = await response({ input: [...history(saying('so far')), { type: 'compaction_trigger' }] })
  sent()
  const reply = await ask('responses', { input: [...output, { role: 'user', content: 'Next?' }] })
  assert.equal(reply.status, 200)
  assert.match(JSON.stringify(sent()), /so far/)
})
