/**
 * A pipeline without admission, or with admission below the terminal, loaded: `check --strict` called it good, and then
 * there were no limits, no spend cap and no ledger row for anybody, and nothing told it. With admission above
 * token-estimate it counted every prompt as one of no tokens. A test of single orders would miss the next such order, so
 * this one takes each plugin of the reference pipelines away and moves it to each other place: either the file does not
 * load, or limits hold and rows are written.
 */
import assert from 'node:assert/strict'
import { readFile, writeFile } from 'node:fs/promises'
import { test } from 'node:test'
import { ENTRIES, sha256, startGateway, stillClock } from '../e2e/harness.ts'
import { startFakeUpstream } from '../fake-upstream/server.ts'
import { lines, loadText } from './load-text.ts'

/** The list without one entry, and with one entry at each other place; each order once. */
function variants(list: readonly string[]): string[][] {
  const orders = new Map<string, string[]>()
  const add = (order: string[]) => orders.set(order.join(), order)
  for (const [i, entry] of list.entries()) {
    const rest = list.filter((_, j) => j !== i)
    add(rest)
    for (let place = 0; place <= rest.length; place++) add(rest.toSpliced(place, 0, entry))
  }
  return [...orders.values()]
}

/** The orders that load. */
async function loading(orders: string[][], text: (order: string[]) => string): Promise<string[][]> {
  const good: string[][] = []
  for (const order of orders) {
    const { errors } = await loadText(text(order))
    if (!errors) good.push(order)
    else assert.match(lines(errors)[0]!, /^gateway\.yaml:\d+:\d+ {2}/)
  }
  return good
}

const pipeline = (order: readonly string[]) => `[${order.join(', ')}]`
const organization = (name: string, limits: string) =>
  `  ${name}: { plan: custom, limits: { ${limits} }, keys: [{ id: k-${name}, sha256: "${sha256(`sk-${name}`)}", status: active }] }`

const models = (url: string) => `providers:
  local: { dialect: openai-chat, base_url: "${url}" }
models:
  m: { context_window: 1000, price: { input: 1000, output: 1000 }, backends: [{ provider: local, model: sim-small }] }
`

test('completions: whatever is taken away or moved, limits and ledger hold or the file does not load', async () => {
  const alone = (order: string[]) =>
    `version: 2\npipelines: { p: ${pipeline(order)} }\nroutes: [{ match: POST /p, surface: chat, pipeline: p }]\n${models('simulator')}`
  const orders = variants(ENTRIES)
  const good = await loading(orders, alone)
  // Most orders are refused; some that are harmless are not.
  assert.ok(good.length > 20 && good.length < orders.length / 2, `${good.length} of ${orders.length}`)
  assert.ok(good.every(order => order.includes('admission') && order.includes('usage-capture')))

  const t = await startGateway({
    yaml: url => `version: 2
server: { listen: 127.0.0.1:0, admin: 127.0.0.1:0 }
store: "sqlite::memory:"
pipelines:
${good.map((order, i) => `  p${i}: ${pipeline(order)}`).join('\n')}
routes:
${good.map((_, i) => `  - { match: POST /p${i}, surface: chat, pipeline: p${i} }`).join('\n')}
organizations:
${good
  .flatMap((_, i) => [
    organization(`requests${i}`, 'requests_per_minute: 1'),
    organization(`tokens${i}`, 'input_tokens_per_day: 60'),
    organization(`spend${i}`, 'max_request_usd: 0.01'),
  ])
  .join('\n')}
${models(url)}`,
    gateway: { clock: stillClock() },
  })
  try {
    const body = { model: 'm', max_tokens: 400, messages: [{ role: 'user', content: 'one two three '.repeat(16) }] }
    const statuses = async (i: number, who: string, times: number) => {
      const got: number[] = []
      for (let n = 0; n < times; n++) {
        const reply = await t.post(`/p${i}`, body, { authorization: `Bearer sk-${who}${i}` })
        await reply.text()
        got.push(reply.status)
      }
      return got
    }
    for (const [i, order] of good.entries()) {
      const seen = {
        requests: await statuses(i, 'requests', 2),
        tokens: await statuses(i, 'tokens', 2),
        spend: await statuses(i, 'spend', 1),
      }
      assert.deepEqual(seen, { requests: [200, 429], tokens: [200, 429], spend: [429] }, order.join(', '))
    }
    const rows = await t.ledger()
    for (const [i, order] of good.entries()) {
      const own = rows.filter(row => row.organization === `requests${i}` || row.organization === `tokens${i}`)
      assert.deepEqual(
        own.map(row => [row.outcome, row.model, row.input > 40, row.cost > 0]),
        Array(2).fill(['completed', 'm', true, true]),
        order.join(', '),
      )
    }
  } finally {
    await t.close()
  }
})

test('proxy with a credential: whatever is taken away or moved, limits and ledger hold or the file does not load', async () => {
  const target = await startFakeUpstream(turn => turn.answer(200, {}))
  const list = [
    'auth',
    'admission',
    `{ proxy: { target: "${target.url}", api_key: target-key } }`,
    'usage-capture',
    'header-stamp',
  ]
  const good = await loading(
    variants(list),
    order => `version: 2\npipelines: { p: ${pipeline(order)} }\nroutes: [{ match: POST /p, pipeline: p }]\n`,
  )
  assert.ok(good.length > 3)
  const t = await startGateway({
    yaml: () => `version: 2
server: { listen: 127.0.0.1:0, admin: 127.0.0.1:0 }
store: "sqlite::memory:"
pipelines:
${good.map((order, i) => `  p${i}: ${pipeline(order)}`).join('\n')}
routes:
${good.map((_, i) => `  - { match: POST /p${i}, pipeline: p${i} }`).join('\n')}
organizations:
${good.map((_, i) => organization(`requests${i}`, 'requests_per_minute: 1')).join('\n')}
`,
    gateway: { clock: stillClock() },
  })
  try {
    for (const [i, order] of good.entries()) {
      const headers = { authorization: `Bearer sk-requests${i}` }
      const statuses = [(await t.post(`/p${i}`, {}, headers)).status, (await t.post(`/p${i}`, {}, headers)).status]
      assert.deepEqual(statuses, [200, 429], order.join(', '))
      assert.equal((await t.post(`/p${i}`, {}, { authorization: '' })).status, 401, order.join(', '))
    }
    const rows = await t.ledger()
    assert.equal(rows.length, good.length)
  } finally {
    await t.close()
    await target.close()
  }
})

test('a reload that would give everything away is refused, and the former chain limits on', async () => {
  const t = await startGateway({
    organization: '    limits: { requests_per_minute: 1 }',
    gateway: { clock: stillClock() },
  })
  try {
    const good = await readFile(t.file, 'utf8')
    await writeFile(t.file, good.replace(' admission,', ''))
    const { applied, errors } = await t.gateway.reload()
    assert.equal(applied, false)
    assert.match(
      lines(errors).join('\n'),
      /upstream serves without limits.*Add admission above, or say unlimited: true$/,
    )
    const statuses: number[] = []
    for (let i = 0; i < 2; i++) {
      const reply = await t.post('/v1/chat/completions', {
        model: 'eb1-preview',
        messages: [{ role: 'user', content: 'x' }],
      })
      await reply.text()
      statuses.push(reply.status)
    }
    assert.deepEqual(statuses, [200, 429])
  } finally {
    await t.close()
  }
})
