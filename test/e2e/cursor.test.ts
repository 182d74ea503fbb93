/** Cursor's agent mode over each dialect: bodies of Responses go in on its path, chat completions come out. */
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { DIALECTS } from './conversations.ts'
import { defaultYaml, startGateway, type TestGateway } from './harness.ts'

const PATH = '/v1/cursor/chat/completions'
let t: TestGateway
before(async () => {
  t = await startGateway({
    yaml: url =>
      defaultYaml(url).replace(
        'routes:',
        `routes:\n  - { match: POST ${PATH}, surface: cursor, pipeline: completions }`,
      ),
  })
})
after(() => t.close())

const PATCH = '*** Begin Patch\n"é"\n*** End Patch'
const TOOLS = [
  { type: 'function', name: 'read', parameters: { type: 'object', properties: { path: { type: 'string' } } } },
  { type: 'custom', name: 'ApplyPatch', description: 'Applies a patch' },
]
const prompt = `[[sim: text "On it. "; call read {"path":"a"}; call ApplyPatch ${JSON.stringify(PATCH)}]] go`

/** Joins the deltas of a stream as clients do. */
async function joined(response: Response): Promise<{ message: any; finish: string; usage: any }> {
  const text = await response.text()
  assert.match(text, /data: \[DONE\]\n\n$/, text)
  const message: any = { content: '', tool_calls: [] }
  let [finish, usage]: [string, any] = ['', undefined]
  for (const line of text.split('\n\n').filter(line => line.startsWith('data: {'))) {
    const chunk = JSON.parse(line.slice(6))
    usage = chunk.usage ?? usage
    const [choice] = chunk.choices
    if (!choice) continue
    message.content += choice.delta.content ?? ''
    finish = choice.finish_reason ?? finish
    for (const { index, function: called, custom, ...begin } of choice.delta.tool_calls ?? []) {
      const call = (message.tool_calls[index] ??= { ...begin, ...(custom ? { custom: {} } : { function: {} }) })
      for (const [key, value] of Object.entries(called ?? custom)) {
        const into = call.custom ?? call.function
        into[key] = (into[key] ?? '') + value
      }
    }
  }
  return { message, finish, usage }
}

for (const [dialect, model] of Object.entries(DIALECTS)) {
  test(`agent mode on ${dialect}: calls of both kinds, streamed and whole, and their results`, async () => {
    const body = { model, input: [{ role: 'user', content: prompt }], tools: TOOLS, reasoning: { effort: 'low' } }
    const stream = { ...body, stream: true, stream_options: { include_usage: true } }
    const { message, finish, usage } = await joined(await t.post(PATH, stream))
    assert.equal(finish, 'tool_calls')
    assert.equal(message.content, 'On it. ')
    const [read, patch] = message.tool_calls
    assert.deepEqual(read.function, { name: 'read', arguments: '{"path":"a"}' })
    assert.deepEqual([patch.type, patch.custom], ['custom', { name: 'ApplyPatch', input: PATCH }])
    const whole: any = await (await t.post(PATH, body)).json()
    assert.equal(whole.object, 'chat.completion')
    const said = whole.choices[0].message
    assert.deepEqual(
      said.tool_calls.map(({ id: _, ...call }: any) => call),
      message.tool_calls.map(({ id: _, ...call }: any) => call),
    )
    assert.equal(usage.total_tokens, whole.usage.total_tokens)

    // The next turn, once in each shape.
    const results = { read: 'text of a', patch: 'done' }
    const input = [
      ...body.input,
      { type: 'function_call', call_id: read.id, ...read.function },
      { type: 'custom_tool_call', call_id: patch.id, ...patch.custom },
      { type: 'function_call_output', call_id: read.id, output: results.read },
      { type: 'custom_tool_call_output', call_id: patch.id, output: results.patch },
    ]
    const messages = [
      ...body.input,
      { role: 'assistant', content: null, tool_calls: message.tool_calls },
      { role: 'tool', tool_call_id: read.id, content: results.read },
      { role: 'tool', tool_call_id: patch.id, content: results.patch },
    ]
    const sent = []
    for (const turns of [{ input }, { messages }]) {
      const { reasoning: _, input: __, ...rest } = body
      const reply: any = await (await t.post(PATH, { ...rest, ...turns })).json()
      assert.equal(reply.choices?.[0].finish_reason, 'stop', JSON.stringify(reply))
      sent.push(JSON.parse(t.simulator.requests.at(-1)!.body))
    }
    assert.deepEqual(sent[0], sent[1])
  })
}

test('its row names the surface, and errors have the form of OpenAI', async () => {
  await (await t.post(PATH, { model: 'eb1-preview', input: 'hi' })).json()
  assert.equal((await t.ledger()).at(-1)!.surface, 'cursor')
  const refused = await t.post(PATH, { model: 'nobody', input: 'hi' })
  assert.deepEqual([refused.status, ((await refused.json()) as any).error.code], [404, 'model_not_found'])
})

test('unknown paths do not offer it to other clients', async () => {
  const { error } = (await (await t.post('/v1/nothing', {})).json()) as any
  assert.doesNotMatch(error.message, /cursor/)
})
