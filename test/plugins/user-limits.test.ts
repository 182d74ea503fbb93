/** Limits of the end users of a key: who is meant, what they are told, and what it changes for others (`admission`). */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { KeyConfig, OrganizationConfig } from '../../config/types.ts'
import { conversation, estimate, request, usage } from '../../core/plugin.ts'
import type { Store } from '../../core/ports/store.ts'
import { admission } from '../../plugins/admission/index.ts'
import { identity, model, reservation } from '../../plugins/shared/slots.ts'
import { createSharedState, ManualClock, plainConversation, type RunOptions, runPlugin } from '../../plugins/testing.ts'
import { caller, gatewayOf, lateStore, memoryStore, modelOf, text } from './kit.ts'

interface Asked {
  body?: object
  headers?: Record<string, string>
  input?: number
  /** The cap that the client named. */
  cap?: number | undefined
  /** nano-USD that it is billed. */
  cost?: number
}

async function limited(
  key: Partial<KeyConfig>,
  { organization = {}, user, store }: { organization?: Partial<OrganizationConfig>; user?: object; store?: Store } = {},
) {
  const clock = new ManualClock(Date.UTC(2026, 10, 21, 10))
  const who = caller(organization as never, key)
  const [shared, kept] = [createSharedState(), store ?? (await memoryStore(clock))]
  let sent = 0
  const ask = ({ body = {}, headers = {}, input = 10, cap, cost = 0 }: Asked, more: RunOptions<any> = {}) =>
    runPlugin(admission, {
      ...{ id: `req_${++sent}`, gateway: gatewayOf(), store: kept, shared, clock, events: [text('hi')] },
      request: { headers },
      ...(user && { config: { user } }),
      ...more,
      slots: [
        [identity, who],
        [model, modelOf()],
        [request, body],
        [estimate, { input }],
        [
          conversation,
          plainConversation(cap === undefined ? {} : { maxOutputTokens: cap, maxOutputField: 'max_tokens' }),
        ],
        [usage, { usage: { input, cached: 0, output: 5 }, cost, billed: true }],
      ],
    })
  return { ask, clock }
}
const statuses = async (ask: (asked: Asked) => Promise<{ status: number }>, all: Asked[]) => {
  const found: number[] = []
  for (const asked of all) found.push((await ask(asked)).status)
  return found
}
const named = (user: string) => ({ body: { user } })
const ONE = { user_limits: { requests_per_minute: 1 } }

test('[LIM-12] each user has a limit of his own, and all requests that name nobody have one together', async () => {
  const { ask } = await limited(ONE)
  const all = [named('ann'), named('bob'), named('ann'), {}, named(''), { body: { user: 7 } }]
  assert.deepEqual(await statuses(ask, all), [200, 200, 429, 200, 429, 429])
})

test('a user is named by safety_identifier, user or metadata.user_id; or by a header, hashed or not', async () => {
  const { ask } = await limited(ONE)
  const bodies = [
    { user: 'ann' },
    { safety_identifier: 'ann', user: 'bob' },
    { metadata: { user_id: 'ann' } },
    { metadata: { user_id: 'cy' } },
  ]
  assert.deepEqual(
    await statuses(
      ask,
      bodies.map(body => ({ body })),
    ),
    [200, 429, 429, 200],
  )
  for (const hash of [false, true]) {
    const { ask } = await limited(ONE, { user: { from: 'header.X-User', hash } })
    const headers = ['ann', 'bob', 'ann', 'x'.repeat(500), 'x'.repeat(499)].map(name => ({
      headers: { 'x-user': name },
    }))
    assert.deepEqual(await statuses(ask, headers), [200, 200, 429, 200, 200])
  }
})

test('[LIM-12] the refusal has the code of its dimension, names the setting, and its headers are of that limit', async () => {
  const { ask, clock } = await limited({ limits: { requests_per_minute: 50 }, ...ONE })
  const first = await ask(named('ann'))
  assert.deepEqual(
    first.exchange.get(reservation).cells.filter(({ scope }) => scope === 'user'),
    [],
    'what all have left is told as if there were no users',
  )
  const refused = await ask(named('ann'))
  assert.equal(refused.status, 429)
  assert.equal(refused.exchange.error?.code, 'requests_limit_exceeded')
  assert.equal(
    refused.exchange.error?.message,
    'The limit of 1 requests per minute of each user of this key is reached: the request needs 1, 0 remain. Retry after the wait, or raise user_limits.requests_per_minute.',
  )
  assert.equal(refused.headers.get('x-ratelimit-scope'), 'user')
  assert.equal(refused.headers.get('x-ratelimit-limit-requests'), '1')
  assert.equal(refused.headers.get('x-ratelimit-remaining-requests'), '0')
  await ask({})
  assert.match((await ask({})).exchange.error!.message, /\. Requests that name no user count as one user together\.$/)
  clock.advance(60_000)
  assert.equal((await ask(named('ann'))).status, 200)
})

test('organization and key both hold, and a request takes from all or from none', async () => {
  const organization = { user_limits: { requests_per_minute: 2, tokens_per_day: 1000 } }
  const { ask } = await limited({ user_limits: { requests_per_minute: 5, tokens_per_day: 40 } }, { organization })
  const large = { ...named('bob'), input: 60 }
  const first = ['ann', 'ann', 'ann'].map(named)
  const rest = [large, ...['bob', 'bob', 'bob'].map(named)]
  // The large request took nothing.
  assert.deepEqual(
    await statuses(
      ask,
      [...first, ...rest].map(asked => ({ cap: 5, ...asked })),
    ),
    [200, 200, 429, 429, 200, 200, 429],
  )
})

test('a limit of the account is refused in its own words, whoever the user is', async () => {
  const { ask } = await limited({ limits: { requests_per_minute: 1 }, user_limits: { requests_per_minute: 1 } })
  await ask(named('ann'))
  for (const name of ['ann', 'bob']) {
    const { status, headers, exchange } = await ask(named(name))
    assert.deepEqual([status, headers.get('x-ratelimit-scope')], [429, 'org'])
    assert.match(exchange.error!.message, /of this key is reached/)
  }
})

test('concurrency and spend of each user; a cap that the client did not name is lowered to what he has left', async () => {
  const spend = { user_limits: { daily_spend_usd: 100_000 } }
  const { ask } = await limited(spend)
  // A token of output costs 4000 nano-USD: a quarter of all there is pays for 6 at most, behind the prompt.
  const first = await ask(
    { ...named('ann'), input: 1, cap: undefined, cost: 95_000 },
    { config: { output_reserve: 2 } },
  )
  assert.equal(first.exchange.get(reservation).cap, 6)
  const second = await ask({ ...named('ann'), input: 1, cap: undefined }, { config: { output_reserve: 1 } })
  assert.deepEqual([second.status, second.exchange.peek(reservation)?.cap], [200, 1])
  const third = await ask({ ...named('ann'), input: 1, cap: 3 })
  assert.equal(third.status, 429)
  assert.match(third.exchange.error!.message, /what is left of a limit of this user until 2026-11-22 00:00 UTC/)
  assert.equal((await ask({ ...named('bob'), input: 1, cap: 3 })).status, 200)
  const none = await limited({ user_limits: { daily_spend_usd: 0 } })
  assert.match(
    (await none.ask(named('ann'))).exchange.error!.message,
    /raise user_limits\.daily_spend_usd of each user of this key/,
  )
  const large = await limited({ user_limits: { tokens_per_minute: 8 } })
  assert.match(
    (await large.ask(named('ann'))).exchange.error!.message,
    /one full minute of the budget is 8 \(user_limits\.tokens_/,
  )
})

test('the same with a store in another process', async () => {
  const clock = new ManualClock(Date.UTC(2026, 10, 21, 10))
  const { ask } = await limited(ONE, { store: lateStore(await memoryStore(clock)) })
  assert.deepEqual(await statuses(ask, [named('ann'), named('ann'), named('bob')]), [200, 429, 200])
})
