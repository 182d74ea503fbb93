import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import path from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { test } from 'node:test'
import { runUsage } from '../../cli/usage-report.ts'
import { openStore } from '../../stores/index.ts'
import { intent, options, outcome, PROVIDER_SIDE, T0, temporary } from './kit.ts'
import { RedisServer, skipWithoutRedis } from './redis-server.ts'

async function run(...args: string[]): Promise<{ code: number; out: string; err: string }> {
  let out = ''
  let err = ''
  const code = await runUsage(args, {
    out: { write: (text: string) => (out += text), columns: 80 },
    err: { write: (text: string) => (err += text) },
    now: () => T0 + 3_600_000,
  })
  return { code, out, err }
}

async function fill(url: string): Promise<void> {
  const store = await openStore(options(url, { dataDir: temporary() }))
  const add = (id: string, more: object, cost: number, gone = false) => {
    store.ledger.intent(intent(id, more))
    store.ledger.outcome(outcome(id, { ...PROVIDER_SIDE, cost, outcome: gone ? 'client_gone' : 'completed' }))
  }
  add('r1', { organization: 'acme', model: 'eb1-preview' }, 1_500_000_000)
  add('r2', { organization: 'acme', model: 'eb1-preview', key_id: 'key_2' }, 500_000)
  add('r3', { organization: 'acme', model: 'eb1-fast-preview', time: T0 + 1 }, 7)
  add(
    'r4',
    { organization: 'an-organization-with-a-very-long-name-indeed', model: 'eb1-efficient-preview' },
    123_456_789_012,
    true,
  )
  add('r5', { organization: 'acme', model: 'eb1-preview', time: T0 - 40 * 86_400_000 }, 99)
  await store.ledger.flush()
  await store.close()
}

/** What each row of `fill` has of the provider's side, in the order of the columns. */
const SIDE = {
  provider_input: 150,
  provider_cached: 21,
  provider_cache_write: 11,
  provider_cache_write_1h: 4,
  provider_output: 33,
  provider_reasoning: 6,
  provider_cost: 212_500,
  counted_input: 120,
  counted_output: 31,
  costed: 1,
}

async function check(url: string): Promise<void> {
  const table = await run('--store', url)
  assert.equal(table.code, 0, table.err)
  const lines = table.out.trimEnd().split('\n')
  assert.ok(
    lines.every(line => line.length <= 80),
    table.out,
  )
  assert.equal(lines.length, 5)
  assert.match(lines[0]!, /^organization +model +requests +input +output +USD$/)
  assert.match(lines[2]!, /^acme +eb1-preview +2 +240 +60 +1\.5005$/)
  assert.match(lines[3]!, /^an-organization-with-.*… eb1-efficient-preview +1 +120 +30 +123\.456789$/)
  assert.match(lines[4]!, /^total +4 +480 +120 +124\.957289$/)
  const short = await run('--store', url, '--group-by', 'model')
  assert.match(short.out.split('\n')[0]!, /^model +requests +input +cached +output +reasoning +USD$/)

  const both = await run('--store', url, '--by', 'backend')
  assert.equal(
    both.out,
    [
      'backend         requests    revenue    cost     margin input± output±\n',
      'local/sim-large        4 124.957289 0.00085 124.956439 +25.0%   +6.5%\n',
    ].join(''),
  )
  const json = await run('--store', url, '--group-by', 'key', '--org', 'acme', '--json')
  assert.deepEqual(JSON.parse(json.out), [
    {
      key: 'key_2',
      requests: 1,
      input: 120,
      cached: 20,
      cache_write: 10,
      output: 30,
      reasoning: 5,
      searches: 1,
      cost: 500_000,
      ...SIDE,
    },
    {
      key: 'key_ci',
      requests: 2,
      input: 240,
      cached: 40,
      cache_write: 20,
      output: 60,
      reasoning: 10,
      searches: 2,
      cost: 1_500_000_007,
      ...Object.fromEntries(Object.entries(SIDE).map(([name, value]) => [name, 2 * value])),
    },
  ])
  const csv = await run('--store', url, '--group-by', 'outcome,day', '--csv', '--since', '7d')
  assert.equal(
    csv.out,
    [
      `outcome,day,requests,input,cached,cache_write,output,reasoning,searches,cost,${Object.keys(SIDE)}\n`,
      `client_gone,2026-11-21,1,120,20,10,30,5,1,123456789012,${Object.values(SIDE)}\n`,
      `completed,2026-11-21,3,360,60,30,90,15,3,1500500007,${Object.values(SIDE).map(value => 3 * value)}\n`,
    ].join(''),
  )
  const rows = await run('--store', url, '--rows', '--json', '--model', 'eb1-preview', '--since', '2026-01-01')
  const list = JSON.parse(rows.out) as { request_id: string; cache_write: number }[]
  assert.deepEqual(list.map(row => row.request_id).sort(), ['r1', 'r2', 'r5'])
  assert.equal(list[0]!.cache_write, 10)
  const plain = await run('--store', url, '--rows', '--until', '2026-11-21T10:00:00.001Z')
  assert.equal(plain.out.trimEnd().split('\n').length, 4)
  const none = await run('--store', url, '--org', 'nobody')
  assert.equal(none.out, 'no rows\n')
  assert.equal((await run('--store', url, '--org', 'nobody', '--rows', '--json')).out, '[]\n')
}

test('sums and rows of an sqlite ledger, at 80 columns, as JSON and CSV', async () => {
  const url = `sqlite:${path.join(temporary(), 'gateway.db')}`
  await fill(url)
  await check(url)
})

test('sums and rows of a redis ledger', { skip: skipWithoutRedis }, async t => {
  const server = await RedisServer.start()
  t.after(() => server.stop())
  await fill(server.url)
  await check(server.url)
})

test('--month: a whole UTC month and nothing else', async () => {
  const url = `sqlite:${path.join(temporary(), 'gateway.db')}`
  await fill(url)
  const ids = async (month: string) => {
    const { out } = await run('--store', url, '--rows', '--json', '--month', month)
    return (JSON.parse(out) as { request_id: string }[]).map(row => row.request_id).sort()
  }
  assert.deepEqual(await ids('2026-11'), ['r1', 'r2', 'r3', 'r4'])
  assert.deepEqual(await ids('2026-10'), ['r5'])
  assert.deepEqual(await ids('2026-12'), [])
  for (const args of [
    ['--month', '2026-13'],
    ['--month', 'november'],
    ['--month', '2026-11', '--since', '7d'],
  ])
    assert.equal((await run('--store', url, ...args)).code, 2, args.join(' '))
})

// Keys of different organizations were added up, as the first key of each is key_1.
test('sums by key tell organizations apart, unless one is named', async () => {
  const url = `sqlite:${path.join(temporary(), 'gateway.db')}`
  const store = await openStore(options(url))
  for (const [id, organization] of [
    ['r1', 'acme'],
    ['r2', 'globex'],
    ['r3', 'globex'],
  ] as const) {
    store.ledger.intent(intent(id, { organization, key_id: 'key_1' }))
    store.ledger.outcome(outcome(id, { cost: 1_000_000 }))
  }
  await store.ledger.flush()
  await store.close()
  const sums = async (...args: string[]) => {
    const { out } = await run('--store', url, ...args, '--csv')
    return out.split('\n').map(line => line.split(',').slice(0, 4).join())
  }
  const both = ['organization,key,requests,input', 'acme,key_1,1,120', 'globex,key_1,2,240', '']
  assert.deepEqual(await sums('--group-by', 'key'), both)
  assert.deepEqual(await sums('--by', 'key'), both)
  assert.deepEqual(
    (await sums('--group-by', 'day,key')).map(line => line.split(',').slice(0, 3).join()),
    ['day,organization,key', '2026-11-21,acme,key_1', '2026-11-21,globex,key_1', ''],
  )
  assert.equal((await sums('--group-by', 'key,organization'))[2], 'key_1,globex,2,240')
  assert.deepEqual((await sums('--group-by', 'key', '--org', 'globex'))[1], 'key_1,2,240,40')
})

// 0.001656 USD was shown as 0.0016, and a total was not the sum of its lines.
test('amounts are rounded half up to the sixth decimal, and totals are of exact sums', async () => {
  const url = `sqlite:${path.join(temporary(), 'gateway.db')}`
  const store = await openStore(options(url))
  for (const [id, model, cost] of [
    ['r1', 'a', 1_656_000],
    ['r2', 'b', 8_746_500],
    ['r3', 'c', 499],
  ] as const) {
    store.ledger.intent(intent(id, { model }))
    store.ledger.outcome(outcome(id, { ...PROVIDER_SIDE, cost, provider_cost: cost + 2500 }))
  }
  await store.ledger.flush()
  await store.close()
  const last = (text: string) =>
    text
      .trimEnd()
      .split('\n')
      .map(line => line.split(' ').at(-1))
  const shown = ['USD', '0.001656', '0.008747', '0.00', '0.010403']
  assert.deepEqual(last((await run('--store', url, '--group-by', 'model')).out), shown)
  assert.deepEqual(last((await run('--store', url, '--rows')).out), shown.slice(0, -1))
  const margins = (await run('--store', url, '--by', 'model')).out.match(/-0\.[0-9]+/g)
  assert.deepEqual(margins, ['-0.000003', '-0.000003', '-0.000003', '-0.000008'])
})

test('reads beside a running gateway', async () => {
  const url = `sqlite:${path.join(temporary(), 'gateway.db')}`
  const store = await openStore(options(url))
  store.ledger.intent(intent('r1'))
  store.ledger.outcome(outcome('r1'))
  await store.ledger.flush()
  const { code, out } = await run('--store', url, '--group-by', 'model', '--json')
  await store.close()
  assert.equal(code, 0)
  assert.equal((JSON.parse(out) as { requests: number }[])[0]!.requests, 1)
})

/**
 * Runs with standard error on a terminal or not, a tenth of a second passing at each look at the clock. @returns what
 * was written there
 */
async function watched(isTTY: boolean, ...args: string[]): Promise<string> {
  let err = ''
  let now = 0
  const code = await runUsage(args, {
    out: { write() {}, columns: 80 },
    err: { write: (text: string) => (err += text), isTTY, columns: 60 },
    now: () => T0 + 3_600_000,
    mono: () => (now += 100),
  })
  assert.equal(code, 0, err)
  return err
}

/** What a line of progress says: rows, rate, share and time left; and nothing is left of it. */
function checkProgress(text: string): void {
  const lines = text.split('\r\x1b[K').filter(line => line !== '')
  assert.ok(lines.length >= 3, text)
  for (const line of lines) assert.match(line, /^[\d,]+ rows, [\d,.]+\/(s|min), \d+ %, (\d+ min )?\d+ s left$/)
  const shares = lines.map(line => Number(/(\d+) %/.exec(line)![1]))
  assert.deepEqual(
    shares,
    shares.toSorted((a, b) => a - b),
  )
  assert.ok(shares.at(-1)! > 80 && shares.at(-1)! <= 100, text)
  assert.ok(text.endsWith('\r\x1b[K'), 'the line is wiped')
}

test('a big ledger: rate and time left on a terminal, nothing in a pipe', async () => {
  const file = path.join(temporary(), 'gateway.db')
  const url = `sqlite:${file}`
  await fill(url)
  const db = new DatabaseSync(file)
  const columns = db
    .prepare("SELECT name FROM pragma_table_info('ledger')")
    .all()
    .map(row => String(row['name']))
  const values = columns.map(name => (name === 'request_id' ? "'n' || i" : name === 'time' ? `${T0} + i` : name))
  db.exec(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 30000)
    INSERT INTO ledger (${columns.join()}) SELECT ${values.join()} FROM n, (SELECT * FROM ledger WHERE request_id = 'r1') AS row`)
  db.close()
  checkProgress(await watched(true, '--store', url, '--rows', '--csv'))
  assert.match(await watched(true, '--store', url, '--model', 'eb1-preview', '--rows', '--csv'), /rows, /)
  assert.equal(await watched(false, '--store', url, '--rows', '--csv'), '')
  assert.equal(await watched(true, '--store', url), '', 'what is over at once needs no line')

  // It ended in the stack of an EPIPE.
  const main = path.join(import.meta.dirname, '../../cli/main.ts')
  const first = spawnSync(
    'bash',
    [
      '-c',
      'set -o pipefail; "$@" | head -n 1',
      'bash',
      process.execPath,
      '--disable-warning=ExperimentalWarning',
      main,
    ].concat(['usage', '--store', url, '--rows', '--csv', '--since', '2026-01-01']),
    { encoding: 'utf8' },
  )
  assert.deepEqual([first.status, first.stderr], [0, ''])
  assert.match(first.stdout, /^request_id,.*\n$/)
})

test('a big redis ledger: rows that do not match are progress too', { skip: skipWithoutRedis }, async t => {
  const server = await RedisServer.start()
  t.after(() => server.stop())
  const store = await openStore(options(server.url, { dataDir: temporary() }))
  for (let i = 0; i < 20_000; i++) {
    store.ledger.intent(intent(`r${i}`))
    store.ledger.outcome(outcome(`r${i}`))
    if (i % 1000 === 999) await store.ledger.flush()
  }
  await store.ledger.flush()
  await store.close()
  checkProgress(await watched(true, '--store', server.url, '--org', 'nobody', '--rows', '--csv'))
  assert.equal(await watched(false, '--store', server.url, '--rows', '--csv'), '')
  assert.equal(await watched(true, '--store', server.url), '', 'sums are read, and no rows')
})

test('wrong arguments say what is wrong, and exit 2; a missing ledger exits 1', async () => {
  const store = ['--store', 'sqlite:/nowhere/at/all.db']
  for (const [args, message] of [
    [[], /--store/],
    [[...store, '--group-by', 'colour'], /colour.*organization/],
    [[...store, '--since', 'yesterday'], /yesterday/],
    [[...store, '--json', '--csv'], /not both/],
    [[...store, '--frobnicate'], /frobnicate/],
  ] as const) {
    const { code, err } = await run(...args)
    assert.equal(code, 2)
    assert.match(err, message)
  }
  assert.equal((await run(...store)).code, 1)
  assert.equal((await run('--store', 'redis://127.0.0.1:1/0')).code, 1)
  assert.match((await run('--help')).out, /--group-by/)
})
