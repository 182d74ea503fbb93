/** What else runs on SQLite in memory, on a real PostgreSQL: pages, tenants, billing, and what they protect. */
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { join } from 'node:path'
import { test } from 'node:test'
import { PostgresServer, skipWithoutPostgres } from '../../test/stores/postgres-server.ts'

const FILES = ['billing', 'openid', 'pages', 'playground', 'security', 'tenants']

test('the same tests pass on PostgreSQL, each console with a database of its own', {
  skip: skipWithoutPostgres,
}, async t => {
  const server = await PostgresServer.start()
  t.after(() => server.stop())
  const { NODE_TEST_CONTEXT: _, ...env } = process.env
  const files = FILES.map(name => join(import.meta.dirname, `${name}.test.ts`))
  // One file after the other: the runner of this test has others beside it.
  const args = ['--test', '--test-concurrency=1', '--test-timeout=300000', '--test-reporter=tap', ...files]
  const child = spawn(process.execPath, args, {
    cwd: join(import.meta.dirname, '../..'),
    env: { ...env, SLUICE_TEST_POSTGRES: server.url('').replace(/\/$/, '') },
    stdio: ['ignore', 'pipe', 'inherit'],
    signal: t.signal,
  })
  let told = ''
  child.stdout.setEncoding('utf8').on('data', piece => {
    told += piece
  })
  const status = await new Promise((resolve, reject) => child.once('close', resolve).once('error', reject))
  const faults = told.split('\n').filter(line => /^# |^\s*not ok|error: /.test(line))
  assert.equal(status, 0, faults.join('\n'))
  assert.ok(Number(/^# pass (\d+)$/m.exec(told)?.[1]) > 80, faults.join('\n'))
  // They were there: each console had made its tables.
  const [databases] = await server.query("SELECT count(*)::int AS n FROM pg_database WHERE datname LIKE 'console_%'")
  assert.ok(databases!['n'] >= FILES.length, `${databases!['n']} databases`)
})
