/** `sluice replay`: rows against other plans and prices give what the limiter of a gateway would have answered. */
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { type TestContext, test } from 'node:test'
import { load } from '../../cli/load.ts'
import { Accounts } from '../../cli/replay/accounts.ts'
import { Replay, type Replayed } from '../../cli/replay/replay.ts'
import { Running } from '../../cli/replay/running.ts'
import { runUsage } from '../../cli/usage-report.ts'
import { NO_PROPOSAL, type Proposal, readProposal, writtenOrganizations } from '../../config/proposal.ts'
import type { GatewayConfig } from '../../config/types.ts'
import { cost, exposure, type Price, priceUsed, ratesAt, shareOf } from '../../core/canon/money.ts'
import { conversation, estimate, usage } from '../../core/plugin.ts'
import type { LedgerRow } from '../../core/ports/store.ts'
import { admission } from '../../plugins/admission/index.ts'
import { identity, model, reservation } from '../../plugins/shared/slots.ts'
import { createSharedState, ManualClock, plainConversation, runPlugin } from '../../plugins/testing.ts'
import { openAccounts } from '../../stores/accounts.ts'
import { gatewayOf, memoryStore } from '../plugins/kit.ts'
import { Random } from '../random.ts'
import { insertRows } from '../stores/kit.ts'
import { folder, type Ran, sluice, YAML } from './capture.ts'

const NOVEMBER = Date.UTC(2026, 10, 1)
const MODEL = 'eb1-preview'
/** 1 and 2 USD per million tokens. */
const PRICE = { input: 1_000_000, output: 2_000_000 }

const withPlan = (limits: object) =>
  YAML.replace('organizations:', `plans:\n  own: ${JSON.stringify({ limits })}\n\norganizations:`).replace(
    'plan: tier1\n    keys',
    'plan: own\n    keys',
  )

const LIMITS = { requests_per_minute: 60, tokens_per_minute: 60_000, daily_spend_usd: 5, max_output_tokens: 4000 }

interface Setting {
  config: GatewayConfig
  accounts(proposal: Proposal): Promise<Accounts>
  dir: string
  file: string
}

async function setting(t: TestContext, limits: object, edit = (text: string) => text): Promise<Setting> {
  const { dir, file } = folder(t, edit(withPlan(limits)))
  const loaded = await load(file, { placeholders: true })
  assert.ok(!loaded.errors, JSON.stringify(loaded.errors))
  const { config } = loaded
  const written = await writtenOrganizations(file)
  return {
    ...{ config, dir, file },
    accounts: async proposal => new Accounts({ config, written, stored: null, proposal, start: NOVEMBER }),
  }
}

async function plansOf({ dir, config }: Setting, limits: object): Promise<Proposal> {
  const file = join(dir, 'plans.yaml')
  writeFileSync(file, `plans:\n  own: ${JSON.stringify({ limits })}\n`)
  const { errors, plans } = await readProposal(file, 'plans', config)
  assert.deepEqual(errors, [])
  return { ...NO_PROPOSAL, plans }
}

interface Asked {
  id: string
  time: number
  input: number
  output: number
  cap: number | undefined
}

const asks = (random: Random, count: number): Asked[] => {
  let time = NOVEMBER
  return Array.from({ length: count }, (_, i) => {
    time += random.chance(0.2) ? random.below(120_000) : random.below(1500)
    const cap = random.chance(0.3) ? undefined : 1 + random.below(3000)
    const output = random.below(Math.min(cap ?? 3000, 3000) + 1)
    return { id: `req_${String(i).padStart(24, '0')}`, time, input: 1 + random.below(5000), output, cap }
  })
}

/** What the plugin answers to each, one after the other: null, or the code of its refusal. */
async function admitted(
  accounts: Accounts,
  config: GatewayConfig,
  asked: readonly Asked[],
): Promise<{ code: string | null; reserved: number }[]> {
  const clock = new ManualClock(NOVEMBER)
  const store = await memoryStore(clock)
  const shared = createSharedState()
  const account = (await accounts.find('demo'))!
  const answers: { code: string | null; reserved: number }[] = []
  for (const { id, time, input, output, cap } of asked) {
    clock.advance(time - clock.now())
    const run = await runPlugin(admission, {
      ...{ id, store, shared, clock, gateway: gatewayOf() },
      slots: [
        [identity, account.caller('key_demo', time)],
        [model, config.models[MODEL]!],
        [estimate, { input }],
        [conversation, plainConversation(cap === undefined ? {} : { maxOutputTokens: cap, maxOutputField: 'max' })],
        [
          usage,
          {
            usage: { input, cached: 0, output },
            cost: cost({ input, cached: 0, cacheWrite: 0, output }, PRICE),
            billed: true,
          },
        ],
      ] as never,
    })
    const refused = run.status !== 200
    answers.push({
      code: refused ? (JSON.parse(run.body).error.code as string) : null,
      reserved: refused ? 0 : run.exchange.get(reservation).output,
    })
  }
  return answers
}

const rowOf = ({ id, time, input, output }: Asked, reserved: number | undefined, duration_ms = 0): LedgerRow => ({
  ...{
    request_id: id,
    time,
    organization: 'demo',
    key_id: 'key_demo',
    surface: 'chat',
    model: MODEL,
    outcome: 'completed',
  },
  ...{ price_book: '2026-11', billing: 'standard', provider: 'local', provider_model: 'm', estimated: false, tags: '' },
  ...{
    input,
    cached: 0,
    cacheWrite: 0,
    output,
    reasoning: 0,
    searches: 0,
    input_tokens: input,
    duration_ms,
    ttfb_ms: 1,
  },
  ...{ cost: cost({ input, cached: 0, cacheWrite: 0, output }, PRICE), price_used: 'model', provider_cost: input },
  ...{ price_input: PRICE.input, price_output: PRICE.output, counted_input: input, counted_output: output },
  ...(reserved !== undefined && { output_reserved: reserved }),
})

async function replayOf(
  { config, accounts }: Setting,
  proposal: Proposal,
  rows: readonly LedgerRow[],
  since = NOVEMBER,
): Promise<{ told: Replayed[]; replay: Replay }> {
  const told: Replayed[] = []
  const replay = new Replay({
    ...{ config, accounts: await accounts(proposal), costs: proposal.costs, since },
    tell: each => void told.push(each),
  })
  await replay.add(rows)
  return { told, replay }
}

test('what was admitted is admitted again, and brings what it brought', async t => {
  const random = new Random(1)
  for (let round = 0; round < 5; round++) {
    const here = await setting(t, { ...LIMITS, tokens_per_minute: 5000 + random.below(20_000) })
    const asked = asks(random, 200)
    const answers = await admitted(await here.accounts(NO_PROPOSAL), here.config, asked)
    const kept = asked.flatMap((each, i) => (answers[i]!.code === null ? [rowOf(each, answers[i]!.reserved)] : []))
    assert.ok(kept.length > 10 && kept.length < asked.length, 'some of each')
    const { told } = await replayOf(here, NO_PROPOSAL, kept)
    assert.deepEqual(
      told.map(({ refusal, revenue }) => [refusal, revenue]),
      kept.map(({ cost }) => [null, cost]),
    )
  }
})

test('narrower limits refuse exactly what admission refuses with them, by the same code', async t => {
  const random = new Random(2)
  const codes = new Set<string>()
  for (let round = 0; round < 12; round++) {
    const here = await setting(t, LIMITS)
    const asked = asks(random, 150)
    const free = await admitted(await here.accounts(NO_PROPOSAL), here.config, asked)
    const kept = asked.filter((_, i) => free[i]!.code === null)
    const rows = asked.flatMap((each, i) => (free[i]!.code === null ? [rowOf(each, free[i]!.reserved)] : []))
    const narrow = await plansOf(here, {
      ...LIMITS,
      ...random.one<object>([
        { requests_per_minute: 2 + random.below(20) },
        { tokens_per_minute: 2000 + random.below(20_000) },
        { output_tokens_per_minute: 1000 + random.below(9000), max_output_tokens: 2000 },
        { requests_per_day: 10 + random.below(80), input_tokens_per_day: 100_000 },
        { daily_spend_usd: (10 + random.below(30)) / 100 },
        { max_request_tokens: 3000, max_request_usd: 0.008 },
      ]),
    })
    const expected = await admitted(await here.accounts(narrow), here.config, kept)
    const { told } = await replayOf(here, narrow, rows)
    const found = told.map(({ refusal }) => refusal?.code ?? null)
    assert.deepEqual(
      found,
      expected.map(({ code }) => code),
    )
    for (const code of found) if (code) codes.add(code)
  }
  assert.ok(codes.size >= 3, [...codes].join(' '))
})

test('exchanges that run hold their places until they end', async t => {
  const here = await setting(t, LIMITS)
  const two = await plansOf(here, { ...LIMITS, concurrent_requests: 2 })
  const at = (i: number, time: number) => ({ id: `req_${i}`, time: NOVEMBER + time, input: 1, output: 1, cap: 1 })
  const rows = [at(1, 0), at(2, 10), at(3, 20), at(4, 1000), at(5, 1001)].map(each => rowOf(each, 1, 1000))
  const { told } = await replayOf(here, two, rows)
  const full = ['concurrent_requests', 'organization', 'concurrency_limit_exceeded']
  assert.deepEqual(
    told.map(({ refusal }) => refusal && [refusal.limit, refusal.scope, refusal.code]),
    // The third finds two that run, the fourth comes as the first ends, and the fifth finds the second and the fourth.
    [null, null, full, null, full],
  )
})

test('a replay of what a replay admitted refuses nothing', async t => {
  const random = new Random(3)
  const here = await setting(t, LIMITS)
  const rows = asks(random, 400).map(each => rowOf(each, each.cap ?? 1000, random.below(20_000)))
  const narrow = await plansOf(here, {
    ...LIMITS,
    concurrent_requests: 3,
    tokens_per_minute: 20_000,
    daily_spend_usd: 1,
  })
  const { told } = await replayOf(here, narrow, rows)
  const left = told.filter(({ refusal }) => !refusal).map(({ row }) => row)
  assert.ok(left.length > 50 && left.length < 350, String(left.length))
  const again = await replayOf(here, narrow, left)
  assert.ok(again.told.every(({ refusal }) => !refusal))
})

test('rows before the period fill the limits, and are not counted', async t => {
  const here = await setting(t, LIMITS)
  const narrow = await plansOf(here, { ...LIMITS, requests_per_day: 3 })
  const rows = [0, 1, 2, 3].map(i => rowOf({ id: `r${i}`, time: NOVEMBER + i * 1000, input: 1, output: 1, cap: 1 }, 1))
  const { told } = await replayOf(here, narrow, rows, NOVEMBER + 2000)
  assert.deepEqual(
    told.map(({ refusal }) => refusal?.limit ?? null),
    [null, 'requests_per_day'],
  )
  assert.ok(told[1]!.refusal!.fits! > rows[3]!.time)
})

test('what runs is taken out by its end, and at one time in the order of its beginning', () => {
  const random = new Random(4)
  const running = new Running<number>()
  const all = Array.from({ length: 500 }, (_, i) => ({ at: random.below(60), i }))
  for (const { at, i } of all) running.add(at, i)
  const expected = all.toSorted((a, b) => a.at - b.at || a.i - b.i).map(({ i }) => i)
  const taken: (number | undefined)[] = []
  while (running.size > 0) taken.push(running.take())
  assert.deepEqual(taken, expected)
  assert.deepEqual([running.take(), running.next], [undefined, Number.POSITIVE_INFINITY])
})

/** A row as `usage-capture` writes it of a reply that was billed at a share of a price; `most` is what its cap costs. */
function billedRow(
  asked: Asked,
  price: Price,
  random: Random,
  more: Partial<LedgerRow> & { most?: number },
): LedgerRow {
  const { most = Number.POSITIVE_INFINITY, ...rest } = more
  const { input, output } = asked
  const counted = { input, cached: random.below(input + 1), cacheWrite: 0, output }
  counted.cacheWrite = random.below(input - counted.cached + 1)
  const rates = ratesAt(price, input)
  return {
    ...rowOf(asked, asked.cap ?? 1000),
    ...counted,
    ...{ price_used: priceUsed(price, input), price_input: rates.input, price_output: rates.output },
    ...{ cost: Math.min(cost(counted, price), most) },
    ...rest,
  }
}

/** As the response cache answers one: no backend, and none of its fields. */
function layerRow(asked: Asked, price: Price, share: number, random: Random): LedgerRow {
  const row = billedRow(asked, share === 1 ? price : shareOf(price, share), random, {
    ...{ provider: 'response-cache', provider_cost: 0 },
  })
  for (const name of ['provider_model', 'counted_input', 'counted_output'] as const) delete row[name]
  return row
}

const STEPPED = 'input: 1, output: 2, cached: 0.3, cache_write: 1.25, steps: [{ above: 3000, input: 1.5, output: 3 }]'
const STEPPED_PRICE: Price = {
  ...{ input: 1_000_000, output: 2_000_000, cached: 300_000, cache_write: 1_250_000 },
  steps: [{ above: 3000, input: 1_500_000, output: 3_000_000 }],
}
/** Of no limit that these rows meet. */
const WIDE = { requests_per_minute: 1_000_000 }

test('where nothing is proposed the revenue of every row is what the ledger has', async t => {
  const here = await setting(t, WIDE, text => text.replace('input: 1, output: 2', STEPPED))
  const random = new Random(7)
  const rows = asks(random, 600).map((asked): LedgerRow => {
    const billed = billedRow(asked, STEPPED_PRICE, random, {})
    const bare = (({ price_used: _, price_input: __, price_output: ___, ...row }) => row)(billed) as LedgerRow
    switch (random.below(8)) {
      case 0:
        return layerRow(asked, STEPPED_PRICE, random.one([0, 0.1, 0.5, 1 / 3, 0.0000001, 1]), random)
      case 1:
        return billedRow(asked, STEPPED_PRICE, random, { most: random.below(billed.cost + 1) })
      case 2: {
        // A compaction: two prompts, each with its own step.
        const summary = { input: asked.input + 300, cached: 0, cacheWrite: 0, output: 100 }
        const own = { input: 500, cached: 0, cacheWrite: 0, output: asked.output }
        const both = { input: summary.input + own.input, cached: 0, cacheWrite: 0, output: 100 + own.output }
        return { ...billed, ...both, cost: cost(summary, STEPPED_PRICE) + cost(own, STEPPED_PRICE), rounds: 2 }
      }
      case 3:
        return { ...billed, input: 0, cached: 0, cacheWrite: 0, output: 0, cost: 0, outcome: 'upstream_error' }
      case 4:
        // Of an older release, at a price that nobody remembers.
        return { ...bare, cost: 1 + random.below(1000) }
      case 5:
        return { ...layerRow(asked, STEPPED_PRICE, 0.2, random), model: 'eb0' }
      case 6:
        return { ...billed, organization: 'gone' }
      default:
        return billed
    }
  })
  const { told } = await replayOf(here, NO_PROPOSAL, rows)
  assert.deepEqual(
    told.map(({ revenue, refusal }) => [revenue, refusal]),
    rows.map(row => [row.cost, null]),
  )
})

test('a new price is charged at the share of the old one, and of a reply beyond its cap no more than the cap', async t => {
  const here = await setting(t, WIDE)
  const random = new Random(8)
  const [tenth, free, whole, other] = asks(random, 4)
  const beyond = { ...other!, cap: 400, output: 430 }
  const NEW = { input: 5_000_000, output: 7_000_000 }
  const rows = [
    layerRow(tenth!, PRICE, 0.1, random),
    layerRow(free!, PRICE, 0, random),
    billedRow(whole!, PRICE, random, {}),
    billedRow(beyond, PRICE, random, { cached: 0, cacheWrite: 0, cost: exposure(beyond.input, 400, PRICE) }),
    { ...billedRow(beyond, PRICE, random, {}), input: beyond.input + 100, rounds: 2 },
  ]
  const { told } = await replayOf(here, { ...NO_PROPOSAL, prices: { [MODEL]: NEW } }, rows)
  assert.deepEqual(
    told.map(({ revenue }) => revenue),
    [
      ...[cost(rows[0]!, shareOf(NEW, 0.1)), 0, cost(rows[2]!, NEW)],
      ...[exposure(beyond.input, 400, NEW), cost(rows[4]!, NEW)],
    ],
  )
})

test('what a layer answered takes no tokens from limits, and its cost from spend limits', async t => {
  const here = await setting(t, LIMITS)
  const random = new Random(9)
  const at = (i: number): Asked => ({ ...minute(0), id: `req_${i}`, time: NOVEMBER + i })
  const limitsOf = async (rows: readonly LedgerRow[], limits: object) =>
    (await replayOf(here, await plansOf(here, limits), rows)).told.map(({ refusal }) => refusal?.limit ?? null)
  for (const share of [0, 0.5, 1]) {
    const rows = Array.from({ length: 4 }, (_, i) => layerRow(at(i), PRICE, share, random))
    assert.deepEqual(await limitsOf(rows, { tokens_per_minute: 3000 }), [null, null, null, null])
  }
  const served = Array.from({ length: 4 }, (_, i) => rowOf(at(i), 500))
  const tokens = 'tokens_per_minute'
  assert.deepEqual(await limitsOf(served, { tokens_per_minute: 3000 }), [null, null, tokens, tokens])
  const spend = 'daily_spend_usd'
  const layer = Array.from({ length: 4 }, (_, i) => ({ ...layerRow(at(i), PRICE, 1, random), cost: 2_000_000 }))
  assert.deepEqual(await limitsOf(layer, { daily_spend_usd: 0.005 }), [null, null, spend, spend])
})

// ---- the command ------------------------------------------------------------------------------------------------------

interface Files {
  plans?: string
  prices?: string
}

/** A file of rows, as `sluice ledger ship` writes it. */
function written(dir: string, rows: readonly LedgerRow[]): string {
  const file = join(dir, 'rows.ndjson')
  const lines = rows.map(({ cacheWrite, ...row }) => `${JSON.stringify({ ...row, cache_write: cacheWrite })}\n`)
  writeFileSync(file, lines.join(''))
  return file
}

async function command(t: TestContext, rows: readonly LedgerRow[], files: Files, ...args: string[]): Promise<Ran> {
  const { dir, file } = await setting(t, LIMITS)
  const ledger = written(dir, rows)
  const options = Object.entries(files).flatMap(([name, text]) => {
    const path = join(dir, `${name}.yaml`)
    writeFileSync(path, text)
    return [`--${name}`, path]
  })
  const ran = await sluice('replay', '--month', '2026-11', '--rows', ledger, ...options, ...args, file)
  return { ...ran, err: ran.err.replaceAll(`${dir}/`, '') }
}

const minute = (i: number) => ({ id: `req_${i}`, time: NOVEMBER + i * 60_000, input: 1000, output: 500, cap: 500 })
const TEN = Array.from({ length: 10 }, (_, i) => rowOf(minute(i), 500))

test('revenue, cost and margin, as they were and as they would be', async t => {
  const files = { prices: `prices:\n  ${MODEL}: { input: 2, output: 2 }\ncosts:\n  local/m: { input: 1, output: 1 }\n` }
  const { out, code } = await command(t, TEN, files, '--json')
  assert.equal(code, 0)
  const { before, after, refused, organizations, models } = JSON.parse(out)
  assert.deepEqual([before.requests, before.revenue, before.cost, before.margin], [10, 20_000_000, 10_000, 19_990_000])
  // 1500 tokens at 2 USD for the customer, at 1 USD for the provider.
  assert.deepEqual([after.requests, after.revenue, after.cost, after.margin], [10, 30_000_000, 15_000_000, 15_000_000])
  assert.equal(refused, 0)
  assert.deepEqual(organizations, [{ organization: 'demo', plan: 'own', before, after, refused: 0 }])
  assert.deepEqual(models, [{ model: MODEL, before, after, refused: 0 }])
})

test('a proposed cost counts for rows whose backend had none', async t => {
  const without = TEN.map(({ provider_cost: _, ...row }) => row) as LedgerRow[]
  const files = { prices: 'costs:\n  local/m: { input: 1, output: 4 }\n' }
  const { before, after } = JSON.parse((await command(t, without, files, '--json')).out)
  assert.deepEqual([before.cost, before.costed, before.margin], [0, 0, null])
  assert.deepEqual([after.cost, after.costed, after.margin], [30_000_000, 10, before.revenue - 30_000_000])
  const { out } = await command(t, without, files)
  assert.match(out, /^ *provider cost, USD +- +0\.03 +-$/m)
  assert.match(out, /^ *margin, USD +- +-0\.01 +-$/m)
  // No cost is proposed for the backend that served them.
  const others = without.map(row => ({ ...row, provider_model: 'other' }))
  assert.equal(JSON.parse((await command(t, others, files, '--json')).out).after.margin, null)
})

test('the text says what was refused, by what, when, and what rows do not tell', async t => {
  const files = { plans: 'plans:\n  own: { limits: { requests_per_day: 4 } }\n' }
  const { out } = await command(t, TEN, files)
  assert.match(out, /^2026-11-01T00:00:00Z to .*: 10 exchanges, 6 would have been refused$/m)
  assert.match(out, /^ *exchanges +10 +4 +-6$/m)
  assert.match(out, /^ *revenue, USD +0\.02 +0\.008 +-0\.012$/m)
  assert.match(
    out,
    /^ *requests_per_day of the organization +requests_limit_exceeded +6 +1 +0\.012 +2026-11-01T00:04:00Z +2026-11-01T00:09:00Z$/m,
  )
  assert.match(out, /^ *demo +own +10 +6 +0\.02 +0\.008/m)
  assert.match(out, /Who was refused then has no row/)
})

test('each refused exchange is a line of the file that --refusals names', async t => {
  const { dir } = folder(t)
  const lines = join(dir, 'refused.jsonl')
  await command(t, TEN, { plans: 'plans:\n  own: { limits: { requests_per_day: 9 } }\n' }, '--refusals', lines)
  const [line, ...more] = readFileSync(lines, 'utf8')
    .trim()
    .split('\n')
    .map(text => JSON.parse(text))
  assert.deepEqual(more, [])
  const { fits_at, ...rest } = line
  assert.deepEqual(rest, {
    ...{ time: '2026-11-01T00:09:00.000Z', request_id: 'req_9', organization: 'demo', key: 'key_demo', model: MODEL },
    ...{
      refused_by: { scope: 'organization', limit: 'requests_per_day', model: null },
      code: 'requests_limit_exceeded',
    },
    revenue: 2_000_000,
  })
  assert.ok(Date.parse(fits_at) > Date.parse(line.time))
})

test('what a row lacks is counted and said', async t => {
  const lacking: LedgerRow[] = [
    { ...TEN[0]!, organization: 'gone' },
    { ...TEN[1]!, key_id: 'key_gone' },
    { ...TEN[2]!, model: 'eb0' },
    (({ output_reserved: _, ...row }) => row)(TEN[3]!) as LedgerRow,
    (({ provider_cost: _, ...row }) => row)(TEN[4]!) as LedgerRow,
  ]
  const { out } = await command(t, lacking, {})
  for (const said of [
    'Of organizations that are gone: 1 exchange;',
    'Of keys that are gone: 1 exchange;',
    'Of models that are gone: 1 exchange;',
    'Of a release that did not write what was reserved: 1 exchange;',
    'Without a provider cost, as their backend had no `cost:`: 1 exchange;',
  ])
    assert.ok(out.includes(`- ${said}`), `${said}\n${out}`)
  const json = JSON.parse((await command(t, lacking, {}, '--json')).out)
  assert.deepEqual(json.not_told, { organizations: 1, keys: 1, models: 1, users: 0, reservations: 1 })
  assert.equal(json.before.margin, null)
  // Each row brings 2,000,000 nano-USD, and costs 1000.
  const { costed, costed_revenue, cost: provider } = json.before
  assert.deepEqual([costed, costed_revenue, provider], [4, 8_000_000, 4000])
  assert.match(out, /^ *with a provider cost +4 +4 +0$/m)
  assert.match(out, /^ *their margin, USD +0\.007996 +0\.00\d+ /m)
  assert.doesNotMatch((await command(t, TEN, {})).out, /their margin/)
})

test('a fault of a proposal names its place and the cure, and nothing is replayed', async t => {
  const cases: [Files, RegExp][] = [
    [
      { plans: 'plans:\n  own: { limits: { request_per_minute: 4 } }\n' },
      /^plans\.yaml:2:\d+ .*request_per_minute.*requests_per_minute/,
    ],
    [{ plans: 'plan:\n  own: {}\n' }, /^plans\.yaml:1:1 .*there is no section 'plan' here/],
    [{ plans: `prices:\n  ${MODEL}: { input: 1, output: 1 }\n` }, /it has neither plans nor organizations/],
    [{ plans: 'organizations:\n  demo: { plan: owm }\n' }, /^plans\.yaml:2:\d+ .*there is no plan 'owm'.*own/],
    [{ plans: 'organizations:\n  nobody: { plan: own }\n' }, /^plans\.yaml:2:3 .*there is no organization 'nobody'/],
    [{ plans: 'organizations:\n  demo: { keys: [] }\n' }, /keys of an organization stays as it is/],
    [{ plans: 'organizations:\n  demo: { billing: prepaid }\n' }, /none are proposed/],
    [{ prices: 'prices:\n  eb1-preveiw: { input: 1, output: 1 }\n' }, /^prices\.yaml:2:3 .*eb1-preview/],
    [{ prices: `prices:\n  ${MODEL}: { input: 1 }\n` }, /needs 'output'/],
    [{ prices: 'costs:\n  local/n: { input: 1, output: 1 }\n' }, /there is no backend 'local\/n'/],
  ]
  for (const [files, fault] of cases) {
    const { code, out, err } = await command(t, TEN, files)
    assert.deepEqual([code, out], [1, ''], err)
    assert.match(err, new RegExp(fault.source, 'm'))
  }
})

test('wrong arguments and files are refused with what to do', async t => {
  const { file, dir } = folder(t)
  const cases: [string[], number, RegExp][] = [
    [['--month', '2026-13'], 2, /2026-13 is no month/],
    [['--since', '2026-11-02', '--until', '2026-11-01'], 2, /ends before it begins/],
    [['--rows', join(dir, 'none.ndjson')], 1, /there is no .*none\.ndjson/],
    [['--rows', file], 1, /does not say what it holds/],
    [['--plans', join(dir, 'none.yaml'), '--rows', file], 1, /there is no such file; --plans names one/],
    [['--month', '2026-10'], 1, /in memory/],
  ]
  for (const [args, code, message] of cases) {
    const ran = await sluice('replay', ...args, file)
    assert.equal(ran.code, code, ran.err)
    assert.match(ran.err, message)
  }
})

// ---- accounts of the store, and what changes in time ------------------------------------------------------------------

const HOUR = 3_600_000
const stamp = (hour: number, input: number) =>
  rowOf({ id: `req_${hour}`, time: NOVEMBER + hour * HOUR, input, output: 0, cap: 1 }, 1)

/** A database beside the file, with the organizations; and rows in it where the test gives some. */
async function stored(
  t: TestContext,
  organizations: { id: string; settings: object; credits?: readonly { id: string; amount: number; time: number }[] }[],
): Promise<{ file: string; dir: string; database: string }> {
  const { dir, file, read } = folder(t, withPlan(LIMITS))
  const database = join(dir, 'gateway.db')
  // A balance takes only models whose requests have a highest cost.
  const bounded = read().replace('context_window: 400000', 'context_window: 400000, max_output_tokens: 4096')
  writeFileSync(file, bounded.replace('sqlite::memory:', `sqlite:${database}`))
  const { accounts, close } = await openAccounts(`sqlite:${database}`)
  const audit = { time: NOVEMBER, by: 'cli:test', address: '', operation: 'test', key: '', before: {}, after: {} }
  for (const { id, settings, credits = [] } of organizations) {
    const keys = [{ id: 'key_1', sha256: createHash('sha256').update(id).digest('hex'), settings: '{}' }]
    let credited = 0
    for (const credit of [undefined, ...credits]) {
      credited += credit?.amount ?? 0
      const change = {
        ...{ id, expected: (await accounts.read(id))?.version ?? 0, keys, audit },
        settings: JSON.stringify({ ...settings, ...(credited > 0 && { credited }) }),
        ...(credit && { credit: { by: 'cli:test', note: '', ...credit } }),
      }
      const [made] = await accounts.change([change])
      assert.ok(made && (await accounts.read(id)), JSON.stringify(made))
    }
  }
  await close()
  return { file, dir, database }
}

async function refusedOf(file: string, dir: string, rows: readonly LedgerRow[], ...args: string[]): Promise<string[]> {
  const ledger = written(dir, rows)
  const lines = join(dir, 'refused.jsonl')
  const ran = await sluice('replay', '--month', '2026-11', '--rows', ledger, '--refusals', lines, ...args, file)
  assert.equal(ran.code, 0, ran.err)
  return readFileSync(lines, 'utf8')
    .split('\n')
    .filter(line => line !== '')
    .map(line => JSON.parse(line))
    .map(({ request_id, refused_by: { scope, limit } }) => `${request_id} ${scope} ${limit}`)
}

test('organizations of the store have their limits, and a proposal changes them by plan and by id', async t => {
  const { file, dir } = await stored(t, [
    { id: 'corp', settings: { plan: 'own' } },
    { id: 'other', settings: { plan: 'own', limits: { requests_per_day: 1 } } },
  ])
  const of = (organization: string) =>
    [1, 2, 3].map(hour => ({ ...stamp(hour, 10), request_id: `${organization}${hour}`, organization, key_id: 'key_1' }))
  const rows = [...of('corp'), ...of('other')].toSorted((a, b) => a.time - b.time)
  assert.deepEqual(
    await refusedOf(file, dir, rows),
    ['other2', 'other3'].map(id => `${id} organization requests_per_day`),
  )
  const plans = join(dir, 'new.yaml')
  writeFileSync(
    plans,
    'plans: { own: { limits: { requests_per_day: 2 } } }\norganizations: { other: { limits: { requests_per_day: 3 } } }\n',
  )
  assert.deepEqual(await refusedOf(file, dir, rows, '--plans', plans), ['corp3 organization requests_per_day'])
})

test('a balance is what credits had brought by then, less what rows cost', async t => {
  // 1 USD per million tokens of input, and one token of output reserved.
  const usd = (amount: number) => amount * 1e9
  const { file, dir } = await stored(t, [
    {
      id: 'paid',
      settings: { plan: 'own', billing: 'prepaid' },
      credits: [
        { id: 'a', amount: usd(0.025), time: NOVEMBER },
        { id: 'b', amount: usd(0.01), time: NOVEMBER + 5 * HOUR },
      ],
    },
  ])
  const rows = [1, 2, 3, 4, 6, 7].map(hour => ({
    ...stamp(hour, 10_000),
    organization: 'paid',
    key_id: 'key_1',
    billing: 'prepaid',
  }))
  assert.deepEqual(await refusedOf(file, dir, rows as LedgerRow[]), [
    'req_3 organization balance',
    'req_4 organization balance',
    'req_7 organization balance',
  ])
})

test('a raise widens limits while it held, and the user of a tag has limits of his own', async t => {
  const { file, dir, read } = folder(
    t,
    withPlan({ requests_per_day: 2 })
      .replace(
        'plan: own\n',
        `plan: own\n    raises: [{ until: "2026-11-01T04:30:00Z", limits: { requests_per_day: 4 } }]\n`,
      )
      .replace('- admission', '- admission: { user: { from: header.x-user } }')
      .replace('- usage-capture', '- usage-capture: { tags: { user: { from: header.x-user } } }'),
  )
  const rows = [1, 2, 3, 4, 5, 6].map(hour => stamp(hour, 1))
  // Four fit until half past four; then two of a day, and four are taken.
  assert.deepEqual(await refusedOf(file, dir, rows), [
    'req_5 organization requests_per_day',
    'req_6 organization requests_per_day',
  ])
  writeFileSync(file, read().replace('status: active }', 'status: active, user_limits: { requests_per_day: 1 } }'))
  const ofUsers = rows.slice(0, 4).map((row, i) => ({ ...row, tags: JSON.stringify({ user: `user-${i % 3}` }) }))
  assert.deepEqual(await refusedOf(file, dir, ofUsers), ['req_4 user user_limits.requests_per_day'])
})

test('rows of the store itself, in order of time, and rows as `sluice usage --rows --csv` writes them', async t => {
  const { file, dir, database } = await stored(t, [])
  const db = new DatabaseSync(database)
  insertRows(db, TEN.toReversed())
  db.close()
  const plans = join(dir, 'new.yaml')
  writeFileSync(plans, 'plans: { own: { limits: { requests_per_day: 4 } } }\n')
  const args = ['replay', '--month', '2026-11', '--plans', plans, '--json']
  const { out, err } = await sluice(...args, file)
  const report = JSON.parse(out || `"${err}"`)
  assert.deepEqual(
    [report.before.requests, report.refused, report.refused_by[0].first],
    [10, 6, '2026-11-01T00:04:00.000Z'],
  )
  const csv = join(dir, 'rows.csv')
  const written: string[] = []
  const io = { out: { write: (text: string) => written.push(text) }, err: { write() {} }, now: () => NOVEMBER }
  assert.equal(await runUsage(['--rows', '--csv', '--month', '2026-11', '--store', `sqlite:${database}`], io), 0)
  writeFileSync(csv, written.join(''))
  const { until: _, ...same } = JSON.parse((await sluice(...args, '--rows', csv, file)).out)
  const { until: __, ...known } = report
  assert.deepEqual(same, known)
})
