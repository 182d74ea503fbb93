/** `model-access`: which model a request gets, and what plan, key and model allow of it. */
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import type { Conversation } from '../../core/conversation.ts'
import { request } from '../../core/plugin.ts'
import { plainConversation, runPlugin } from '../../core/testing.ts'
import { modelAccess } from '../../plugins/model-access/index.ts'
import { asked, identity, model, rights } from '../../plugins/slots.ts'

const backends = [{ id: 'b', maxOutputTokens: 900 }]
const entry = (id: string, more = {}) => ({
  id,
  aliases: [],
  listed: true,
  price: { input: 1, output: 1 },
  max_output_tokens: null,
  effort_ceiling: null,
  backends,
  ...more,
})
const models = {
  large: entry('large', { aliases: ['big'], effort_ceiling: 'high', max_output_tokens: 1000 }),
  small: entry('small'),
  unpriced: entry('unpriced', { price: null }),
}
interface Caller {
  organization?: object
  key?: object
}
const everything = { models: 'all', capabilities: 'all', streaming: true, limits: {}, model_limits: {} }
const caller = ({ organization, key }: Caller = {}) => ({
  organization: { id: 'acme', billing: 'standard', ...everything, ...organization },
  key: { id: 'k', ...everything, ...key },
})

/** The test's surface takes the body for the conversation: what is asked is written as one. */
async function ask(body: Partial<Conversation>, who: Caller = {}, headers: Record<string, string> = {}) {
  const run = await runPlugin(modelAccess, {
    gateway: { models } as any,
    slots: [
      [request, { ...body }],
      [identity, caller(who)],
    ],
    request: { headers },
    events: [{ type: 'finish', reason: 'stop' }],
  })
  return { ...run, refused: run.json?.error && [run.status, run.json.error.code, run.json.error.param] }
}

describe('the model', () => {
  test('[MOD-3] is found by its id or an alias, and the conversation has its id', async () => {
    for (const name of ['large', 'big']) {
      const { exchange } = await ask({ model: name })
      assert.equal(exchange.get(model).id, 'large')
      assert.equal(exchange.get(asked).model, 'large')
    }
  })
  test('[MOD-5] that is unknown, or has no price, is 404 and the message lists those that there are', async () => {
    for (const name of ['huge', 'unpriced']) {
      const { refused, json } = await ask({ model: name })
      assert.deepEqual(refused, [404, 'model_not_found', 'model'])
      assert.match(json.error.message, /Models this key can call: large, small\.$/)
    }
    assert.equal((await ask({ model: 'unpriced' }, { organization: { billing: 'free' } })).refused, undefined)
  })
  test('[MOD-4] that plan or key leave out is 403, and the message says which of them', async () => {
    for (const [who, whose] of [
      [{ organization: { models: ['small'] } }, 'plan'],
      [{ key: { models: ['small'] } }, 'key'],
    ] as const) {
      const { refused, json } = await ask({ model: 'large' }, who)
      assert.deepEqual(refused, [403, 'model_not_available', 'model'])
      assert.match(json.error.message, new RegExp(`not available to this ${whose}\\..*: small\\.$`))
    }
  })
  test('[MOD-7] x-excluded-models names other models that there are', async () => {
    const excluding = (value: string) => ask({ model: 'large' }, {}, { 'x-excluded-models': value })
    assert.equal((await excluding('small')).refused, undefined)
    for (const value of ['big', 'small,', 'huge'])
      assert.deepEqual((await excluding(value)).refused, [400, 'bad_request', 'x-excluded-models'])
  })
})

describe('what the model is held to', () => {
  test('a stream needs a plan and a key that include it', async () => {
    for (const who of [{ organization: { streaming: false } }, { key: { streaming: false } }]) {
      assert.deepEqual((await ask({ model: 'small', stream: true }, who)).refused, [
        403,
        'streaming_not_available',
        'stream',
      ])
      assert.equal((await ask({ model: 'small', stream: false }, who)).refused, undefined)
    }
  })
  test('[MSG-2] effort above its ceiling is lowered on Messages and refused elsewhere', async () => {
    const effort = (surface: 'messages' | 'responses' | 'chat') =>
      ask({ model: 'large', surface, reasoning: { effort: 'max' } })
    assert.equal((await effort('messages')).exchange.get(asked).reasoning.effort, 'high')
    assert.deepEqual((await effort('chat')).refused, [400, 'unsupported_value', 'reasoning_effort'])
    assert.deepEqual((await effort('responses')).refused, [400, 'unsupported_value', 'reasoning.effort'])
  })
  test('an output cap over its maximum is refused under the name that the client used', async () => {
    const cap = (maxOutputTokens: number) =>
      ask({ model: 'large', maxOutputTokens, maxOutputField: 'max_output_tokens' })
    assert.equal((await cap(1000)).refused, undefined)
    assert.deepEqual((await cap(1001)).refused, [400, 'invalid_value', 'max_output_tokens'])
  })
  test("without a cap the account's is taken, and no more than any backend takes", async () => {
    const taken = async (max_output_tokens: number) => {
      const { exchange } = await ask({ model: 'small' }, { key: { limits: { max_output_tokens } } })
      return exchange.get(asked).maxOutputTokens
    }
    assert.equal(await taken(500), 500)
    assert.equal(await taken(5000), 900)
    assert.equal((await ask({ model: 'small' })).exchange.get(asked).maxOutputTokens, undefined)
  })
  test('first the model, then streaming, then effort, then the cap', async () => {
    const wrong = {
      model: 'huge',
      stream: true,
      surface: 'chat' as const,
      reasoning: { effort: 'max' as const },
      maxOutputTokens: 2000,
    }
    const narrow = { key: { streaming: false } }
    const codes = [
      await ask(wrong, narrow),
      await ask({ ...wrong, model: 'large' }, narrow),
      await ask({ ...wrong, model: 'large', stream: false }, narrow),
      await ask({ ...wrong, model: 'large', stream: false, reasoning: {} }, narrow),
    ].map(run => run.refused[1])
    assert.deepEqual(codes, ['model_not_found', 'streaming_not_available', 'unsupported_value', 'invalid_value'])
  })
})

describe('the rights that it hands on', () => {
  const image = { type: 'image', source: { kind: 'url', url: 'https://a.example/' }, path: 'image' }
  const document = { type: 'document', source: { kind: 'url', url: 'https://a.example/' }, path: 'document' }
  const user = (part: object) => ({ turns: [{ role: 'user', parts: [part] }] })
  const cases: [string, object, string][] = [
    ['tools', { tools: [{ type: 'function', path: 'tools[0]' }] }, 'tools[0]'],
    ['web_search', { tools: [{ type: 'web_search', path: 'tools[0]' }] }, 'tools[0]'],
    ['reasoning', { reasoning: { effort: 'low' } }, 'reasoning'],
    ['images', user(image), 'image'],
    ['documents', user(document), 'document'],
    ['images', user({ type: 'result', content: [image] }), 'image'],
  ]
  for (const [capability, over, param] of cases) {
    test(`${capability} that plan or key do not include is told with its place`, async () => {
      const all = ['images', 'documents', 'reasoning', 'tools', 'web_search']
      const rest = { capabilities: all.filter(name => name !== capability) }
      const conversation = plainConversation(over as Partial<Conversation>)
      for (const who of [{ organization: rest }, { key: rest }]) {
        const { exchange } = await ask({ model: 'small' }, who)
        assert.equal(exchange.get(rights)(conversation)?.param, param)
      }
      const { exchange } = await ask({ model: 'small' }, { key: { capabilities: [capability] } })
      assert.equal(exchange.get(rights)(conversation), null)
    })
  }
})
