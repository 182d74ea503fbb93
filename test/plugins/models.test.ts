/** `models`: a terminal that answers with what this key can call. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { models } from '../../plugins/models.ts'
import { identity } from '../../plugins/shared/slots.ts'
import { ManualClock, runPlugin } from '../../plugins/testing.ts'
import { messages } from '../../surfaces/messages/index.ts'
import { responses } from '../../surfaces/responses/index.ts'
import { caller, gatewayOf, modelOf } from './kit.ts'

const offered = {
  large: modelOf({ id: 'large', aliases: ['big'], max_output_tokens: 64 }),
  small: modelOf({ id: 'small' }),
  hidden: modelOf({ id: 'hidden', listed: false }),
  unpriced: modelOf({ id: 'unpriced', price: null }),
}
const list = async (who = caller()) =>
  (
    await runPlugin(models, {
      gateway: gatewayOf({ models: offered }),
      slots: [[identity, who]],
      request: { method: 'GET' },
    })
  ).json
const ids = async (who = caller()) => (await list(who)).data.map((model: { id: string }) => model.id)

test('[MOD-1] listed models with a price, in the order of the configuration, in a form that both official SDKs read', async () => {
  assert.deepEqual(await list(), {
    object: 'list',
    data: [
      {
        id: 'large',
        object: 'model',
        type: 'model',
        created: 1_767_225_600,
        created_at: '2026-01-01T00:00:00.000Z',
        owned_by: 'organization',
        display_name: 'large',
        context_window: 1000,
        max_input_tokens: 1000,
        max_tokens: 64,
      },
      {
        id: 'small',
        object: 'model',
        type: 'model',
        created: 1_767_225_600,
        created_at: '2026-01-01T00:00:00.000Z',
        owned_by: 'organization',
        display_name: 'small',
        context_window: 1000,
        max_input_tokens: 1000,
      },
    ],
    has_more: false,
    first_id: 'large',
    last_id: 'small',
    models: [],
  })
})

const CALLERS: [who: string, identity: ReturnType<typeof caller>, sees: string[]][] = [
  ['an organization that is free sees what has no price', caller({ billing: 'free' }), ['large', 'small', 'unpriced']],
  ['an organization sees the models of its plan', caller({ models: ['small'] }), ['small']],
  ['an alias in a plan means its model', caller({ models: ['big'] }), ['large']],
  [
    'a key sees those of the plan that its own list has',
    caller({ models: ['large', 'small'] }, { models: ['small', 'hidden'] }),
    ['small'],
  ],
  ['a key with a list beside the plan sees none', caller({ models: ['large'] }, { models: ['small'] }), []],
]
for (const [who, identity, sees] of CALLERS) {
  test(`[MOD-1] ${who}`, async () => assert.deepEqual(await ids(identity), sees))
}

test('[MOD-1] an empty list is a list', async () => {
  const { data, first_id, last_id, object } = await list(caller({ models: [] }))
  assert.deepEqual([object, data, first_id, last_id], ['list', [], null, null])
})

test('[MOD-1] limits are the least of organization and key, over all models and over this one; money is not told', async () => {
  const who = caller(
    {
      limits: { requests_per_minute: 100, tokens_per_day: 5000, daily_spend_usd: 7e9, max_request_usd: 1e9 },
      model_limits: { small: { requests_per_minute: 20, max_input_tokens: 10 } },
    },
    { limits: { requests_per_minute: 60 }, model_limits: { small: { tokens_per_day: 4000 } } },
  )
  const [large, small] = (await list(who)).data
  assert.deepEqual(large.limits, { requests_per_minute: 60, tokens_per_day: 5000 })
  assert.deepEqual(small.limits, { requests_per_minute: 20, tokens_per_day: 4000, max_input_tokens: 10 })
})

// The list said the model's window where the account allowed 50 tokens, so a client planned prompts that were refused.
test('[MOD-1] the window and the longest output are what this key may send and ask for', async () => {
  const who = caller({ limits: { max_input_tokens: 500, max_output_tokens: 32 } }, { limits: { max_input_tokens: 50 } })
  const [large, small] = (await list(who)).data
  assert.deepEqual([large.context_window, large.max_input_tokens, large.max_tokens], [50, 50, 32])
  assert.deepEqual([small.context_window, small.max_input_tokens, small.max_tokens], [50, 50, 32])
  const wide = (await list(caller({ limits: { max_input_tokens: 5000, max_output_tokens: 5000 } }))).data
  assert.deepEqual([wide[0].context_window, wide[0].max_tokens, wide[1].max_tokens], [1000, 64, 5000])
})

// `created` was the time of the last reload: revoking one key changed it for all models.
test('[MOD-1] the time of a model is its own', async () => {
  const at = Date.UTC(2026, 4, 2)
  const { json } = await runPlugin(models, {
    gateway: gatewayOf({ models: { dated: modelOf({ id: 'dated', created: at }) } }),
    slots: [[identity, caller()]],
    request: { method: 'GET' },
    clock: new ManualClock(1_780_000_000_000),
  })
  assert.deepEqual([json.data[0].created, json.data[0].created_at], [at / 1000, '2026-05-02T00:00:00.000Z'])
})

// ---- clients of an API that pages lists -----------------------------------------------------------------------------

const shown = {
  large: modelOf({ id: 'large', listed_aliases: { messages: ['claude-large'] }, display_name: 'Large' }),
  small: modelOf({
    id: 'small',
    listed_aliases: { messages: ['claude-small', 'anthropic-small'], chat: ['gpt-small'] },
  }),
}
/** Their requests are known by their headers: `errorForm` is the API whose they are. */
const asked = async (query = '', surface = messages, more = {}) =>
  (
    await runPlugin(models, {
      gateway: gatewayOf({ models: shown }),
      slots: [[identity, caller()]],
      surface,
      request: { method: 'GET', query },
      ...more,
    })
  ).json
const pageOf = ({ data, has_more, first_id, last_id }: any) => {
  const ids = data.map(({ id }: any) => id)
  assert.deepEqual([first_id, last_id], [ids[0] ?? null, ids.at(-1) ?? null])
  return [ids, has_more]
}
const ALL = ['large', 'claude-large', 'small', 'claude-small', 'anthropic-small']

test('[MOD-1] aliases are listed beside their model to clients of their surface alone', async () => {
  assert.deepEqual(pageOf(await asked('limit=1000')), [ALL, false])
  assert.deepEqual(pageOf(await asked('', responses)), [['large', 'small'], false])
  const { data } = await asked()
  assert.deepEqual(
    data.map((entry: any) => entry.display_name),
    ['Large', 'Large', 'small', 'small', 'small'],
  )
  const { id: _, ...large } = data[0]
  const { id: __, ...alias } = data[1]
  assert.deepEqual(alias, large)
})

test('[MOD-1] an alias whose model the key may not call is not listed', async () => {
  const narrow = { slots: [[identity, caller({ models: ['small'] })]] }
  assert.deepEqual(pageOf(await asked('', messages, narrow)), [ALL.slice(2), false])
})

for (const [query, ids, more] of [
  ['limit=2', ALL.slice(0, 2), true],
  ['limit=5', ALL, false],
  ['limit=2&after_id=claude-large', ALL.slice(2, 4), true],
  ['limit=2&after_id=claude-small', ALL.slice(4), false],
  ['after_id=anthropic-small', [], false],
  ['limit=2&before_id=claude-small', ALL.slice(1, 3), true],
  ['limit=2&before_id=small', ALL.slice(0, 2), false],
  ['before_id=large', [], false],
] as const) {
  test(`[MOD-1] a page: ${query}`, async () => assert.deepEqual(pageOf(await asked(query)), [ids, more]))
}

for (const [query, param] of [
  ['limit=0', 'limit'],
  ['limit=1001', 'limit'],
  ['limit=x', 'limit'],
  ['after_id=nobody', 'after_id'],
  ['before_id=', 'before_id'],
  ['after_id=large&before_id=small', 'before_id'],
] as const) {
  test(`[MOD-1] no page: ${query}`, async () => {
    const { type, error } = await asked(query)
    assert.deepEqual([type, error.code, error.param], ['error', 'invalid_value', param])
  })
}

test('[MOD-1] a client that reads the list whole gets it whole, whatever the query', async () => {
  assert.deepEqual(pageOf(await asked('limit=1&after_id=nobody', responses)), [['large', 'small'], false])
})
