/** `ledger.ship` of a gateway that serves, and `sluice ledger ship` beside it. */
import assert from 'node:assert/strict'
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import module from 'node:module'
import { dirname, join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { buildGateway } from '../../cli/gateway.ts'
import { INSTALL } from '../../stores/ship/postgres.ts'
import { sluice } from '../cli/capture.ts'
import { eventually } from '../eventually.ts'
import { temporary } from '../stores/kit.ts'
import { defaultYaml, startGateway, type TestGateway } from './harness.ts'

const silent = { debug() {}, info() {}, warn() {}, error() {} }
const REQUEST = { model: 'eb1-preview', messages: [{ role: 'user', content: 'Hello' }] }

/** A gateway on a database file, with `ledger.ship` to a folder; both stand beside its configuration. */
async function gateway(t: TestContext, ship = 'to: file:./shipped, interval: 1s'): Promise<[TestGateway, string]> {
  const test = await startGateway({
    yaml: url =>
      defaultYaml(url, { extra: `ledger: { ship: { ${ship} } }` }).replace('sqlite::memory:', 'sqlite:./gateway.db'),
    gateway: { admin: { host: '127.0.0.1', port: 0 } },
  })
  t.after(() => test.close())
  return [test, dirname(test.file)]
}

const shippedIn = (folder: string): string[] =>
  existsSync(folder)
    ? readdirSync(folder)
        .filter(name => name.endsWith('.ndjson'))
        .flatMap(name => readFileSync(join(folder, name), 'utf8').split('\n').slice(0, -1))
        .map(line => JSON.parse(line).request_id)
    : []
const admin = async (test: TestGateway, path: string) => (await fetch(`${test.gateway.adminAddress}${path}`)).text()
const figure = async (test: TestGateway, name: string) =>
  Number(new RegExp(`^${name} (\\S+)$`, 'm').exec(await admin(test, '/metrics'))![1])

test('a gateway ships what it books, and the command ships it elsewhere', async t => {
  const [test, folder] = await gateway(t)
  const asked = await Promise.all([1, 2, 3].map(() => test.post('/v1/chat/completions', REQUEST)))
  const ids = asked.map(response => response.headers.get('x-request-id')!).sort()
  await eventually(() => shippedIn(join(folder, 'shipped')).length === 3)
  assert.deepEqual(shippedIn(join(folder, 'shipped')).sort(), ids)
  await eventually(async () => (await figure(test, 'sluice_ledger_shipped_rows_total')) === 3)
  assert.equal(await figure(test, 'sluice_ledger_ship_lag_rows'), 0)

  const elsewhere = join(folder, 'elsewhere')
  for (const rows of ['3 rows', '0 rows']) {
    const once = await sluice('ledger', 'ship', '--config', test.file, '--to', `file:${elsewhere}`)
    assert.deepEqual(once, { code: 0, out: `shipped ${rows} to file:${elsewhere}`, err: '' })
  }
  assert.deepEqual(shippedIn(elsewhere).sort(), ids)
  // The target of the configuration takes turns with the gateway.
  const own = await sluice('ledger', 'ship', test.file)
  assert.equal(own.out, `shipped 0 rows to file:${join(folder, 'shipped')}`)
})

test('a target that is out delays nothing, and readiness, metrics and log say what waits', async t => {
  const target = join(temporary(), 'shipped')
  writeFileSync(target, 'a file, where the folder should be')
  const [test] = await gateway(t, `to: "file:${target}", interval: 1s`)
  assert.equal((await test.post('/v1/chat/completions', REQUEST)).status, 200)
  await eventually(async () => (await figure(test, 'sluice_ledger_ship_lag_rows')) === 1)
  await eventually(async () => (await figure(test, 'sluice_ledger_ship_failures_total')) > 0)
  const ready = await fetch(`${test.gateway.adminAddress}/readyz`)
  assert.equal(ready.status, 200)
  assert.match(
    await ready.text(),
    /the ledger is not shipped: .*; name a folder \(1 rows behind, the oldest for \d+ s\)/,
  )
  assert.ok(test.log.some(({ message }) => message === 'the ledger is not shipped; it is tried again'))
  rmSync(target)
  await eventually(async () => (await figure(test, 'sluice_ledger_ship_lag_rows')) === 0)
  assert.equal(shippedIn(target).length, 1)
})

test('wrong calls of the command, and stores that are not there, are told', async t => {
  const [test, folder] = await gateway(t)
  const told = async (code: number, message: RegExp, ...args: string[]) => {
    const ran = await sluice('ledger', ...args)
    assert.deepEqual([ran.code, ran.out], [code, ''], ran.err)
    assert.match(ran.err, message)
  }
  const file = `file:${join(folder, 'x')}`
  await told(2, /ship\?\nUsage: sluice ledger ship/)
  await told(2, /there is no 'ledger send'/, 'send')
  await told(2, /--once or --follow, not both/, 'ship', test.file, '--once', '--follow')
  await told(2, /at least 1s, not 10ms/, 'ship', test.file, '--follow', '--interval', '10ms')
  await told(2, /--store needs --to TARGET/, 'ship', '--store', 'sqlite:x.db')
  await told(1, /kafka: no such target; use postgres:\/\/… or file:DIR/, 'ship', test.file, '--to', 'kafka://x')
  await told(1, /there is no ledger at .*none\.db yet/, 'ship', '--store', `sqlite:${folder}/none.db`, '--to', file)
  await told(1, /a ledger in memory cannot be shipped/, 'ship', '--store', 'sqlite::memory:', '--to', file)
  await told(
    1,
    /redis is not reachable|redis is not|ECONNREFUSED/,
    'ship',
    '--store',
    'redis://127.0.0.1:1',
    '--to',
    file,
  )
  assert.ok(!existsSync(join(folder, 'x')))
})

test('without the package pg, a gateway that needs it does not start, and says what to type', async t => {
  const hooks = module.registerHooks({
    resolve(specifier, context, next) {
      if (specifier !== 'pg') return next(specifier, context)
      throw Object.assign(new Error(`Cannot find package 'pg'`), { code: 'ERR_MODULE_NOT_FOUND' })
    },
  })
  t.after(() => hooks.deregister())
  const [test, folder] = await gateway(t)
  const file = join(folder, 'other.yaml')
  const yaml = readFileSync(test.file, 'utf8').replace(
    'file:./shipped',
    'postgres://billing:secret@127.0.0.1:1/billing',
  )
  writeFileSync(file, yaml.replace('gateway.db', 'other.db'))
  const needs = (error: Error) => error.message.includes(INSTALL) && !error.message.includes('secret')
  await assert.rejects(buildGateway(file, { log: silent, watch: false, admin: false }), needs)
  assert.ok(!existsSync(join(folder, 'other.db')), 'nothing was made')
  const command = await sluice('ledger', 'ship', file)
  assert.equal(command.code, 1)
  assert.ok(command.err.includes(INSTALL), command.err)
})
