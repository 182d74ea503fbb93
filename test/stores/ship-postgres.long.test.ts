/** Shipping the ledger to a real PostgreSQL. */
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import path from 'node:path'
import { after, before, describe, type TestContext, test } from 'node:test'
import pg from 'pg'
import type { Store } from '../../core/ports/store.ts'
import { openStore } from '../../stores/index.ts'
import { DDL, UPGRADE } from '../../stores/ship/postgres.ts'
import { openSource, openTarget, type ShipSource, shipAll } from '../../stores/ship/ship.ts'
import { hasOpenssl, makeCertificates } from '../faults/certificates.ts'
import { intent, options, outcome, PROVIDER_SIDE, recordingLog, T0, temporary } from './kit.ts'
import { PostgresServer, skipWithoutPostgres } from './postgres-server.ts'

const silent = recordingLog()
const names = (prefix: string, count: number) => Array.from({ length: count }, (_, i) => `${prefix}-${i}`)

const TAGS = '{"team":"b\\"lü"}'

async function book(store: Store, ids: readonly string[], cost = 425_000): Promise<void> {
  for (const id of ids) {
    store.ledger.intent(intent(id))
    store.ledger.outcome(
      outcome(id, { ...PROVIDER_SIDE, cost, ...(id.startsWith('p') && { bytes_in: 7, ttfb_ms: null, tags: TAGS }) }),
    )
  }
  await store.ledger.flush()
}

async function newStore(t: TestContext): Promise<{ store: Store; url: string }> {
  const url = `sqlite:${path.join(temporary(), 'gateway.db')}`
  const store = await openStore(options(url))
  t.after(() => store.close())
  return { store, url }
}

/** Ships all that is there, in batches of 10. */
async function ship(url: string, to: string, around = (source: ShipSource) => source): Promise<void> {
  const source = around(await openSource(url, 'test'))
  try {
    const target = await openTarget(to)
    try {
      await shipAll(source, target, { name: 'test', log: silent }, 10)
    } finally {
      await target.close()
    }
  } finally {
    await source.close()
  }
}

describe('PostgreSQL', { skip: skipWithoutPostgres }, () => {
  let server: PostgresServer
  let databases = 0
  before(async () => {
    server = await PostgresServer.start()
    await server.query("CREATE ROLE locked LOGIN PASSWORD 'right'; CREATE ROLE shipper LOGIN")
  })
  after(() => server.stop())

  /** A new database; resolves to its name. */
  async function database(): Promise<string> {
    const name = `d${++databases}`
    await server.query(`CREATE DATABASE ${name}`)
    return name
  }
  const idsIn = async (name: string) =>
    (await server.query('SELECT request_id FROM sluice_ledger', name)).map(row => row['request_id'] as string)

  test('each row is there once, with its values, over several runs', async t => {
    const { store, url } = await newStore(t)
    const name = await database()
    await book(store, [...names('a', 24), 'p-1'], 9_007_199_254_740_991)
    await ship(url, server.url(name))
    await book(store, names('b', 7))
    await ship(url, server.url(name))
    await ship(url, server.url(name))
    assert.deepEqual(await idsIn(name), [...names('a', 24), 'p-1', ...names('b', 7)])
    const rows = await server.query("SELECT * FROM sluice_ledger WHERE request_id IN ('a-0', 'p-1')", name)
    const expected = {
      request_id: 'a-0',
      time: new Date(T0),
      organization: 'acme',
      key_id: 'key_ci',
      surface: 'responses',
      model: 'eb1-preview',
      provider: 'local',
      input: '120',
      cached: '20',
      cache_write: '10',
      output: '30',
      reasoning: '5',
      searches: '1',
      estimated: false,
      cost: '9007199254740991',
      price_book: '2026-11',
      billing: 'standard',
      outcome: 'completed',
      duration_ms: 1234.5,
      ttfb_ms: 210.25 as number | null,
      bytes_in: null as string | null,
      bytes_out: null,
      input_tokens: '120',
      tags: null as unknown,
      ...Object.fromEntries(
        Object.entries(PROVIDER_SIDE).map(([column, value]) => [
          column,
          typeof value === 'number' ? `${value}` : value,
        ]),
      ),
    }
    assert.deepEqual(rows, [
      expected,
      { ...expected, request_id: 'p-1', ttfb_ms: null, bytes_in: '7', tags: { team: 'b"lü' } },
    ])
    // Exact beyond 2^53.
    const [{ sum }] = (await server.query('SELECT sum(cost) FROM sluice_ledger', name)) as [Record<string, any>]
    assert.equal(sum, String(25n * 9_007_199_254_740_991n + 7n * 425_000n))
    const [{ rows: counted }] = (await server.query('SELECT rows FROM sluice_ledger_source', name)) as any
    assert.equal(counted, '32')
  })

  test('shippers at the same time take turns, also when they make the tables', async t => {
    const { store, url } = await newStore(t)
    const name = await database()
    await book(store, names('a', 95))
    await Promise.all([1, 2, 3].map(() => ship(url, server.url(name))))
    assert.deepEqual((await idsIn(name)).sort(), names('a', 95).sort())
  })

  test('a batch that fails leaves neither rows nor a position', async t => {
    const { store, url } = await newStore(t)
    const name = await database()
    await book(store, names('a', 25))
    let pages = 0
    const failing = (source: ShipSource): ShipSource => ({
      ...source,
      id: source.id,
      page: (after, most) => (++pages === 2 ? Promise.reject(new Error('lost')) : source.page(after, most)),
      note: (target, position) => source.note(target, position),
      lag: target => source.lag(target),
      lead: target => source.lead(target),
      close: () => source.close(),
    })
    await assert.rejects(ship(url, server.url(name), failing), /lost/)
    assert.equal((await idsIn(name)).length, 10)
    await ship(url, server.url(name))
    assert.deepEqual(await idsIn(name), names('a', 25))
  })

  test('a position that is lost doubles nothing', async t => {
    const { store, url } = await newStore(t)
    const name = await database()
    await book(store, names('a', 25))
    await ship(url, server.url(name))
    await server.query("UPDATE sluice_ledger_source SET position = '25 another-row'", name)
    await book(store, names('b', 3))
    await ship(url, server.url(name))
    assert.deepEqual(await idsIn(name), [...names('a', 25), ...names('b', 3)])
  })

  test('tables that were made by hand, and a user who may only insert', async t => {
    const { store, url } = await newStore(t)
    const name = await database()
    const page = readFileSync(path.join(import.meta.dirname, '../../docs/ledger.md'), 'utf8')
    const [ddl, grants] = [...page.matchAll(/^```sql\n(CREATE TABLE[\s\S]*?|GRANT[\s\S]*?)^```$/gm)].map(
      found => found[1]!,
    )
    assert.equal(ddl!.trim(), DDL.trim().replaceAll(' IF NOT EXISTS', '').replace(' ON CONFLICT DO NOTHING', ''))
    await server.query(`${ddl}${grants!.replaceAll('billing', 'shipper')}`, name)
    await book(store, names('a', 15))
    await ship(url, server.url(name, 'shipper'))
    await book(store, names('b', 15))
    await ship(url, server.url(name, 'shipper'))
    assert.deepEqual(await idsIn(name), [...names('a', 15), ...names('b', 15)])
    await assert.rejects(server.query('SELECT 1 FROM sluice_ledger', name, 'shipper'), /permission denied/)
  })

  test('tables of revision 1 get the columns, by their owner; a user who may not is told', async t => {
    const { store, url } = await newStore(t)
    const name = await database()
    const page = readFileSync(path.join(import.meta.dirname, '../../docs/ledger.md'), 'utf8')
    assert.ok(page.includes(UPGRADE), 'docs/ledger.md has the statements')
    // As the release before made them.
    const added = [...UPGRADE.matchAll(/ADD COLUMN IF NOT EXISTS (\w+)/g)].map(found => found[1]!)
    await server.query(DDL, name)
    await server.query(
      `ALTER TABLE sluice_ledger ${added.map(column => `DROP COLUMN ${column}`).join()};
       DELETE FROM sluice_ledger_meta WHERE name = 'revision';
       INSERT INTO sluice_ledger SELECT 'old', now(), 'acme', 'k', 'chat', 'm', 'p', 1, 0, 0, 1, 0, 0, false, 7, '1', 'standard', 'completed', 1, 1, null, null, 1;
       GRANT INSERT ON sluice_ledger TO shipper; GRANT SELECT, INSERT, UPDATE ON sluice_ledger_source TO shipper; GRANT SELECT ON sluice_ledger_meta TO shipper`,
      name,
    )
    await book(store, names('a', 5))
    await assert.rejects(ship(url, server.url(name, 'shipper')), /lack columns of this release.*docs\/ledger\.md/)
    assert.deepEqual(await idsIn(name), ['old'])
    await Promise.all([1, 2].map(() => ship(url, server.url(name))))
    assert.deepEqual((await idsIn(name)).sort(), [...names('a', 5), 'old'].sort())
    await book(store, names('b', 5))
    await ship(url, server.url(name, 'shipper'))
    const costs = await server.query('SELECT provider_cost, count(*) FROM sluice_ledger GROUP BY 1 ORDER BY 1', name)
    assert.deepEqual(costs, [
      { provider_cost: '212500', count: '10' },
      { provider_cost: null, count: '1' },
    ])
  })

  test('tables of revision 2 get the digest of the body', async t => {
    const { store, url } = await newStore(t)
    const name = await database()
    await server.query(DDL, name)
    await server.query(
      "ALTER TABLE sluice_ledger DROP COLUMN body_digest; UPDATE sluice_ledger_meta SET value = '2' WHERE name = 'revision'",
      name,
    )
    await book(store, names('a', 5))
    await ship(url, server.url(name))
    const found = await server.query('SELECT body_digest, count(*) FROM sluice_ledger GROUP BY 1', name)
    assert.deepEqual(found, [{ body_digest: PROVIDER_SIDE.body_digest, count: '5' }])
    const [meta] = await server.query("SELECT value FROM sluice_ledger_meta WHERE name = 'revision'", name)
    assert.deepEqual(meta, { value: '3' })
  })

  test('what is wrong is told with its cure, and without the password', async t => {
    const { store, url } = await newStore(t)
    await book(store, names('a', 3))
    const refused = async (to: string, message: RegExp) => {
      await assert.rejects(ship(url, to), (error: Error) => {
        assert.match(error.message, message)
        assert.doesNotMatch(error.message, /wr0ng/)
        return true
      })
    }
    const name = await database()
    await refused(
      'postgres://x@127.0.0.1:1/x',
      /^postgres:\/\/x@127\.0\.0\.1:1\/x: .*ECONNREFUSED.*; check host and port/,
    )
    await refused(server.url('nowhere'), /database "nowhere" does not exist; create it/)
    await refused(server.url(name, 'nobody-here'), /role "nobody-here" does not exist; check the user/)
    await refused(server.url(name, 'locked:wr0ng'), /password authentication failed for user "locked"; check user/)
    await refused(server.url(name, 'shipper'), /permission denied for schema public; grant INSERT on sluice_ledger/)
    await refused(`${server.url(name)}?sslmode=verify-full`, /does not support SSL/)
    await server.query(DDL, name)
    await refused(server.url(name, 'shipper'), /permission denied for table sluice_ledger_meta; grant INSERT/)
    await server.query('ALTER TABLE sluice_ledger DROP COLUMN searches', name)
    await refused(server.url(name), /column "searches".* does not exist; add the column/)
    await server.query('ALTER TABLE sluice_ledger DROP CONSTRAINT sluice_ledger_pkey', name)
    await refused(server.url(name), /lets a request_id stand twice; add: ALTER TABLE/)
    await server.query("UPDATE sluice_ledger_meta SET value = '2'", name)
    await refused(server.url(name), /have version 2, and this release of Sluice writes version 1; use the release/)
  })

  test('TLS as the URL says', { skip: hasOpenssl() ? false : 'openssl is not installed' }, async t => {
    const { store, url } = await newStore(t)
    const name = await database()
    await book(store, names('a', 3))
    const certificates = makeCertificates()
    t.after(() => certificates.remove())
    await server.useTls(certificates.server)
    const root = encodeURIComponent(certificates.ca)
    await assert.rejects(ship(url, `${server.url(name)}?sslmode=verify-full`), /certificate/)
    await ship(url, `${server.url(name)}?sslmode=verify-full&sslrootcert=${root}`)
    assert.deepEqual(await idsIn(name), names('a', 3))
  })

  test('a shipper that waits for one that stands still says so', async t => {
    const { store, url } = await newStore(t)
    const name = await database()
    await book(store, names('a', 3))
    await ship(url, server.url(name))
    const client = new pg.Client({ connectionString: server.url(name) })
    await client.connect()
    t.after(() => client.end())
    await client.query('BEGIN; SELECT 1 FROM sluice_ledger_source FOR UPDATE')
    await assert.rejects(ship(url, server.url(name)), /lock timeout; another process ships this ledger now/)
    await client.query('ROLLBACK')
    await ship(url, server.url(name))
  })

  test('a table with further columns, in parts by time, in another schema', async t => {
    const { store, url } = await newStore(t)
    const name = await database()
    const parts = DDL.replace(/text PRIMARY KEY,\n {2}time/, 'text,\n  time').replace(
      "''\n);\nCREATE INDEX",
      "'',\n  invoice text, PRIMARY KEY (request_id, time)\n) PARTITION BY RANGE (time);\nCREATE INDEX",
    )
    assert.match(parts, /PARTITION BY/)
    await server.query(
      `CREATE SCHEMA billing; SET search_path = billing; ${parts} CREATE TABLE rest PARTITION OF sluice_ledger DEFAULT`,
      name,
    )
    await book(store, names('a', 15))
    await ship(url, `${server.url(name)}?options=-csearch_path%3Dbilling`)
    assert.equal((await server.query('SELECT * FROM billing.sluice_ledger', name)).length, 15)
    assert.equal((await server.query("SELECT to_regclass('public.sluice_ledger') AS it", name))[0]!['it'], null)
  })
})
