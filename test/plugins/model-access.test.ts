/** `model-access`: what a request asks, which model it gets, and what plan, key and model allow of it. */
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import type { ModelConfig } from '../../config/types.ts'
import { type Conversation, type Effort, formOf, type SurfaceName } from '../../core/canon/conversation.ts'
import { type Plugin, request, type Slot } from '../../core/plugin.ts'
import { modelAccess } from '../../plugins/model-access/index.ts'
import { type Identity, identity, model, parsedConversation, rights, wouldRefuse } from '../../plugins/shared/slots.ts'
import { plainConversation, type RunOptions, runPlugin } from '../../plugins/testing.ts'
import { caller, gatewayOf, modelOf, reading, text } from './kit.ts'

const models: Record<string, ModelConfig> = {
  large: modelOf({ id: 'large', aliases: ['big'], max_output_tokens: 100, effort_ceiling: 'medium' }),
  small: modelOf({ id: 'small' }),
  hidden: modelOf({ id: 'hidden', listed: false }),
  unpriced: modelOf({ id: 'unpriced', price: null }),
}
const user = (content: unknown) => ({ role: 'user', content })
const BODIES: Record<SurfaceName, object> = {
  chat: { messages: [user('hi')] },
  responses: { input: 'hi' },
  messages: { messages: [user('hi')], max_tokens: 10 },
}
interface Asking extends RunOptions<any> {
  who?: Identity
  on?: SurfaceName
}
async function ask(body: object, { who = caller(), on = 'chat', ...more }: Asking = {}) {
  const run = await runPlugin(modelAccess, {
    gateway: gatewayOf({ models }),
    surface: reading(on),
    events: [text('hi')],
    ...more,
    slots: [[identity, who], [request, { model: 'large', ...BODIES[on], ...body }], ...(more.slots ?? [])],
  })
  return { ...run, refused: run.json?.error && [run.status, run.json.error.code, run.json.error.param] }
}

// ---- what is parsedConversation -------------------------------------------------------------------------------------

for (const on of Object.keys(BODIES)) {
  test(`[METER-1] a body of ${on} becomes the same conversation`, async () => {
    const run = await ask({}, { on })
    assert.equal(run.status, 200)
    assert.deepEqual(run.exchange.get(parsedConversation).turns, [{ role: 'user', parts: [text('hi')] }])
  })
}

test('[GEN-3] what a schema cannot say, parsing does: the refusal names the member', async () => {
  const { refused } = await ask({ system: 'a', messages: [{ role: 'system', content: 'b' }, user('c')] })
  assert.deepEqual(refused, [400, 'invalid_value', 'system'])
})

// ---- the model ------------------------------------------------------------------------------------------------------

for (const [name, id] of [
  ['large', 'large'],
  ['big', 'large'],
  ['hidden', 'hidden'],
] as const) {
  test(`[MOD-3] ${name} means ${id}; the client’s own word is kept beside it`, async () => {
    const run = await ask({ model: name })
    const { model: canonical, requestedModel } = run.exchange.get(parsedConversation)
    assert.deepEqual([run.exchange.get(model).id, canonical, requestedModel], [id, id, name])
  })
}

const REFUSED: [what: string, model: string, who: Identity, status: number, code: string, says: RegExp][] = [
  ['a model that does not exist', 'huge', caller(), 404, 'model_not_found', /huge does not exist.*: large, small\.$/],
  ['a model without a price', 'unpriced', caller(), 404, 'model_not_found', /has no price.*: large, small\.$/],
  [
    'a model outside the plan',
    'small',
    caller({ models: ['big'] }),
    403,
    'model_not_available',
    /to this plan\..*: large\.$/,
  ],
  [
    'a model outside the key’s list',
    'small',
    caller({}, { models: ['large'] }),
    403,
    'model_not_available',
    /to this key\..*: large\.$/,
  ],
  ['any model, where there is none', 'small', caller({ models: [] }), 403, 'model_not_available', /can call: none\.$/],
]
for (const [what, name, who, status, code, says] of REFUSED) {
  test(`[MOD-1] [MOD-4] [MOD-5] ${what}: ${status} ${code}, with the models that this key can call`, async () => {
    const { refused, json } = await ask({ model: name }, { who })
    assert.deepEqual(refused, [status, code, 'model'])
    assert.match(json.error.message, says)
  })
}

test('an organization that is free may call what has no price', async () => {
  assert.equal((await ask({ model: 'unpriced' }, { who: caller({ billing: 'free' }) })).status, 200)
})

test('a model name of a client’s cannot bring control characters into the message', async () => {
  const { json } = await ask({ model: 'a\r\nb\u001b[31m' })
  assert.doesNotMatch(json.error.message, /[\u0000-\u001f]/)
})

const EXCLUDED: [header: string, refused: RegExp | null][] = [
  ['small, hidden', null],
  ['', /malformed/],
  ['small,', /malformed/],
  ['small,, hidden', /malformed/],
  ['huge', /names huge, which is not a public model id/],
  ['small, large', /excludes large, the model the request asks for/],
  ['big', /excludes large/],
]
for (const [header, says] of EXCLUDED) {
  test(`[MOD-7] x-excluded-models: ${header} is ${says ? 'refused' : 'taken'}`, async () => {
    const { status, json, refused } = await ask({}, { request: { headers: { 'x-excluded-models': header } } })
    if (!says) return assert.equal(status, 200)
    assert.deepEqual(refused, [400, 'bad_request', 'x-excluded-models'])
    assert.equal(json.error.retryable, false)
    assert.match(json.error.message, says)
  })
}

// ---- what the model is held to --------------------------------------------------------------------------------------

for (const [whose, who] of [
  ['plan', caller({ streaming: false })],
  ['key', caller({}, { streaming: false })],
] as const) {
  test(`a ${whose} without streaming: a stream is 403, a whole reply is not`, async () => {
    const { refused } = await ask({ stream: true }, { who })
    assert.deepEqual(refused, [403, 'streaming_not_available', 'stream'])
    assert.equal((await ask({ stream: false }, { who })).status, 200)
  })
}

for (const [on, effort, param] of [
  ['chat', (reasoning_effort: Effort) => ({ reasoning_effort }), 'reasoning_effort'],
  ['responses', (effort: Effort) => ({ reasoning: { effort } }), 'reasoning.effort'],
] as const) {
  test(`[MSG-2] effort above the model’s ceiling is refused on ${on}`, async () => {
    assert.equal((await ask(effort('medium'), { on })).status, 200)
    const { json, refused } = await ask(effort('high'), { on })
    assert.deepEqual(refused, [400, 'unsupported_value', param])
    assert.match(json.error.message, /up to medium/)
  })
}

test('[MSG-2] on Messages it is lowered', async () => {
  const run = await ask({ output_config: { effort: 'max' } }, { on: 'messages' })
  assert.equal(run.exchange.get(parsedConversation).reasoning.effort, 'medium')
})

// The slot was filled with the parser's object, and model and reasoning were then written into that: what a plugin had
// kept with it, or read of it meanwhile, was of another request.
test('what the parser made is not changed, and the slot is filled once', async () => {
  const parsed = plainConversation({ model: 'big', form: { ...formOf(plainConversation()), lowersEffort: true } })
  parsed.reasoning = { effort: 'max' }
  const copy = structuredClone(parsed)
  const filled: unknown[] = []
  const counted: Plugin = {
    ...modelAccess,
    async create(options, context) {
      const hooks = await modelAccess.create(options as never, context as never)
      return {
        onRequest: x =>
          hooks.onRequest!(
            new Proxy(x, {
              get: (_, name) =>
                name === 'set'
                  ? (slot: Slot<any>, value: unknown) => {
                      if (slot.name === parsedConversation.name) filled.push(value)
                      x.set(slot, value)
                    }
                  : Reflect.get(x, name, x),
            }),
          ),
      }
    },
  }
  const surface = { ...reading('chat'), parse: () => parsed }
  const slots = [
    [identity, caller()],
    [request, {}],
  ] as const
  const run = await runPlugin(counted, { gateway: gatewayOf({ models }), surface, slots, events: [text('hi')] })
  assert.equal(run.status, 200)
  const { work, ...after } = parsed
  assert.deepEqual(after, copy)
  const [made] = filled as Conversation[]
  assert.equal(filled.length, 1)
  assert.deepEqual(
    [made!.model, made!.requestedModel, made!.reasoning],
    ['large', 'test-model', { effort: 'medium', asked: 'max', modelEffort: 'medium' }],
  )
  assert.equal(made!.work, work, 'both draw on one budget')
})

test('a refusal for the model tells which was asked for', async () => {
  const run = await ask({ model: 'huge' })
  assert.equal(run.exchange.get(parsedConversation).model, 'huge')
})

for (const [on, field] of [
  ['chat', 'max_tokens'],
  ['chat', 'max_completion_tokens'],
  ['responses', 'max_output_tokens'],
  ['messages', 'max_tokens'],
] as const) {
  test(`a cap above the model’s maximum is refused by the name that the client used: ${field} on ${on}`, async () => {
    assert.equal((await ask({ [field]: 100 }, { on })).status, 200)
    assert.deepEqual((await ask({ [field]: 101 }, { on })).refused, [400, 'invalid_value', field])
  })
}

test('first the model, then streaming, then effort, then the cap', async () => {
  const who = caller({}, { streaming: false })
  const wrong = { model: 'huge', stream: true, reasoning_effort: 'max', max_tokens: 200 }
  const codes = []
  for (const mended of [{}, { model: 'large' }, { stream: false }, { reasoning_effort: 'low' }])
    codes.push((await ask(Object.assign(wrong, mended), { who })).json.error.code)
  assert.deepEqual(codes, ['model_not_found', 'streaming_not_available', 'unsupported_value', 'invalid_value'])
})

// ---- counting -------------------------------------------------------------------------------------------------------

describe('[CNT-1] in front of count-tokens', () => {
  const counting = {
    on: 'messages',
    advisory: true,
  } as const
  const FAULTS: [what: string, body: object, more?: Asking][] = [
    ['a model that does not exist', { model: 'huge' }],
    ['a body that cannot be parsed', { tool_choice: { type: 'tool', name: 'undeclared' } }],
    ['a stream outside the plan', { stream: true }, { who: caller({ streaming: false }) }],
    ['a cap above the model’s maximum', { max_tokens: 101 }],
  ]
  for (const [what, body, more] of FAULTS) {
    test(`${what} is counted all the same`, async () => {
      assert.notEqual((await ask(body, { on: 'messages', ...more })).status, 200, 'refused elsewhere')
      const run = await ask(body, { ...counting, ...more })
      assert.equal(run.status, 200)
      assert.deepEqual(run.exchange.get(parsedConversation).turns[0]?.parts[0], text('hi'))
    })
  }

  test('a body that validation would have refused is read as far as it goes', async () => {
    const surface = { ...reading('messages'), parse: () => assert.fail('parsing takes checked bodies alone') }
    const slots = [[wouldRefuse, new Error('null')]] as const
    const run = await ask({ messages: [user('hi'), null] }, { ...counting, surface, slots })
    assert.equal(run.status, 200)
    assert.deepEqual(run.exchange.get(parsedConversation).turns[0]?.parts[0], text('hi'))
    assert.equal(run.exchange.peek(model), undefined)
  })
})

// ---- the rights that it hands on ------------------------------------------------------------------------------------

const image = { type: 'image', source: { kind: 'url', url: 'https://a.example/' }, path: 'image' }
const document = { type: 'document', source: { kind: 'url', url: 'https://a.example/' }, path: 'document' }
const saying = (part: object) => ({ turns: [{ role: 'user', parts: [part] }] })
const judge = async (who: Identity, over: object) => {
  const { exchange } = await ask({ model: 'small' }, { who })
  return exchange.get(rights)(plainConversation(over as Partial<Conversation>))
}
const NEEDS: [capability: (typeof ALL)[number], over: object, param: string][] = [
  ['tools', { tools: [{ type: 'function', path: 'tools[0]' }] }, 'tools[0]'],
  ['web_search', { tools: [{ type: 'web_search', path: 'tools[0]' }] }, 'tools[0]'],
  ['reasoning', { reasoning: { effort: 'low' } }, 'reasoning_effort'],
  ['reasoning', { reasoning: { thinking: 'adaptive' } }, 'reasoning_effort'],
  ['images', saying(image), 'image'],
  ['documents', saying(document), 'document'],
  ['images', saying({ type: 'result', content: [image] }), 'image'],
]
const ALL = ['images', 'documents', 'reasoning', 'tools', 'web_search'] as const
for (const [capability, over, param] of NEEDS) {
  test(`[REQ-1] ${capability} that plan or key do not include is told with its place: ${JSON.stringify(over)}`, async () => {
    const capabilities = ALL.filter(name => name !== capability)
    for (const [who, whose] of [
      [caller({ capabilities }), 'the plan'],
      [caller({ capabilities }, { capabilities }), 'the plan'],
      [caller({}, { capabilities }), 'this key'],
    ] as const) {
      const lack = await judge(who, over)
      assert.equal(lack?.param, param)
      assert.ok(lack.requirement.endsWith(`, which ${whose} does not include`), lack.requirement)
    }
    assert.equal(await judge(caller({ capabilities: [capability] }), over), null)
    assert.equal(await judge(caller({}, { capabilities: [capability] }), over), null)
  })
}

test('[REQ-1] a plan without reasoning takes a request that asks for none', async () => {
  const none = caller({ capabilities: [] })
  for (const reasoning of [{}, { effort: 'none' }, { thinking: 'disabled' }])
    assert.equal(await judge(none, { reasoning }), null)
})

// ---- prices of plan and organization --------------------------------------------------------------------------------

test('a model has the price of plan or organization in place of its own, and may have no other', async () => {
  const price = { input: 7, output: 8, list: 'organization' }
  const who = caller({ prices: { unpriced: price, large: price } } as never)
  for (const [name, expected] of [
    ['unpriced', price],
    ['big', price],
    ['small', models['small']!.price],
  ] as const) {
    const { exchange, refused } = await ask({ model: name }, { who })
    assert.equal(refused, undefined)
    assert.deepEqual(exchange.get(model).price, expected)
  }
  // The same object each time: what is kept by model is kept once.
  const [first, second] = await Promise.all([ask({ model: 'large' }, { who }), ask({ model: 'large' }, { who })])
  assert.equal(first.exchange.get(model), second.exchange.get(model))
  assert.deepEqual((await ask({ model: 'unpriced' })).refused, [404, 'model_not_found', 'model'])
})
