/** Which model a name means, who may call it, and what it holds a request to. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Limits, ModelConfig } from '../../config/types.ts'
import type { SurfaceName } from '../../core/conversation.ts'
import { request } from '../../core/plugin.ts'
import { type RunOptions, runPlugin } from '../../core/testing.ts'
import { modelAccess } from '../../plugins/model-access/index.ts'
import { asked, contentLimits, type Identity, identity, model } from '../../plugins/slots.ts'
import { backend, caller, countingGateway, gatewayOf, memoryStore, modelOf, reading, text } from './kit.ts'

const offered: Record<string, ModelConfig> = {
  large: modelOf({ id: 'large', aliases: ['big'], max_output_tokens: 100, effort_ceiling: 'medium' }),
  small: modelOf({ id: 'small' }),
  hidden: modelOf({ id: 'hidden', listed: false }),
  unpriced: modelOf({ id: 'unpriced', price: null }),
}
const BODIES: Record<SurfaceName, (more: object) => Record<string, unknown>> = {
  chat: more => ({ messages: [{ role: 'user', content: 'hi' }], ...more }),
  responses: more => ({ input: 'hi', store: false, ...more }),
  messages: more => ({ messages: [{ role: 'user', content: 'hi' }], max_tokens: 10, ...more }),
}
const store = await memoryStore()
const ask = (
  body: object,
  {
    who = caller(),
    on = 'chat' as SurfaceName,
    plugin = modelAccess,
    ...more
  }: RunOptions<any> & { who?: Identity; on?: SurfaceName; plugin?: typeof modelAccess } = {},
) =>
  runPlugin(plugin, {
    gateway: gatewayOf({ models: offered }),
    store,
    surface: reading(on),
    events: [text('hi')],
    ...more,
    slots: [
      [identity, who],
      [request, BODIES[on]({ model: 'large', ...body })],
      [contentLimits, { images: 9, documents: 9, replayBytes: 1e6, bodyBytes: 1e6, nodes: 1000 }],
    ],
  })

for (const [name, id] of [
  ['large', 'large'],
  ['big', 'large'],
  ['hidden', 'hidden'],
] as const) {
  test(`[MOD-3] ${name} means ${id}; the client’s own word is kept beside it`, async () => {
    const run = await ask({ model: name })
    const { model: canonical, requestedModel } = run.exchange.get(asked)
    assert.deepEqual([run.exchange.get(model).id, canonical, requestedModel], [id, id, name])
  })
}

const REFUSED: [
  what: string,
  model: string,
  who: ReturnType<typeof caller>,
  status: number,
  code: string,
  says: RegExp,
][] = [
  ['a model that does not exist', 'huge', caller(), 404, 'model_not_found', /huge does not exist.*: large, small\./],
  ['a model without a price', 'unpriced', caller(), 404, 'model_not_found', /has no price/],
  [
    'a model outside the plan',
    'small',
    caller({ models: ['big'] }),
    403,
    'model_not_available',
    /to this plan.*: large\./,
  ],
  [
    'a model outside the key’s list',
    'small',
    caller({}, { models: ['large'] }),
    403,
    'model_not_available',
    /to this key.*: large\./,
  ],
  ['any model, where there is none', 'small', caller({ models: [] }), 403, 'model_not_available', /can call: none\./],
]
for (const [what, name, who, status, code, says] of REFUSED) {
  test(`[MOD-1] [MOD-5] ${what}: ${status} ${code}, with the models that this key can call`, async () => {
    const run = await ask({ model: name }, { who })
    assert.deepEqual([run.status, run.json.error.code, run.json.error.param], [status, code, 'model'])
    assert.match(run.json.error.message, says)
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
  ['small,, hidden', /malformed/],
  ['huge', /names huge, which is not a public model id/],
  ['small, large', /excludes large, the model the request asks for/],
  ['big', /excludes large/],
]
for (const [header, refused] of EXCLUDED) {
  test(`[MOD-7] x-excluded-models: ${header} is ${refused ? 'refused' : 'taken'}`, async () => {
    const { status, json } = await ask({}, { request: { headers: { 'x-excluded-models': header } } })
    if (!refused) return assert.equal(status, 200)
    assert.deepEqual([status, json.error.code, json.error.retryable], [400, 'bad_request', false])
    assert.match(json.error.message, refused)
  })
}

for (const [who, caller_] of [
  ['plan', caller({ streaming: false })],
  ['key', caller({}, { streaming: false })],
] as const) {
  test(`a ${who} without streaming: a stream is 403, a whole reply is not`, async () => {
    const { status, json } = await ask({ stream: true }, { who: caller_ })
    assert.deepEqual([status, json.error.code, json.error.param], [403, 'streaming_not_available', 'stream'])
    assert.equal((await ask({ stream: false }, { who: caller_ })).status, 200)
  })
}

for (const [on, body, param] of [
  ['chat', { reasoning_effort: 'high' }, 'reasoning_effort'],
  ['responses', { reasoning: { effort: 'high' } }, 'reasoning.effort'],
] as const) {
  test(`[MSG-2] effort above the model’s ceiling is refused on ${on}`, async () => {
    const { json } = await ask(body, { on })
    assert.deepEqual([json.error.code, json.error.param], ['unsupported_value', param])
    assert.match(json.error.message, /up to medium/)
  })
}

test('[MSG-2] on Messages it is lowered', async () => {
  const run = await ask({ output_config: { effort: 'max' } }, { on: 'messages' })
  assert.equal(run.exchange.get(asked).reasoning.effort, 'medium')
})

for (const [on, field] of [
  ['chat', 'max_tokens'],
  ['chat', 'max_completion_tokens'],
  ['responses', 'max_output_tokens'],
  ['messages', 'max_tokens'],
] as const) {
  test(`a cap above the model’s maximum is refused by the name that the client used: ${field} on ${on}`, async () => {
    assert.equal((await ask({ [field]: 100 }, { on })).status, 200)
    const { json } = await ask({ [field]: 101 }, { on })
    assert.deepEqual([json.error.code, json.error.param], ['invalid_value', field])
  })
}

const CAPS: [what: string, limits: Partial<Limits>, backends: (number | undefined)[], cap: number | undefined][] = [
  ['none where the account has no maximum', {}, [undefined], undefined],
  ['the account’s maximum', { max_output_tokens: 80 }, [undefined], 80],
  ['no more than any backend takes', { max_output_tokens: 80 }, [undefined, 60], 60],
]
for (const [what, limits, backends, cap] of CAPS) {
  test(`the cap of a request that names none is ${what}`, async () => {
    const models = {
      large: modelOf({
        id: 'large',
        backends: backends.map(most => backend(most === undefined ? {} : { maxOutputTokens: most })),
      }),
    }
    const run = await ask({}, { who: caller({ limits }), gateway: gatewayOf({ models }) })
    const { maxOutputTokens, maxOutputField } = run.exchange.get(asked)
    assert.deepEqual([maxOutputTokens, maxOutputField], [cap, undefined])
  })
}

test('[CNT-1] in front of count-tokens no model is refused', async () => {
  const gateway = { ...gatewayOf({ models: offered }), pipelines: countingGateway.pipelines! }
  // A model that is not known fills no slot, and nobody reads it there.
  const plugin = { ...modelAccess, provides: [conversation] }
  assert.equal((await ask({ model: 'huge' }, { on: 'messages', gateway, plugin })).status, 200)
})
