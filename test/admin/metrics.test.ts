/**
 * /metrics: what it counts, that docs/metrics.md and deploy/ tell the truth about it, and that clients can't make it
 * grow.
 */
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { Pool } from 'undici'
import { parse as parseYaml } from 'yaml'
import { Metrics, type MetricsView } from '../../admin/metrics.ts'
import { ZERO_USAGE } from '../../core/canon/events.ts'
import { defaultYaml, KEY, startGateway, type TestGateway } from '../e2e/harness.ts'
import { findProgram } from '../ensure-deps.ts'
import { eventually } from '../eventually.ts'
import { TableClock } from '../faults/table.ts'
import { type Family, scrape, series, value } from './exposition.ts'
import { LIMITS, request } from './load.ts'

const promtool = findProgram(['promtool'])
const file = (path: string) => readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8')
const ask = (content: string, more: object = {}) => ({
  model: 'eb1-preview',
  messages: [{ role: 'user', content }],
  ...more,
})

let g: TestGateway
let families: Map<string, Family>
before(async () => {
  // With accounts in the store, each of very many bad keys is looked up.
  const options = { organization: LIMITS, extra: 'directory: { misses: 100000 }' }
  const slows = 'runaway: { slow_repeats: 1, slow_usd: 0, delay: 1ms }'
  g = await startGateway({ yaml: url => defaultYaml(url, options).replace('web-search,', `${slows}, $&`) })
  for (let i = 0; i < 4; i++) await g.post('/v1/chat/completions', ask('the same'))
  for (let i = 0; i < 20; i++) await request(g, i)
  // A limit of every sort must have denied once: 200,001 tokens never fit a minute of 200,000.
  await g.post('/v1/chat/completions', ask('x', { max_tokens: 120_000 }))
  await eventually(() => g.gateway.ingress.running.size === 0)
  await g.gateway.store.accounts.change([{ id: 'gone', expected: 0, settings: '{"plan":"gold"}', keys: [] }])
  // The gateway notices within a second that its store has accounts.
  await eventually(async () => {
    families = await scrape(g)
    return families.get('sluice_accounts')!.samples.length > 0
  })
})
after(() => g.close())

/** Labels that a scrape and a histogram bring along. */
const IMPLIED = new Set(['instance', 'job', 'le'])

interface Documented {
  type: string
  labels: string[]
}
function documented(): Map<string, Documented> {
  const rows = file('docs/metrics.md').matchAll(/^\| `(sluice_\w+)` \| (\w+) \| ([^|]*)\|/gm)
  return new Map(
    [...rows].map(([, name, type, labels]) => [
      name!,
      { type: type!, labels: [...labels!.matchAll(/`(\w+)`/g)].map(found => found[1]!).sort() },
    ]),
  )
}

test('docs/metrics.md lists every metric with its type and labels, and none that is not there', () => {
  const real = [...families.values()].filter(({ name }) => name.startsWith('sluice_'))
  const told = documented()
  assert.deepEqual([...told.keys()].sort(), real.map(({ name }) => name).sort())
  for (const { name, type, help, samples } of real) {
    assert.equal(told.get(name)!.type, type, name)
    assert.ok(help.length > 5 && help.endsWith('.'), name)
    assert.ok(samples.length > 0, `${name} has a sample here, so that its labels can be looked at`)
    const labels = new Set(samples.flatMap(sample => Object.keys(sample.labels)).filter(label => label !== 'le'))
    assert.deepEqual([...labels].sort(), told.get(name)!.labels, name)
    if (type === 'counter') assert.match(name, /_total$/)
    else assert.doesNotMatch(name, /_total$/)
  }
})

/** Metric names and the labels used with each in an expression. Enough of PromQL for the two files. */
function uses(expression: string): { name: string; labels: string[] }[] {
  const found: { name: string; labels: string[] }[] = []
  const grouped = [...expression.matchAll(/\b(?:by|without|on|ignoring)\s*\(([^)]*)\)/g)].flatMap(m =>
    m[1]!.split(',').map(label => label.trim()),
  )
  const bare = expression.replace(/\b(by|without|on|ignoring)\s*\([^)]*\)/g, ' ').replace(/\[[^\]]*\]/g, ' ')
  for (const [, name, matchers = ''] of bare.matchAll(/\b([a-zA-Z_:][\w:]*)\s*(?:\{([^}]*)\})?(?!\w*\s*\()/g)) {
    if (/^(and|or|unless|bool|offset|Inf|NaN)$/.test(name!) || /^\d/.test(name!)) continue
    const at = bare.indexOf(name!)
    if (
      bare
        .slice(at + name!.length)
        .trimStart()
        .startsWith('(')
    )
      continue
    const own = [...matchers.matchAll(/(\w+)\s*(?:=~|!~|!=|=)/g)].map(m => m[1]!)
    found.push({ name: name!, labels: [...own, ...grouped] })
  }
  return found
}

interface Rule {
  alert?: string
  record?: string
  expr: string
  labels?: Record<string, string>
  annotations?: Record<string, string>
}
const RULES: Rule[] = ['alerts', 'slo'].flatMap(name =>
  parseYaml(file(`deploy/prometheus/${name}.yml`)).groups.flatMap((group: { rules: Rule[] }) => group.rules),
)
/**
 * Labels of each recorded series: those that its first aggregation keeps, or that the first recorded series has of which
 * it is made; and those that the rule adds.
 */
const RECORDED = new Map<string, Set<string>>()
for (const { record, expr, labels = {} } of RULES) {
  if (record === undefined) continue
  const kept = /\bby \(([^)]*)\)/.exec(expr)?.[1]?.split(/,\s*/)
  const from = RECORDED.get(/sluice:[\w:]+/.exec(expr)?.[0] ?? '') ?? []
  RECORDED.set(record, new Set([...(kept ?? from), ...Object.keys(labels)]))
}

function checkExpression(where: string, expression: string): string[] {
  const names: string[] = []
  for (const { name, labels } of uses(expression)) {
    if (name === 'up') {
      names.push(name)
      continue
    }
    const family = families.get(name) ?? families.get(name.replace(/_(bucket|sum|count)$/, ''))
    const real = RECORDED.get(name) ?? new Set(family?.samples.flatMap(sample => Object.keys(sample.labels)))
    assert.ok(family || RECORDED.has(name), `${where}: there is no metric ${name}`)
    for (const label of labels)
      assert.ok(real.has(label) || IMPLIED.has(label), `${where}: ${name} has no label ${label}`)
    for (const [, label, values] of expression.matchAll(/(\w+)=~?"([\w|.-]+)"/g)) {
      if (label === 'outcome')
        for (const word of values!.split('|')) assert.match(file('docs/ledger.md'), new RegExp(`\`${word}\``), where)
    }
    names.push(name)
  }
  assert.ok(names.length > 0, `${where}: no metric in ${expression}`)
  return names
}

test('the reader of expressions finds what is wrong in one', () => {
  for (const wrong of [
    'sum(rate(sluice_exchange_total[5m]))',
    'sluice_exchanges_total{code="x"}',
    'sum by (plugin) (rate(sluice_exchanges_total[5m]))',
    'histogram_quantile(0.5, sum by (le) (rate(sluice_exchange_duration_bucket[5m])))',
    '1 + 2',
  ])
    assert.throws(() => checkExpression('here', wrong), assert.AssertionError, wrong)
  assert.deepEqual(
    checkExpression('here', 'sum by (instance, route) (rate(sluice_exchanges_total{outcome=~"refused"}[5m])) / 2 > 0'),
    ['sluice_exchanges_total'],
  )
  assert.deepEqual(checkExpression('here', 'sluice_open_streams and sluice_open_exchanges > 0'), [
    'sluice_open_streams',
    'sluice_open_exchanges',
  ])
})

test('deploy/prometheus: every alert’s expression names real metrics and labels, and its texts only labels that it has', () => {
  assert.ok(RULES.filter(({ alert }) => alert !== undefined).length >= 10)
  for (const { alert, record, expr, labels, annotations } of RULES) {
    if (alert === undefined) {
      if (!expr.startsWith('vector(')) checkExpression(record!, expr)
      continue
    }
    assert.match(alert, /^Sluice[A-Z]\w+$/)
    const names = checkExpression(alert, expr)
    assert.match(labels!['severity']!, /^(critical|warning)$/)
    assert.ok(annotations!['summary'] && annotations!['action'], alert)
    const grouped = /by \(([^)]*)\)/
      .exec(expr)?.[1]
      ?.split(',')
      .map(label => label.trim())
    for (const [, label] of `${annotations!['summary']} ${annotations!['action']}`.matchAll(/\$labels\.(\w+)/g)) {
      const of = grouped ?? [
        ...IMPLIED,
        ...names.flatMap(name => families.get(name)?.samples.flatMap(sample => Object.keys(sample.labels)) ?? []),
        ...names.flatMap(name => [...(RECORDED.get(name) ?? [])]),
      ]
      assert.ok(of.includes(label!), `${alert} names $labels.${label}`)
    }
  }
})

for (const [name, expected] of [
  ['sluice', 25],
  ['objectives', 20],
] as const)
  test(`deploy/grafana/${name}.json: every panel’s expression names real metrics and labels; panels do not overlap`, () =>
    checkDashboard(JSON.parse(file(`deploy/grafana/${name}.json`)), expected))

function checkDashboard(dashboard: any, expected: number): void {
  const taken = new Set<string>()
  let expressions = 0
  const ids = new Set<number>()
  for (const panel of dashboard.panels) {
    assert.ok(!ids.has(panel.id))
    ids.add(panel.id)
    const { x, y, w, h } = panel.gridPos
    assert.ok(x + w <= 24)
    for (let i = x; i < x + w; i++)
      for (let j = y; j < y + h; j++) {
        assert.ok(!taken.has(`${i} ${j}`), panel.title)
        taken.add(`${i} ${j}`)
      }
    for (const { expr, legendFormat } of panel.targets ?? []) {
      expressions++
      checkExpression(panel.title, expr.replaceAll('$__rate_interval', '1m'))
      for (const [, label] of legendFormat.matchAll(/\{\{(\w+)\}\}/g))
        assert.ok(RECORDED.get(expr)?.has(label!) || new RegExp(`by \\([^)]*\\b${label}\\b`).test(expr), panel.title)
    }
  }
  assert.ok(expressions >= expected)
  for (const { expr } of dashboard.annotations.list) checkExpression('annotation', expr)
  assert.match(dashboard.templating.list[1].query.query, /sluice_info, instance/)
}

test('promtool’s linter finds nothing in /metrics', {
  skip: promtool ? false : 'promtool is not installed: apt-get install -y prometheus',
}, async () => {
  const input = await (await fetch(`${g.gateway.adminAddress}/metrics`)).text()
  const checked = spawnSync(promtool!, ['check', 'metrics'], { input, encoding: 'utf8' })
  assert.deepEqual([checked.status, checked.stdout + checked.stderr], [0, ''])
})

test('accounts have at most fifty series of each kind, and the others are added up', async () => {
  const names = Array.from({ length: 60 }, (_, i) => ({
    kind: i % 6 === 0 ? ('model' as const) : ('plan' as const),
    name: `n${i}`,
    organizations: i + 1,
    standing: 'gone' as const,
  }))
  const plans = Array.from({ length: 60 }, (_, i) => ({ ...names[1]!, name: `p${i}`, organizations: 100 + i }))
  const metrics = new Metrics()
  const accounts = { named: async () => [...names, ...plans] }
  metrics.expose({ facts: {}, accounts, budgets: [] } as unknown as MetricsView)
  try {
    const { values } = await metrics.registry.getSingleMetric('sluice_accounts')!.get()
    const total = [...names, ...plans]
      .filter(({ kind }) => kind === 'plan')
      .reduce((sum, of) => sum + of.organizations, 0)
    assert.equal(values.length, 51)
    assert.deepEqual([values[0]!.labels['plan'], values[50]!.labels['plan']], ['p59', '(others)'])
    assert.equal(
      values.reduce((sum, { value }) => sum + value, 0),
      total,
    )
    const left = (await metrics.registry.getSingleMetric('sluice_accounts_left_behind')!.get()).values
    assert.deepEqual([left.filter(({ labels }) => labels['kind'] === 'model').length, left.length], [10, 61])
  } finally {
    metrics.close()
  }
})

test('exchanges are told apart by route, model, status and outcome, tokens and money by model', async () => {
  const metrics = new Metrics()
  metrics.expose({ facts: {}, budgets: [] } as unknown as MetricsView)
  try {
    const usage = { ...ZERO_USAGE, input: 100, cached: 40, output: 20 }
    const end = (route: string, model: string, status: number, outcome: string, cost = 0) =>
      metrics.observe({ route, model, status, outcome, durationMs: 30, ttfbMs: 10, cost }, cost > 0 ? usage : undefined)
    for (const cost of [2e9, 3e9]) end('POST /a', 'x', 200, 'completed', cost)
    end('POST /a', 'x', 200, 'client_gone', 1e9)
    end('POST /a', 'x', 502, 'upstream_error')
    end('POST /a', 'x', 503, 'upstream_error')
    end('POST /a', 'y', 200, 'completed')
    end('POST /b', 'x', 200, 'completed')
    const shown = async (name: string) => {
      const { values } = await metrics.registry.getSingleMetric(name)!.get()
      return values.map(({ labels, value }) => [...Object.values(labels), value])
    }
    assert.deepEqual(await shown('sluice_exchanges_total'), [
      ['POST /a', 'x', '200', 'completed', 2],
      ['POST /a', 'x', '200', 'client_gone', 1],
      ['POST /a', 'x', '502', 'upstream_error', 1],
      ['POST /a', 'x', '503', 'upstream_error', 1],
      ['POST /a', 'y', '200', 'completed', 1],
      ['POST /b', 'x', '200', 'completed', 1],
    ])
    // What is zero has no series.
    assert.deepEqual(await shown('sluice_tokens_total'), [
      ['x', 'input', 300],
      ['x', 'output', 60],
      ['x', 'cached', 120],
    ])
    assert.deepEqual(await shown('sluice_spend_usd_total'), [['x', 6]])
    assert.deepEqual([metrics.exchangesOf('POST /a'), metrics.exchangesOf('POST /b')], [6, 1])
  } finally {
    metrics.close()
  }
})

test('backends, limits, plugins, store and configuration: the figures are right', async () => {
  const clock = new TableClock()
  const loadedAt = clock.now()
  const t = await startGateway({
    gateway: { clock },
    organization: '    limits: { requests_per_minute: 6, concurrent_requests: 1 }',
    plugins: { upstream: '{ breaker: { failures: 2, open_for: 60s } }' },
    models: `  eb1-preview: { context_window: 400000, price: { input: 1.25, output: 10.00 }, backends: [{ provider: chat, model: a, weight: 1 }, { provider: responses, model: b, weight: 1 }] }`,
  })
  try {
    assert.equal(
      value(await scrape(t), 'sluice_backend_attempts_total'),
      undefined,
      'a backend is listed from its first request on',
    )
    // Both backends fail: one retry each time, until the breakers are open.
    for (let i = 0; i < 3; i++) await (await t.post('/v1/chat/completions', ask('[[sim: status 503]] x'))).text()
    let now = await scrape(t)
    const attempts = now.get('sluice_backend_attempts_total')!.samples.reduce((sum, sample) => sum + sample.value, 0)
    assert.equal(attempts, 4)
    assert.equal(
      now.get('sluice_backend_failures_total')!.samples.reduce((sum, sample) => sum + sample.value, 0),
      4,
    )
    assert.equal(value(now, 'sluice_upstream_retries_total'), 2)
    for (const backend of ['chat/a', 'responses/b'])
      assert.equal(value(now, 'sluice_backend_attempt_failures_total', { backend, code: 'provider_unavailable' }), 2)
    for (const reason of ['lag', 'in_flight']) assert.equal(value(now, 'sluice_shed_total', { reason }), 0)
    for (const backend of ['chat/a', 'responses/b']) {
      assert.equal(value(now, 'sluice_backend_breaker_state', { backend, state: 'open' }), 1)
      assert.equal(value(now, 'sluice_backend_breaker_state', { backend, state: 'closed' }), 0)
      assert.equal(value(now, 'sluice_backend_error_rate', { backend }), 1)
      assert.equal(value(now, 'sluice_backend_in_flight', { backend }), 0)
    }
    // Three of six requests of the minute are left.
    for (let i = 0; i < 5; i++) await (await t.post('/v1/chat/completions', ask('x'))).text()
    now = await scrape(t)
    assert.equal(value(now, 'sluice_limit_denials_total', { dimension: 'requests' }), 2)
    assert.equal(
      value(now, 'sluice_limit_denials_total', { dimension: 'platform' }),
      undefined,
      'an upstream’s capacity is not ours',
    )
    assert.equal(value(now, 'sluice_plugin_refusals_total', { plugin: 'admission' }), 2)
    const calls = value(now, 'sluice_plugin_calls_total', { pipeline: 'completions', plugin: 'auth' })!
    assert.equal(calls, 8)
    assert.equal(value(now, 'sluice_plugin_calls_total', { pipeline: 'completions', plugin: 'upstream' }), 6)
    assert.deepEqual(
      ['sluice_config_generation', 'sluice_config_last_reload_ok', 'sluice_store_up', 'sluice_ledger_open_rows'].map(
        name => value(now, name),
      ),
      [0, 1, 1, 0],
    )
    assert.equal(value(now, 'sluice_config_loaded_timestamp_seconds'), loadedAt / 1000)

    // Counters go on over a reload; the state of a refused one shows.
    const { writeFile, readFile } = await import('node:fs/promises')
    await writeFile(t.file, `${await readFile(t.file, 'utf8')}\nplans: { another: {} }\n`)
    assert.equal((await t.gateway.reload()).applied, true)
    now = await scrape(t)
    assert.equal(value(now, 'sluice_plugin_calls_total', { pipeline: 'completions', plugin: 'auth' }), calls)
    assert.equal(value(now, 'sluice_config_generation'), 1)
    const right = await readFile(t.file, 'utf8')
    await writeFile(t.file, right.replace('version: 2', 'version: 3'))
    await t.gateway.reload()
    now = await scrape(t)
    assert.deepEqual(
      [
        value(now, 'sluice_config_last_reload_ok'),
        value(now, 'sluice_config_generation'),
        value(now, 'sluice_config_reloads_total', { result: 'refused' }),
      ],
      [0, 1, 1],
    )
    await writeFile(t.file, right)
    await t.gateway.reload()
    assert.equal(value(await scrape(t), 'sluice_config_last_reload_ok'), 1)

    await (await fetch(`${t.url}/v1/nothing`)).text()
    assert.equal(value(await scrape(t), 'sluice_refused_total', { route: '', code: 'not_found' }), 1)

    t.gateway.store.ready = () => Promise.reject(new Error('secret reason'))
    now = await scrape(t)
    assert.equal(value(now, 'sluice_store_up'), 0)
    assert.doesNotMatch(series(now).join('\n'), /secret/)
  } finally {
    await t.close()
  }
})

test('open streams, in flight, journal and ledger while an exchange runs', async () => {
  const { rm } = await import('node:fs/promises')
  const path = `${g.file}.db`
  const t = await startGateway({
    yaml: url => file('test/admin/fixtures/file-store.yaml').replaceAll('$URL', url).replaceAll('$DB', path),
  })
  try {
    const open = await t.post('/v1/chat/completions', ask('[[sim: stall 3]] x', { stream: true }))
    let now = await scrape(t)
    assert.deepEqual(
      [
        'sluice_open_streams',
        'sluice_open_exchanges',
        'sluice_ledger_open_rows',
        'sluice_journal_segments',
        'sluice_backend_in_flight',
        'sluice_provider_in_flight',
        'sluice_provider_capacity',
        'sluice_provider_queued',
      ].map(name => value(now, name)),
      [1, 1, 1, 1, 1, 1, 3, 0],
    )
    await open.body!.cancel()
    await eventually(() => t.gateway.ingress.running.size === 0)
    await t.gateway.store.ledger.flush()
    now = await scrape(t)
    assert.deepEqual(
      ['sluice_open_streams', 'sluice_ledger_open_rows', 'sluice_ledger_pending_rows', 'sluice_backend_in_flight'].map(
        name => value(now, name),
      ),
      [0, 0, 0, 0],
    )
  } finally {
    await t.close()
    for (const suffix of ['', '-wal', '-shm', '.lock', '.journal'])
      await rm(path + suffix, { recursive: true, force: true })
  }
})

test('ten thousand bad models and ten thousand bad keys make no series', { timeout: 300_000 }, async () => {
  const pool = new Pool(g.url, { connections: 32, pipelining: 1 })
  const send = async (model: string, key: string): Promise<void> => {
    const { body } = await pool.request({
      path: '/v1/chat/completions',
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${key}` },
      body: JSON.stringify(ask('x', { model })),
    })
    await body.dump()
  }
  const ours = (all: string[]) => all.filter(name => name.startsWith('sluice_'))
  try {
    await send('seriesbad', KEY)
    await send('eb1-preview', 'sk-seriesbad')
    await eventually(() => g.gateway.ingress.running.size === 0)
    const before = ours(series(await scrape(g)))
    for (let i = 0; i < 10_000; i += 50) {
      await Promise.all(
        Array.from({ length: 50 }, (_, j) => [
          send(`bad-${i + j}`, KEY),
          send('eb1-preview', `sk-bad-${i + j}`),
        ]).flat(),
      )
    }
    await eventually(() => g.gateway.ingress.running.size === 0)
    const now = await scrape(g)
    assert.deepEqual(ours(series(now)), before)
    assert.ok(before.length < 720, `${before.length} series`)
    assert.doesNotMatch(series(now).join('\n'), /bad-|sk-/)
    assert.ok(value(now, 'sluice_refused_total', { code: 'model_not_found' })! >= 10_000)
    assert.ok(value(now, 'sluice_refused_total', { code: 'invalid_api_key' })! >= 10_000)
  } finally {
    await pool.close()
  }
})

/** A pipeline of the default configuration without admission, by name. */
const unlimited = `[auth, validation, model-access, conversation, token-estimate, web-search, media, routing, translation, { upstream: { unlimited: true } }]`

// A chain without admission served everybody for nothing, and no figure told it.
test('exchanges that were served without a ledger row are counted, by pipeline and cause', async () => {
  const reservation = `import { definePlugin, slot } from 'sluice'
const reservation = slot('reservation')
export default definePlugin({
  name: 'budget',
  summary: 'Fills the slot, and does nothing of what the slot stands for.',
  provides: [reservation],
  create: () => ({ onRequest(x) { x.set(reservation, { cells: [], states: [], input: 0, output: 0, cost: 0 }) } }),
})
`
  const folder = mkdtempSync(join(tmpdir(), 'sluice-rows-'))
  const plugin = join(folder, 'budget.js')
  writeFileSync(plugin, reservation)
  const own = await startGateway({
    yaml: url =>
      defaultYaml(url, { extra: `plugins: [${JSON.stringify(plugin)}]` })
        .replace(
          'pipelines:\n',
          `pipelines:\n  free: ${unlimited}\n  own: ${unlimited.replace('{ upstream: { unlimited: true } }', 'budget, upstream')}\n`,
        )
        .replace(
          'routes:\n',
          'routes:\n  - { match: POST /free, surface: chat, pipeline: free }\n  - { match: POST /own, surface: chat, pipeline: own }\n',
        ),
  })
  try {
    const counts = async () => {
      const found = (await scrape(own)).get('sluice_exchanges_without_row_total')!.samples
      return Object.fromEntries(found.map(({ labels, value }) => [`${labels['pipeline']} ${labels['cause']}`, value]))
    }
    // Each has a sample before its first exchange: Prometheus sees no increase in a series that begins with 1.
    assert.deepEqual(await counts(), { 'completions fault': 0, 'free unlimited': 0, 'own fault': 0 })
    const send = async (path: string, body: object) => {
      const reply = await own.post(path, body)
      await reply.text()
      return reply.status
    }
    for (const path of ['/v1/chat/completions', '/free', '/own'])
      assert.equal(await send(path, ask('hello')), 200, path)
    assert.equal(await send('/free', ask('hello', { stream: true })), 200)
    // Refused above the terminal, so nothing was spent.
    assert.equal(await send('/free', ask('hello', { model: 'unheard-of' })), 404)
    await eventually(() => own.gateway.ingress.running.size === 0)
    assert.deepEqual(await counts(), { 'completions fault': 0, 'free unlimited': 2, 'own fault': 1 })
    assert.equal((await own.ledger()).length, 1)
  } finally {
    await own.close()
    rmSync(folder, { recursive: true })
  }
})
