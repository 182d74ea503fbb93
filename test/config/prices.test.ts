/** Price lists of models, plans and organizations; and temporary raises of limits. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { accountNames, raisedAt, readOrganization } from '../../config/accounts.ts'
import { lines, loadText, small } from './load-text.ts'

const PRICES = `{ input: 2, output: 8, cached: 0.2, steps: [{ above: 200000, input: 4, output: 12 }, { above: 1000, input: 3, output: 9 }] }`
const withPlan = (organization: string, plan = '') =>
  small({
    plans: `plans:\n  gold: { ${plan} }`,
    organizations: `organizations:\n  acme: { plan: gold, ${organization} }`,
  })

test('prices of an organization stand in for those of its plan, and these for those of the models', async () => {
  const one = Object.keys((await loadText(small())).config!.models)[0]!
  const price = { input: 2_000_000, output: 8_000_000, cached: 200_000 }
  const steps = [
    { above: 1000, input: 3_000_000, output: 9_000_000 },
    { above: 200_000, input: 4_000_000, output: 12_000_000 },
  ]
  const { config, warnings } = await loadText(withPlan('', `prices: { ${one}: ${PRICES} }`))
  assert.deepEqual(config!.organizations['acme']!.prices, { [one]: { ...price, steps, list: 'plan:gold' } })
  assert.equal(lines(warnings ?? []).filter(line => /cache/.test(line)).length, 0, 'a tenth of input is no difference')
  const own = await loadText(withPlan(`prices: { ${one}: { input: 1, output: 1 } }`, `prices: { ${one}: ${PRICES} }`))
  assert.deepEqual(own.config!.organizations['acme']!.prices, {
    [one]: { input: 1_000_000, output: 1_000_000, list: 'organization' },
  })
  const names = accountNames(own.config!)
  const stored = readOrganization('b', { plan: 'gold', prices: { [one]: { input: '0.5', output: 2 } } }, names)
  assert.deepEqual(stored.organization!.prices![one], { input: 500_000, output: 2_000_000, list: 'organization' })
  assert.deepEqual(readOrganization('b', { plan: 'gold', prices: { none: { input: 1, output: 1 } } }, names).faults, [
    `prices.none: there is no model 'none'; models: ${Object.keys(own.config!.models).join(', ')}`,
  ])
})

test('a price that differs from the specification is warned of, and one that contradicts itself is refused', async () => {
  const one = Object.keys((await loadText(small())).config!.models)[0]!
  const of = async (price: string) => {
    const { errors, warnings } = await loadText(withPlan(`prices: { ${one}: ${price} }`))
    return lines(errors ?? warnings ?? []).filter(line => /cache|step/.test(line))
  }
  const [cached, written, step] = await of(
    '{ input: 2, output: 8, cached: 0.5, cache_write: 2.5, steps: [{ above: 10, input: 4, output: 8, cached: 0 }] }',
  )
  assert.match(cached!, /cached is 0.5, and the specification bills reads from a cache at a tenth of input, 0.2;/)
  assert.match(written!, /cache_write is 2.5, and the specification bills writes to a cache as input, 2;/)
  assert.match(step!, /cached is 0, .*, 0.4;/)
  assert.deepEqual(await of('{ input: 2, output: 8, cached: 0.2, cache_write: 2 }'), [])
  const twice = '[{ above: 10, input: 1, output: 1 }, { above: 10, input: 2, output: 2 }]'
  assert.match((await of(`{ input: 1, output: 1, steps: ${twice} }`))[0]!, /an earlier step is above 10 too/)
})

test('a raise holds until it ends, and narrows nothing', async () => {
  const until = Date.UTC(2999, 0, 1)
  const raises = `raises: [
    { until: 2999-01-01T00:00:00Z, limits: { requests_per_minute: 50, tokens_per_minute: 5, input_tokens_per_minute: ~, requests_per_day: 9 } },
    { until: 2998-01-01T00:00:00Z, limits: { requests_per_minute: 70 } } ]`
  const { config } = await loadText(
    withPlan(raises, 'limits: { requests_per_minute: 10, tokens_per_minute: 100, input_tokens_per_minute: 7 }'),
  )
  const acme = config!.organizations['acme']!
  assert.equal(acme.limits.requests_per_minute, 10)
  const limitsAt = (now: number) => {
    const { requests_per_minute, tokens_per_minute, input_tokens_per_minute, requests_per_day } = raisedAt(acme, now)
      .organization.limits
    return [requests_per_minute, tokens_per_minute, input_tokens_per_minute, requests_per_day]
  }
  const both = Date.UTC(2997, 0, 1)
  assert.deepEqual(limitsAt(both), [70, 100, null, null])
  assert.equal(raisedAt(acme, both).until, Date.UTC(2998, 0, 1))
  assert.equal(raisedAt(acme, both).organization, raisedAt(acme, both + 1).organization)
  assert.deepEqual(limitsAt(Date.UTC(2998, 0, 1)), [50, 100, null, null])
  assert.deepEqual(limitsAt(until), [10, 100, 7, null])
  assert.equal(raisedAt(acme, until).until, Number.POSITIVE_INFINITY)
  // A clock that is set back finds it again.
  assert.deepEqual(limitsAt(both), [70, 100, null, null])
})
