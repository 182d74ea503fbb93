/**
 * What SDK users expect beside completions: models by id, responses that are retrieved and deleted, counts of a
 * Responses prompt; and the list of models for Anthropic's clients, with their header and their errors.
 */
import assert from 'node:assert/strict'
import { writeFile } from 'node:fs/promises'
import { after, before, test } from 'node:test'
import Anthropic from '@anthropic-ai/sdk'
import OpenAI from 'openai'
import { bodyOf, DIALECTS } from './conversations.ts'
import { defaultYaml, KEY, startGateway, stillClock, type TestGateway } from './harness.ts'

let t: TestGateway
before(async () => {
  t = await startGateway({ organization: '    limits: { requests_per_minute: 1000 }' })
})
after(() => t.close())

const other = () => t.openai({ apiKey: 'sk-other-0001-secret' })

// ---- models ---------------------------------------------------------------------------------------------------------

test('[MOD-8] both SDKs retrieve a model as the list shows it, by id and by alias', async () => {
  const listed = (await t.openai().models.list()).data
  for (const entry of listed) {
    assert.deepEqual(await t.openai().models.retrieve(entry.id), entry)
    assert.deepEqual(await t.anthropic().models.retrieve(entry.id), entry as unknown)
  }
  assert.equal((await t.openai().models.retrieve('eb1-preview-fast')).id, 'eb1-fast-preview')
  assert.equal((await t.openai().models.retrieve('eb1-delta-preview')).id, 'eb1-delta-preview', 'not listed')
})

test('[MOD-8] [MOD-4] a model that is not there is 404 model_not_found, in the form of the SDK that asks', async () => {
  for (const id of ['nope', 'a/b', 'ä', '%']) {
    await assert.rejects(t.openai().models.retrieve(id), (error: any) => {
      assert.ok(error instanceof OpenAI.NotFoundError)
      assert.equal(error.code, 'model_not_found')
      return true
    })
    await assert.rejects(t.anthropic().models.retrieve(id), (error: any) => {
      assert.ok(error instanceof Anthropic.NotFoundError)
      assert.equal((error.error as any).type, 'error')
      assert.equal((error.error as any).error.code, 'model_not_found')
      return true
    })
  }
  const undecodable = await fetch(`${t.url}/v1/models/%ff`, { headers: { authorization: `Bearer ${KEY}` } })
  assert.deepEqual([undecodable.status, await codeOf(undecodable)], [404, 'model_not_found'])
})

const codeOf = async (response: Response) => ((await response.json()) as any).error.code

test('[MOD-8] the id of a model may have slashes, as they are or encoded', async () => {
  const gateway = await startGateway({
    yaml: url => defaultYaml(url).replaceAll('eb1-fast-preview', 'team/eb1-fast-preview'),
  })
  try {
    for (const path of ['team/eb1-fast-preview', 'team%2Feb1-fast-preview']) {
      const response = await fetch(`${gateway.url}/v1/models/${path}`, { headers: { authorization: `Bearer ${KEY}` } })
      assert.equal(((await response.json()) as any).id, 'team/eb1-fast-preview')
    }
  } finally {
    await gateway.close()
  }
})

// Claude Code's picker takes only ids that begin with `claude` or `anthropic`, so no model of the gateway was in it.
test('[MOD-1] Anthropic’s SDK pages through its aliases, gets one and calls it; others see none of them', async () => {
  const gateway = await startGateway({
    yaml: url =>
      defaultYaml(url).replace(
        'eb1-preview: {',
        'eb1-preview: { listed_aliases: { messages: [claude-eb1-preview] }, display_name: EB1,',
      ),
  })
  try {
    const anthropic = gateway.anthropic()
    const seen = []
    for await (const { id, display_name } of anthropic.models.list({ limit: 2 })) seen.push([id, display_name])
    assert.deepEqual(seen.slice(0, 2), [
      ['eb1-preview', 'EB1'],
      ['claude-eb1-preview', 'EB1'],
    ])
    assert.equal(seen.length, 5)
    const alias = await anthropic.models.retrieve('claude-eb1-preview')
    assert.deepEqual([alias.id, alias.display_name], ['claude-eb1-preview', 'EB1'])
    const reply = await anthropic.messages.create({
      model: 'claude-eb1-preview',
      max_tokens: 9,
      messages: [{ role: 'user', content: 'x' }],
    })
    assert.equal(reply.model, 'eb1-preview')
    const others = (await gateway.openai().models.list()).data.map(({ id }) => id)
    assert.ok(others.length === 4 && !others.includes('claude-eb1-preview'), others.join())
  } finally {
    await gateway.close()
  }
})

// `/v1/models/` was "The model  does not exist.", and a path below a response was told as a response that was never
// stored, or as one that takes GET and DELETE.
test('[GEN-4] a path below a known one is not found, and what is there is told', async () => {
  const ask = async (method: string, path: string) => {
    const response = await fetch(`${t.url}${path}`, { method, headers: { authorization: `Bearer ${KEY}` } })
    const { error } = (await response.json()) as any
    return [response.status, error.code, error.message]
  }
  const notFound = (path: string, more: string) => [404, 'not_found', `No such path: ${path}${more}`]
  const models = 'What is there: GET /v1/models; GET /v1/models/{id}.'
  assert.deepEqual(
    await ask('GET', '/v1/models/'),
    notFound('/v1/models/', `, with nothing after its last slash. ${models}`),
  )
  const response = 'What is there: GET, DELETE /v1/responses/{id}; GET /v1/responses/{id}/input_items.'
  for (const method of ['GET', 'POST', 'DELETE']) {
    for (const path of ['/v1/responses/resp_1/cancel', '/v1/responses/resp_1/a/b'])
      assert.deepEqual(await ask(method, path), notFound(path, `. ${response}`))
    const empty = '/v1/responses/resp_1/'
    assert.deepEqual(await ask(method, empty), notFound(empty, `, with nothing after its last slash. ${response}`))
  }
  const [, , words] = await ask('GET', '/v1/responses/')
  assert.match(
    words,
    /^No such path: \/v1\/responses\/, with nothing after its last slash\. What is there: POST \/v1\/responses; POST \/v1\/responses\/compact; POST \/v1\/responses\/input_tokens; POST \/v1\/responses\/quote; GET, DELETE \/v1\/responses\/\{id\}/,
  )
  assert.deepEqual(
    await ask('GET', '/v1/chat/completions/chatcmpl-1'),
    notFound(
      '/v1/chat/completions/chatcmpl-1',
      '. What is there: POST /v1/chat/completions; POST /v1/chat/completions/quote.',
    ),
  )
  assert.deepEqual(await ask('POST', '/v1/responses/cancel'), [
    405,
    'method_not_allowed',
    '/v1/responses/cancel does not take POST. It takes GET, DELETE.',
  ])
  // Far below, nothing is near: each level would cost a search.
  const [, , deep] = await ask('GET', `/v1/responses/${'/'.repeat(8000)}`)
  assert.match(deep, /See GET \/v1\/models/)
})

test('[GEN-4] routes of an operator are found as before, and not told', async () => {
  const gateway = await startGateway({
    yaml: url =>
      defaultYaml(url)
        .replace('pipelines:', `pipelines:\n  own: [auth, { proxy: { target: '${url}' } }]`)
        .replace(
          'routes:',
          'routes:\n  - { match: GET /own, pipeline: own }\n  - { match: ANY /own/secret/*, pipeline: own }',
        ),
  })
  try {
    const refusal = async (path: string) =>
      ((await (await fetch(`${gateway.url}${path}`)).json()) as any).error.message as string
    for (const path of ['/own/', '/own/x']) assert.match(await refusal(path), /^No such path: .* See GET \/v1\/models/)
    for (const path of ['/own/secret/', '/own/secret/a/b/'])
      assert.match(await refusal(path), /^No Authorization header/)
  } finally {
    await gateway.close()
  }
})

// The option did nothing on the pipeline of models, whose routes have no surface.
test('[AUTH-2] [MOD-1] Anthropic clients list and retrieve models with x-api-key, where the operator allows it', async () => {
  const gateway = await startGateway({
    yaml: url => defaultYaml(url).replaceAll('[auth,', '[{ auth: { x_api_key: true } },'),
  })
  try {
    const client = gateway.anthropic({ apiKey: KEY, authToken: null })
    const ids: string[] = []
    for await (const model of client.models.list()) ids.push(model.id)
    assert.ok(ids.includes('eb1-fast-preview'))
    assert.equal((await client.models.retrieve('eb1-preview')).id, 'eb1-preview')
    const wrong = gateway.anthropic({ apiKey: 'sk-wrong-0001-secret', authToken: null })
    await assert.rejects(wrong.models.list(), (error: any) => {
      assert.ok(error instanceof Anthropic.AuthenticationError)
      assert.equal(error.requestID, (error.error as any).request_id)
      assert.deepEqual((error.error as any).type, 'error')
      return true
    })
    // It is of no use on another client's surface.
    const chat = await fetch(`${gateway.url}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-api-key': KEY },
      body: JSON.stringify(bodyOf('chat', 'eb1-preview', [{ user: 'x' }])),
    })
    assert.equal(chat.status, 401)
  } finally {
    await gateway.close()
  }
})

test('[ERR-1] a path without a surface answers in the form of its caller', async () => {
  const ask = async (path: string, headers: Record<string, string>, method = 'GET') => {
    const response = await fetch(`${t.url}${path}`, { method, headers })
    const body: any = await response.json()
    assert.equal(body.error.request_id, response.headers.get('x-request-id'))
    assert.equal(response.headers.get('request-id'), body.type === 'error' ? body.error.request_id : null)
    return [response.status, body.type]
  }
  const anthropic = { 'anthropic-version': '2023-06-01' }
  for (const headers of [anthropic, { 'x-api-key': 'k' }]) {
    assert.deepEqual(await ask('/v1/models', headers), [401, 'error'])
    assert.deepEqual(await ask('/v1/models', headers, 'DELETE'), [405, 'error'])
    assert.deepEqual(await ask('/v1/nothing', headers), [404, 'error'])
    assert.deepEqual(await ask('/v24b/v1/models', headers), [410, 'error'])
    // The path decides before the headers do.
    assert.deepEqual(await ask('/v1/responses/resp_x', headers), [401, undefined])
  }
  assert.deepEqual(await ask('/v1/models', {}), [401, undefined])
  assert.deepEqual(await ask('/v1/nothing', {}), [404, undefined])
  const listed = await fetch(`${t.url}/v1/models`, { headers: { ...anthropic, authorization: `Bearer ${KEY}` } })
  assert.equal(listed.headers.get('request-id'), listed.headers.get('x-request-id'))
})

// ---- responses ------------------------------------------------------------------------------------------------------

const TOOL = { type: 'function', name: 'f', strict: false, parameters: { type: 'object', properties: {} } } as const

test('[RESP-6] the SDK retrieves what it got, streamed or whole, on every dialect; with calls, reasoning and usage', async () => {
  for (const model of Object.values(DIALECTS)) {
    for (const prompt of ['hello', '[[sim: reason 2; text "é\\ud83d\\ude00"; call f {"a":"b"}]] x']) {
      const body = { model, input: prompt, tools: [TOOL], metadata: { a: 'b' }, reasoning: { effort: 'low' as const } }
      const whole: any = await t.openai().responses.create(body)
      const { output_text: _, _request_id, ...sent } = whole
      const { output_text, _request_id: id, ...found }: any = await t.openai().responses.retrieve(whole.id)
      assert.deepEqual(found, sent)
      let last: any
      for await (const event of await t.openai().responses.create({ ...body, stream: true })) last = event
      assert.equal(last.type, 'response.completed')
      const {
        output_text: _text,
        _request_id: _id,
        ...again
      }: any = await t.openai().responses.retrieve(last.response.id)
      assert.deepEqual(again, last.response)
    }
  }
})

test('[RESP-6] a reply that was cut short is retrieved as incomplete', async () => {
  const made: any = await t.openai().responses.create({ model: 'eb1-preview', input: 'x y z', max_output_tokens: 1 })
  assert.equal(made.status, 'incomplete')
  assert.equal((await t.openai().responses.retrieve(made.id)).status, 'incomplete')
})

const missing = (error: any) => {
  assert.ok(error instanceof OpenAI.NotFoundError, `${error}`)
  assert.deepEqual([error.code, error.type], ['response_not_found', 'not_found_error'])
  assert.equal(error.headers!.get('x-should-retry'), 'false')
  return true
}

test('[RESP-6] a deleted response is neither retrieved nor continued', async () => {
  const { id } = await t.openai().responses.create({ model: 'eb1-preview', input: 'x' })
  const gone: any = await (
    await fetch(`${t.url}/v1/responses/${id}`, { method: 'DELETE', headers: { authorization: `Bearer ${KEY}` } })
  ).json()
  assert.deepEqual(gone, { id, object: 'response', deleted: true })
  await assert.rejects(t.openai().responses.retrieve(id), missing)
  await assert.rejects(t.openai().responses.delete(id), missing)
  await assert.rejects(
    t.openai().responses.create({ model: 'eb1-preview', input: 'y', previous_response_id: id }),
    (error: any) => error.code === 'previous_response_not_found',
  )
})

test('[RESP-6] another organization’s response is as unknown, in the same words, and is not deleted by it', async () => {
  const { id } = await t.openai().responses.create({ model: 'eb1-preview', input: 'x' })
  const words = async (call: Promise<unknown>, own: string) => {
    const error: any = await call.then(
      () => assert.fail('found'),
      error => error,
    )
    missing(error)
    return error.message.replaceAll(own, 'ID')
  }
  const never = 'resp_000000000000000000000000'
  assert.equal(await words(other().responses.retrieve(id), id), await words(other().responses.retrieve(never), never))
  assert.equal(await words(other().responses.delete(id), id), await words(other().responses.delete(never), never))
  assert.equal((await t.openai().responses.retrieve(id)).id, id)
})

// ---- the items of a response's input --------------------------------------------------------------------------------

const INPUT = [
  { role: 'developer' as const, content: 'Be brief.' },
  { role: 'user' as const, content: [{ type: 'input_text' as const, text: 'one' }] },
  { type: 'function_call' as const, call_id: 'call_1', name: 'f', arguments: '{"a": 1}' },
  { type: 'function_call_output' as const, call_id: 'call_1', output: 'done' },
  { role: 'assistant' as const, content: 'two' },
  {
    role: 'user' as const,
    content: [
      { type: 'input_image' as const, image_url: 'data:image/png;base64,iVBORw0KGgo=', detail: 'low' as const },
    ],
  },
]

test('[RESP-7] the SDK lists the items of an input, whole, in pages and in both orders', async () => {
  for (const stream of [false, true]) {
    const made: any = await t.openai().responses.create({ model: 'eb1-preview', input: INPUT, stream })
    let { id } = made
    if (stream) for await (const event of made) if (event.type === 'response.completed') id = event.response.id
    const { inputItems } = t.openai().responses
    const page: any = await inputItems.list(id, { order: 'asc' })
    assert.deepEqual(
      page.data.map(({ id: _, ...item }: any) => item),
      [
        { type: 'message', status: 'completed', role: 'system', content: [{ type: 'input_text', text: 'Be brief.' }] },
        { type: 'message', status: 'completed', role: 'user', content: [{ type: 'input_text', text: 'one' }] },
        { type: 'function_call', status: 'completed', call_id: 'call_1', name: 'f', arguments: '{"a": 1}' },
        { type: 'function_call_output', status: 'completed', call_id: 'call_1', output: 'done' },
        {
          type: 'message',
          status: 'completed',
          role: 'assistant',
          content: [{ type: 'output_text', text: 'two', annotations: [], logprobs: [] }],
        },
        {
          type: 'message',
          status: 'completed',
          role: 'user',
          content: [{ type: 'input_image', detail: 'low', file_id: null, image_url: null }],
        },
      ],
    )
    const ids = page.data.map((item: any) => item.id)
    for (const [order, expected] of [
      ['asc', ids],
      ['desc', ids.toReversed()],
      [undefined, ids.toReversed()],
    ] as const) {
      const found: string[] = []
      for await (const item of inputItems.list(id, { limit: 4, ...(order && { order }) })) found.push(item.id!)
      assert.deepEqual(found, expected)
    }
    const first: any = await inputItems.list(id, { limit: 2, order: 'asc', after: ids[0] })
    assert.deepEqual([first.first_id ?? first.body.first_id, first.has_more], [ids[1], true])
    const whole: any = await inputItems.list(id, { limit: ids.length })
    assert.deepEqual([whole.data.length, whole.has_more], [ids.length, false])
    const last: any = await inputItems.list(id, { limit: 1, include: ['message.input_image.image_url'] })
    assert.equal(last.data[0].content[0].image_url, 'data:image/png;base64,iVBORw0KGgo=')
  }
})

test('[RESP-7] the items of a response are those of its own request; what is not retained has none', async () => {
  const { responses } = t.openai()
  const first = await responses.create({ model: 'eb1-preview', input: 'one', instructions: 'not an item' })
  const second = await responses.create({ model: 'eb1-preview', input: 'two', previous_response_id: first.id })
  const textsOf = async (id: string) =>
    (await responses.inputItems.list(id)).data.map((item: any) => item.content.map((part: any) => part.text).join())
  assert.deepEqual(await textsOf(first.id), ['one'])
  assert.deepEqual(await textsOf(second.id), ['two'])
  const empty = await responses.create({ model: 'eb1-preview', input: [], previous_response_id: first.id })
  assert.deepEqual(await textsOf(empty.id), [])
  await assert.rejects(other().responses.inputItems.list(first.id), missing)
  await responses.delete(first.id)
  await assert.rejects(responses.inputItems.list(first.id), missing)
  const unstored = await responses.create({ model: 'eb1-preview', input: 'x', store: false })
  await assert.rejects(responses.inputItems.list(unstored.id), missing)
  const method = await fetch(`${t.url}/v1/responses/${second.id}/input_items`, { method: 'DELETE' })
  assert.deepEqual([method.status, method.headers.get('allow')], [405, 'GET, HEAD, OPTIONS'])
})

test('[RESP-7] a page that cannot be is refused with its parameter', async () => {
  const { id } = await t.openai().responses.create({ model: 'eb1-preview', input: 'x' })
  for (const [query, param] of [
    ['limit=0', 'limit'],
    ['limit=101', 'limit'],
    ['limit=', 'limit'],
    ['limit=1.5', 'limit'],
    ['order=up', 'order'],
    ['after=item_none', 'after'],
    ['before=item_none', 'before'],
    ['include[]=all', 'include'],
    ['include=message.input_image.image_url&include[1]=x', 'include'],
  ]) {
    const response = await fetch(`${t.url}/v1/responses/${id}/input_items?${query}`, {
      headers: { authorization: `Bearer ${KEY}` },
    })
    const { error } = (await response.json()) as any
    assert.deepEqual([response.status, error.param], [400, param], query)
  }
})

test('[RESP-6] nothing is kept of store: false; odd ids, paths and methods are refused', async () => {
  const { id } = await t.openai().responses.create({ model: 'eb1-preview', input: 'x', store: false })
  await assert.rejects(t.openai().responses.retrieve(id), missing)
  const kept = await t.openai().responses.create({ model: 'eb1-preview', input: 'x' })
  const ask = async (path: string, method = 'GET') =>
    (await fetch(`${t.url}${path}`, { method, headers: { authorization: `Bearer ${KEY}` } })).status
  for (const path of ['', '%00', '%ff', `${kept.id}%2f`, 'x'.repeat(5000)])
    assert.equal(await ask(`/v1/responses/${path}`), 404, path)
  assert.equal(await ask(`/v1/responses/${kept.id}`, 'HEAD'), 200)
  assert.equal(await ask(`/v1/responses/${kept.id}?include=a&stream=true&starting_after=a`), 400)
  assert.equal(await ask(`/v1/responses/${kept.id}`, 'PUT'), 405)
  assert.equal(await ask(`/v1/responses/${kept.id}`, 'POST'), 405)
  assert.equal((await fetch(`${t.url}/v1/responses/${kept.id}`)).status, 401)
})

test('[RESP-6] [RESP-3] what is too large to retain is not retrieved; without the route nothing is stored', async () => {
  const small = await startGateway({ plugins: { conversation: '{ max_retained: 2KiB }' } })
  try {
    const { id } = await small.openai().responses.create({ model: 'eb1-preview', input: '[[sim: tokens 2000]] x' })
    await assert.rejects(small.openai().responses.retrieve(id), missing)
  } finally {
    await small.close()
  }
  const without = await startGateway({
    yaml: url =>
      defaultYaml(url)
        .replace(/ {2}responses: \[auth.*\n/, '')
        .replace(/.*responses\/\*.*\n/g, ''),
  })
  try {
    const { id } = await without.openai().responses.create({ model: 'eb1-preview', input: 'x' })
    const unknown = (error: any) => error.status === 404 && error.code === 'not_found'
    await assert.rejects(without.openai().responses.retrieve(id), unknown)
    assert.equal(await without.gateway.store.records.get('acme', 'reply', id, 0), null)
    await without.openai().responses.create({ model: 'eb1-preview', input: 'y', previous_response_id: id })
    // The route comes with a reload, for what is made from then on.
    await writeFile(without.file, defaultYaml(without.simulator.url))
    await without.gateway.reload()
    const later = await without.openai().responses.create({ model: 'eb1-preview', input: 'x' })
    assert.equal((await without.openai().responses.retrieve(later.id)).id, later.id)
  } finally {
    await without.close()
  }
})

// ---- counts ---------------------------------------------------------------------------------------------------------

test('[CNT-2] a count is what the response bills, with tools, instructions and the turns behind previous_response_id', async () => {
  const count = (body: object) => t.openai().responses.inputTokens.count(body)
  const first = await t.openai().responses.create({ model: 'eb1-preview', input: 'a question of some words' })
  for (const body of [
    { input: 'one two three' },
    { input: 'x', instructions: 'Be brief, and answer in French.' },
    { input: [{ role: 'user' as const, content: 'x' }], tools: [TOOL] },
    { input: 'and then?', previous_response_id: first.id },
  ]) {
    const counted = await count({ model: 'eb1-preview', ...body })
    assert.equal(counted.object, 'response.input_tokens')
    const billed: any = await t.openai().responses.create({ model: 'eb1-preview', ...body })
    assert.equal(counted.input_tokens, billed.usage.input_tokens, JSON.stringify(body))
    // The model is optional, as in the official API; unknown members count nothing.
    assert.deepEqual(await count(body), counted)
    assert.deepEqual(await count({ ...body, unheard_of: 1 }), counted)
    assert.deepEqual(await count({ ...body, model: 'eb1-preview', unheard_of: 1 }), counted)
  }
  const executed = t.simulator.requests.length
  await count({ input: 'x' })
  assert.equal(t.simulator.requests.length, executed)
})

test('[CNT-2] what cannot be counted is refused: a broken body, an unknown previous response', async () => {
  const refused = async (body: unknown) => {
    const response = await t.post('/v1/responses/input_tokens', body)
    const { error }: any = await response.json()
    return [response.status, error.code, error.param]
  }
  assert.deepEqual(await refused('{'), [400, 'invalid_json', null])
  assert.deepEqual(await refused({ input: [{ type: 'nope' }] }), [400, 'unsupported_value', 'input[0].type'])
  assert.deepEqual((await refused({ input: 'x', previous_response_id: 'resp_none' }))[1], 'previous_response_not_found')
  const foreign = await other().responses.create({ model: 'eb1-preview', input: 'x' })
  assert.deepEqual((await refused({ input: 'x', previous_response_id: foreign.id }))[1], 'previous_response_not_found')
})

// A count was given for models that do not exist, or that the key may not use, where Responses answers 404 and 403.
test('[CNT-2] what Responses refuses for its model is refused here in the same words, and counted on Messages', async () => {
  const gateway = await startGateway({
    organization: `    models: [eb1-preview]
    capabilities: [images]`,
  })
  try {
    const tools = [{ type: 'function', name: 'f', parameters: { type: 'object', properties: {} } }]
    const cases = [
      { model: 'nope' },
      { model: 'nope', unheard_of: 1 },
      { model: 'eb1-fast-preview' },
      { model: 'eb1-preview', tools },
      { model: 'eb1-preview', max_output_tokens: 999_999 },
    ]
    for (const members of cases) {
      const errorOf = async (path: string, { unheard_of: _, ...rest }: Record<string, unknown>, more: object = {}) => {
        const response = await gateway.post(path, { input: 'x', ...rest, ...more })
        const { error }: any = await response.json()
        return [response.status, error?.code, error?.message, error?.param]
      }
      const { unheard_of } = members as { unheard_of?: number }
      const counted = await errorOf('/v1/responses/input_tokens', members, { unheard_of })
      assert.notEqual(counted[0], 200)
      assert.deepEqual(counted, await errorOf('/v1/responses', members))
    }
    const messages = { ...bodyOf('messages', 'eb1-preview', [{ user: 'x' }]), model: 'nope' }
    assert.equal((await gateway.post('/v1/messages/count_tokens', messages)).status, 200)
  } finally {
    await gateway.close()
  }
})

test('[CNT-2] [CNT-1] both counts take from one bucket, apart from completions', async () => {
  const gateway = await startGateway({
    organization: '    limits: { requests_per_minute: 4 }',
    gateway: { clock: stillClock() },
  })
  try {
    const messages = bodyOf('messages', 'eb1-preview', [{ user: 'x' }])
    for (let i = 0; i < 2; i++) {
      assert.equal((await gateway.post('/v1/messages/count_tokens', messages)).status, 200)
      assert.equal((await gateway.post('/v1/responses/input_tokens', { input: 'x' })).status, 200)
    }
    for (const [path, body] of [
      ['/v1/messages/count_tokens', messages],
      ['/v1/responses/input_tokens', { input: 'x' }],
    ] as const) {
      const response = await gateway.post(path, body)
      const { error }: any = await response.json()
      assert.deepEqual([response.status, error.code], [429, 'requests_limit_exceeded'])
      assert.ok(response.headers.get('retry-after'))
    }
    assert.equal((await gateway.post('/v1/responses', { model: 'eb1-preview', input: 'x' })).status, 200)
  } finally {
    await gateway.close()
  }
})
