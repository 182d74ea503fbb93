import assert from 'node:assert/strict'
import { test } from 'node:test'
import { accountNames, readOrganization } from '../../config/accounts.ts'
import { faultsOf, takenAway } from '../../config/retired.ts'
import { LIMITS } from '../../core/canon/limits.ts'
import { lines, loadText, small } from './load-text.ts'

const digest = (n: number) => `"${String(n).padStart(64, '0')}"`
const organization = (text: string, plans = '') =>
  small({ plans, organizations: `organizations:\n  acme:\n    plan: ${text}` })
const keys = (...entries: string[]) => `tier1\n    keys:\n${entries.map(e => `      - { ${e} }`).join('\n')}`

test('[LIM-11] the self-serve tiers are built in, with the published figures', async () => {
  const { config } = await loadText(small())
  const figures = (name: string) => {
    const { limits } = config!.plans[name]!
    return [
      limits.monthly_spend_usd === null ? null : limits.monthly_spend_usd / 1e9,
      limits.requests_per_minute,
      limits.tokens_per_minute,
      limits.input_tokens_per_minute,
      limits.output_tokens_per_minute,
      limits.concurrent_requests,
    ]
  }
  assert.deepEqual(figures('free'), [0, 5, 20_000, 20_000, 4_000, 1])
  assert.deepEqual(figures('tier1'), [100, 60, 100_000, 100_000, 30_000, 5])
  assert.deepEqual(figures('tier2'), [500, 120, 200_000, 200_000, 60_000, 10])
  assert.deepEqual(figures('tier3'), [1_000, 240, 300_000, 300_000, 120_000, 20])
  assert.deepEqual(figures('tier4'), [5_000, 500, 400_000, 400_000, 250_000, 50])
  assert.deepEqual(figures('tier5'), [null, 1_000, 400_000, 400_000, 400_000, 100])
  for (const name of ['beta', 'benchmark', 'custom']) assert.ok(config!.plans[name], name)
  assert.ok(Object.values(config!.plans['custom']!.limits).every(limit => limit === null))
})

test('[LIM-11] a plan of the same name replaces a built-in one whole', async () => {
  const { config } = await loadText(small({ plans: 'plans: { tier1: { limits: { requests_per_minute: 7 } } }' }))
  const { limits, active_keys } = config!.plans['tier1']!
  assert.equal(limits.requests_per_minute, 7)
  assert.equal(limits.tokens_per_minute, null)
  assert.equal(active_keys, null)
})

test('[LIM-1] every limit can be set on plan, organization and key, and money is exact', async () => {
  const names = LIMITS.map(({ name }) => name)
  assert.ok(names.length >= 15)
  const all = (n: string) => `{ ${names.map(name => `${name}: ${/_usd(_|$)/.test(name) ? n : 5}`).join(', ')} }`
  const { config, errors } = await loadText(
    small({
      plans: `plans: { p: { limits: ${all('1000000.00')}, model_limits: { old: ${all('0.01')} } } }`,
      organizations: `organizations: { a: { plan: p, limits: ${all('1000000.01')}, keys: [{ id: k, sha256: ${digest(1)}, limits: ${all('"0.29"')} }] } }`,
    }),
  )
  assert.deepEqual(lines(errors), [])
  const expect = (nano: number) => Object.fromEntries(names.map(name => [name, /_usd(_|$)/.test(name) ? nano : 5]))
  assert.deepEqual(config!.plans['p']!.limits, expect(1_000_000_000_000_000))
  assert.deepEqual(config!.plans['p']!.model_limits, { eb1: expect(10_000_000) }, 'an alias is the canonical id')
  assert.deepEqual(config!.organizations['a']!.limits, expect(1_000_000_010_000_000))
  assert.deepEqual(config!.organizations['a']!.keys[0]!.limits, expect(290_000_000))
})

test('[AUTH-4] an organization may widen its plan; a key that is wider is warned of', async () => {
  const { config, warnings, errors } = await loadText(
    organization(
      'tier1\n    limits: { requests_per_minute: 100, tokens_per_minute: 5 }\n    keys:\n' +
        `      - { id: a, sha256: ${digest(1)}, limits: { requests_per_minute: 101, tokens_per_minute: 5, monthly_spend_usd: ~ } }`,
    ),
  )
  assert.deepEqual(lines(errors), [])
  assert.equal(config!.organizations['acme']!.limits.requests_per_minute, 100)
  assert.deepEqual(
    lines(warnings).map(l => l.replace(/^.*? {2}/, '')),
    [
      'key a: requests_per_minute 101 is wider than the 100 of acme, which holds; a key only narrows',
      'key a: monthly_spend_usd unlimited is wider than the 100.00 of acme, which holds; a key only narrows',
    ],
  )
})

test('limits of each user: the plan is the least, what differs is merged, and a key narrows', async () => {
  const users = '{ requests_per_minute: 9, daily_spend_usd: "0.50" }'
  const { config, errors, warnings } = await loadText(
    organization(
      'p\n    user_limits: { requests_per_minute: 20, tokens_per_day: ~ }\n    keys:\n' +
        `      - { id: a, sha256: ${digest(1)}, limits: { requests_per_minute: 30 }, user_limits: { requests_per_minute: 30, concurrent_requests: 2 } }\n` +
        `      - { id: b, sha256: ${digest(2)} }`,
      `plans: { p: { user_limits: ${users} } }`,
    ),
  )
  assert.deepEqual(lines(errors), [])
  const { user_limits, keys } = config!.organizations['acme']!
  assert.deepEqual(user_limits, { requests_per_minute: 20, tokens_per_day: null, daily_spend_usd: 500_000_000 })
  assert.deepEqual(
    keys.map(key => key.user_limits),
    [{ requests_per_minute: 30, concurrent_requests: 2 }, undefined],
  )
  assert.deepEqual(lines(warnings), [
    'gateway.yaml:16:167  key a: user_limits.requests_per_minute 30 is wider than the 20 of acme, which holds; a key only narrows',
    'gateway.yaml:16:167  key a: one user may have 30, and limits.requests_per_minute allows 30 to all of them together; a lower value keeps one user from taking all',
  ])
})

test('rights that only look wider on a key are warned of', async () => {
  const { warnings } = await loadText(
    small({
      plans: 'plans: { p: { models: [], capabilities: [tools], streaming: false } }',
      organizations: `organizations: { a: { plan: p, keys: [{ id: k, sha256: ${digest(1)}, models: [old], capabilities: [tools, images], streaming: true }] } }`,
    }),
  )
  assert.equal(warnings.length, 3, lines(warnings).join('\n'))
})

test('[AUTH-5] staged keys count towards the cap of the plan, revoked ones do not', async () => {
  const plans = 'plans: { p: { active_keys: 2 } }'
  const load = (last: string) =>
    loadText(
      organization(
        keys(
          `id: a, sha256: ${digest(1)}`,
          `id: b, sha256: ${digest(2)}, status: staged`,
          `id: c, sha256: ${digest(3)}, status: ${last}`,
        ).replace('tier1', 'p'),
        plans,
      ),
    )
  assert.deepEqual(lines((await load('revoked')).errors), [])
  for (const status of ['active', 'staged']) {
    const { errors } = await load(status)
    assert.match(lines(errors)[0]!, /acme has 3 keys that are active or staged, and plan p allows 2; revoke 1/)
  }
})

test('[AUTH-3] digests are checked: form, quotes, one owner', async () => {
  const at = async (...entries: string[]) => lines((await loadText(organization(keys(...entries)))).errors)
  const plain = '1234567890'.repeat(7).slice(0, 64)
  const [unquoted] = await at(`id: a, sha256: ${plain}`)
  assert.match(unquoted!, new RegExp(`must be in quotes: "${plain}".*reads a number`))
  assert.match(
    (await at(`id: a, sha256: 0e${plain.slice(2)}`))[0]!,
    new RegExp(`must be in quotes: "0e${plain.slice(2)}"`),
  )
  assert.match((await at('id: a, sha256: "abc"'))[0]!, /64 hex digits/)
  assert.match(
    (await at(`id: a, sha256: ${digest(1)}`, `id: b, sha256: ${digest(1)}`))[0]!,
    /already a key \(line 14\)/,
  )
  assert.match(
    (await at(`id: a, sha256: ${digest(1)}`, `id: a, sha256: ${digest(2)}`))[0]!,
    /'a' is taken in acme \(line 14\)/,
  )
  assert.match((await at(`sha256: ${digest(1)}`))[0]!, /needs 'id'/)
  const upper = await loadText(organization(keys(`id: a, sha256: "${'AB'.repeat(32)}"`)))
  assert.equal(upper.config!.organizations['acme']!.keys[0]!.sha256, 'ab'.repeat(32))
})

test('one digest in two organizations is an error', async () => {
  const { errors } = await loadText(
    small({
      o: `organizations:\n  a: { plan: tier1, keys: [{ id: k, sha256: ${digest(1)} }] }\n  b: { plan: tier1, keys: [{ id: k, sha256: ${digest(1)} }] }`,
    }),
  )
  assert.equal(lines(errors).length, 1)
  assert.match(lines(errors)[0]!, /^gateway\.yaml:12:.*already a key \(line 11\)/)
})

test('plans and models that are named must exist', async () => {
  const first = async (text: string) => lines((await loadText(text)).errors)[0]!
  assert.match(
    await first(organization('teir1')),
    /^gateway\.yaml:12:11 {2}there is no plan 'teir1'; did you mean 'tier1'\?/,
  )
  assert.match(await first(organization('tier1\n    models: [eb2]')), /there is no model 'eb2'; did you mean 'eb1'\?/)
  assert.match(
    await first(
      organization('tier1\n    model_limits: { old: { requests_per_minute: 1 }, eb1: { max_output_tokens: 9 } }'),
    ),
    /^gateway\.yaml:\d+:\d+ {2}the limits of eb1 stand here twice, under an alias too; write them once$/,
  )
  for (const [limit, fault] of [
    [
      'max_output_tokens: 9',
      /^gateway\.yaml:13:20 {2}acme\.user_limits has no key 'max_output_tokens'; it takes requests_per_/,
    ],
    [
      'unbilled_usd_per_day: 1',
      /^gateway\.yaml:13:20 {2}acme\.user_limits has no key 'unbilled_usd_per_day'; it takes/,
    ],
    [
      'request_per_minute: 1',
      /acme\.user_limits has no key 'request_per_minute'; did you mean 'requests_per_minute'\?/,
    ],
    ['requests_per_minute: -1', /^gateway\.yaml:13:41 {2}.*at least 0/],
  ] as const)
    assert.match(await first(organization(`tier1\n    user_limits: { ${limit} }`)), fault)
  assert.match(
    await first(organization('tier1\n    model_limits: { gpt: {} }')),
    /there is no model 'gpt'; models: eb1/,
  )
  assert.match(await first(organization(keys(`id: a, sha256: ${digest(1)}, models: [zzz]`))), /there is no model 'zzz'/)
  assert.match(await first(small({ plans: 'plans: { p: { models: [zzz] } }' })), /there is no model 'zzz'/)
  const { config } = await loadText(organization('tier1\n    models: [old, eb1]'))
  assert.deepEqual(config!.organizations['acme']!.models, ['eb1'], 'an alias is the canonical id')
})

test('what would surprise an operator is a warning', async () => {
  const free = await loadText(organization('free'))
  assert.match(lines(free.warnings)[0]!, /every priced request is refused; set billing: free/)
  const atNoCharge = await loadText(organization('free\n    billing: free'))
  assert.deepEqual(lines(atNoCharge.warnings), [])
  const demo = `id: k, sha256: "f77894fdfa58e447c57e077eaa9708e8e009c84dc6aba2db80461275e9b85be7"`
  const open = await loadText(organization(keys(demo), 'server: { listen: ":8080" }'))
  assert.match(lines(open.warnings)[0]!, /everyone knows the key sk-demo/)
  assert.deepEqual(lines((await loadText(organization(keys(demo)))).warnings), [])
  const short = await loadText(small({ s: 'secret: "short"' }))
  assert.match(lines(short.warnings)[0]!, /the secret is short/)
})

test('[AUTH-5] a key that has an end does not count towards the cap of the plan', async () => {
  const plans = 'plans: { p: { active_keys: 1 } }'
  const load = (expires: string) =>
    loadText(
      organization(
        keys(`id: a, sha256: ${digest(1)}, expires: ${expires}`, `id: b, sha256: ${digest(2)}`).replace('tier1', 'p'),
        plans,
      ),
    )
  assert.deepEqual(lines((await load('2026-11-24T18:00:00Z')).errors), [])
  assert.match(lines((await load('~')).errors)[0]!, /acme has 2 keys/)
  assert.match(lines((await load('tomorrow')).errors)[0]!, /expires must be a time with its zone such as 2026-11-24T18/)
})

test('more organizations than a reload should read are warned of, with the place for them', async () => {
  const many = (count: number) =>
    loadText(`organizations:\n${Array.from({ length: count }, (_, i) => `  o${i}: { plan: tier1 }\n`).join('')}`)
  assert.deepEqual(lines((await many(1000)).warnings), [])
  assert.match(lines((await many(1001)).warnings)[0]!, /1001 organizations .*`sluice org export --file`/)
})

test('what is retired is not there any more; a name that is defined all the same is a fault at its place', async () => {
  const retired = (text: string, sections: Record<string, string> = {}) =>
    loadText(small({ ...sections, retired: text }))
  const { config } = await retired('retired: { plans: [gold], models: [smart, "a b"] }', { plans: 'plans: { p: {} }' })
  assert.deepEqual(config!.retired.plans, ['gold'])
  assert.deepEqual(config!.retired.models, ['smart', 'a b'])
  const text = lines((await retired('retired: { plans: [gold] }')).errors)
  assert.deepEqual(text, [])
  const faults = await retired('retired:\n  plans: [p, tier1]\n  models: [gone, eb1, old]\n  keys: []', {
    plans: 'plans: { p: {} }',
  })
  assert.match(lines(faults.errors).join('\n'), /retired has no key 'keys'/)
  const defined = await retired('retired:\n  plans: [p, tier1]\n  models: [gone, eb1, old]', {
    plans: 'plans: { p: {} }',
  })
  assert.deepEqual(
    lines(defined.errors).map(line => line.replace(/^gateway\.yaml:\d+:/, '')),
    [
      "11  plans has 'p'; remove it there or here",
      "14  'tier1' is a built-in plan, which is always there; remove it here",
      "18  models has 'eb1'; remove it there or here",
      "23  'old' is an alias of the model eb1; remove it there or here",
    ],
  )
  const twice = await retired('retired: { plans: [gold, gold] }')
  assert.match(lines(twice.errors)[0]!, /retired\.plans lists 'gold' twice/)
})

test('what a file takes away: plans, ids and aliases that it neither has nor retires', async () => {
  const model = (text: string) => ({
    models: `models:\n  ${text}, context_window: 1000, backends: [{ provider: local, model: m }] }`,
  })
  const load = async (sections: Record<string, string>) => (await loadText(small(sections))).config!
  const before = await load({ ...model('smart: { aliases: [wise, odd]'), plans: 'plans: { gold: {}, tier1: {} }' })
  const taken = async (sections: Record<string, string>) => takenAway(before, await load(sections))
  assert.deepEqual(await taken({ ...model('smart: { aliases: [wise, odd]'), plans: 'plans: { gold: {} }' }), {
    plan: [],
    model: [],
  })
  assert.deepEqual(await taken(model('clever: { aliases: [smart, wise]')), { plan: ['gold'], model: ['odd'] })
  assert.deepEqual(
    await taken({ ...model('clever: { aliases: [new]'), r: 'retired: { plans: [gold], models: [wise] }' }),
    {
      plan: [],
      model: ['smart', 'odd'],
    },
  )
  const many = Array.from({ length: 30 }, (_, i) => ({
    kind: 'plan' as const,
    name: `p${i}`,
    organizations: 1,
    ids: ['a'],
  }))
  const told = faultsOf(many, before)
  assert.deepEqual([told.length, told.at(-1)!.message], [21, 'and 10 more plans or models that accounts name'])
})

test('a list of which no model is left allows nothing, and an account without its plan is not to be served', async () => {
  const { config } = await loadText(small())
  const key = { id: 'k', sha256: '1'.padStart(64, '0'), models: ['gone'], model_limits: { gone: {} } }
  const read = (members: object) => readOrganization('acme', { ...members, keys: [key] }, accountNames(config!))
  const left = read({ plan: 'custom', models: ['gone'] })
  assert.deepEqual([left.organization!.models, left.organization!.keys[0]!.models], [[], []])
  assert.deepEqual(left.organization!.keys[0]!.model_limits, {})
  const unplanned = read({ plan: 'gold' })
  assert.equal(unplanned.organization, null)
  assert.equal(unplanned.faults.length, 3, 'all of them at once')
  assert.deepEqual([unplanned.unplanned!.models, unplanned.unplanned!.plan], [[], 'gold'])
})

test('a prepaid organization of the file is refused with the way into the store', async () => {
  const { errors } = await loadText(organization('tier1\n    billing: prepaid'))
  const [fault] = lines(errors)
  assert.match(fault!, /:(\d+):14 {2}prepaid is for organizations of the store.*`sluice org create acme plan=tier1/)
})

test('a prepaid organization needs a bound on what its clients leave unbilled', async () => {
  const { config } = await loadText(small())
  const faultsWith = (limits: object) =>
    readOrganization('acme', { plan: 'custom', billing: 'prepaid', limits }, accountNames(config!)).faults
  const [fault, ...more] = faultsWith({})
  assert.match(fault!, /^limits\.unbilled_usd_per_day: acme is prepaid/)
  assert.deepEqual(more, [])
  for (const name of ['unbilled_usd_per_day', 'daily_spend_usd', 'monthly_spend_usd'])
    assert.deepEqual(faultsWith({ [name]: '1.00' }), [], name)
})
