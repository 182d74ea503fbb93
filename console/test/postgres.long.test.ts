/** What else runs on SQLite in memory, on a real PostgreSQL: pages, tenants, billing, and what they protect. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { innerRun } from '../../test/inner-run.ts'
import { PostgresServer, skipWithoutPostgres } from '../../test/stores/postgres-server.ts'

const FILES = ['billing', 'meters', 'notices', 'openid', 'pages', 'playground', 'security', 'tenants']

test('the same tests pass on PostgreSQL, each console with a database of its own', {
  skip: skipWithoutPostgres,
}, async t => {
  const server = await PostgresServer.start()
  t.after(() => server.stop())
  const { NODE_TEST_CONTEXT: _, ...env } = process.env
  const files = FILES.map(name => `console/test/${name}.test.ts`)
  const at = { ...env, SLUICE_TEST_POSTGRES: server.url() }
  const { status, passed, told } = await innerRun(process.execPath, files, at, t.signal)
  assert.equal(status, 0, told)
  assert.ok(passed > 80, told)
  // They were there: each console had made its tables.
  const [databases] = await server.query("SELECT count(*)::int AS n FROM pg_database WHERE datname LIKE 'console_%'")
  assert.ok(databases!['n'] >= FILES.length, `${databases!['n']} databases`)
})
