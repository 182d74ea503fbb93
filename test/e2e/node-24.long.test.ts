/**
 * Node 24 with `listener: node`: what a machine without the Node that comes along would run, and the way on when the
 * support of Node 22 ends (April 2027). The launcher does not choose it, and neither does any other test. Its binary is
 * the npm package of the one that comes along. It is kept where clients are kept, outside of the checkout: 190 MB would
 * be too much for everyone who installs this project.
 */
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { before, test } from 'node:test'
import { pathToFileURL } from 'node:url'
import { FLAGS } from '../../bin/flags.mjs'
import { startSimulator } from '../../providers/simulator/server.ts'
import { installNpm, NotInstalled } from '../clients/install.ts'
import { eventually } from '../eventually.ts'
import { innerRun } from '../inner-run.ts'
import { freePort } from '../ports.ts'
import { defaultYaml, KEY } from './harness.ts'

const VERSION = '24.21.0'
const ROOT = join(import.meta.dirname, '../..')
const MAIN = join(ROOT, 'cli/main.ts')
/** What differs between versions of Node: HTTP, upgrades, SQLite, threads, streams, the loader of modules. */
const SUITE = [
  'test/e2e/chat.test.ts',
  'test/e2e/drain.test.ts',
  'test/e2e/faults-connections.test.ts',
  'test/e2e/proxy-websocket.test.ts',
  'test/e2e/reload.test.ts',
  'test/listener/exchange.test.ts',
  'test/stores/backup.test.ts',
  'test/stores/conformance.test.ts',
  'test/stores/journal.test.ts',
]
const { NODE_TEST_CONTEXT: _, ...inherited } = process.env
const ENV = {
  ...inherited,
  NODE_OPTIONS: `--disable-warning=ExperimentalWarning --import=${pathToFileURL(join(ROOT, 'bin/stripped.mjs')).href}`,
}

let node = ''
/** Why there is none here, such as without a network. */
let missing: string | undefined
before(() => {
  const name = `node-${process.platform}-${process.arch}`
  try {
    node = join(installNpm(name, { [name]: VERSION }), 'node_modules', name, 'bin/node')
  } catch (error) {
    if (!(error instanceof NotInstalled)) throw error
    missing = error.message
  }
})

test('the tests of streams, WebSocket, reloads and stores pass on Node 24 with listener: node', async t => {
  if (missing !== undefined) return t.skip(missing)
  const env = { ...ENV, SLUICE_TEST_LISTENER: 'node' }
  const { status, passed, told } = await innerRun(node, SUITE, env, t.signal)
  assert.equal(status, 0, told)
  assert.ok(passed > 10 * SUITE.length, `${passed} tests passed`)
})

test('a gateway on Node 24 serves, reloads and drains; its listener uws says what to do', async t => {
  if (missing !== undefined) return t.skip(missing)
  const simulator = await startSimulator({ port: 0 })
  const folder = mkdtempSync(join(tmpdir(), 'sluice-node-24-'))
  t.after(async () => {
    await simulator.close()
    rmSync(folder, { recursive: true, force: true })
  })
  const port = await freePort(2)
  const write = (listener: string, models = '') =>
    writeFileSync(
      join(folder, 'gateway.yaml'),
      defaultYaml(simulator.url, { server: `listener: ${listener}, drain: 10s`, store: 'sqlite:./gateway.db' })
        .replace('listen: 127.0.0.1:0, admin: 127.0.0.1:0', `listen: 127.0.0.1:${port}, admin: 127.0.0.1:${port + 1}`)
        .replace(/^price_book:/m, `${models}price_book:`),
    )
  // With the flags of the launcher: V8 may know them no more.
  const start = (kind: string) => {
    write(kind)
    const child = spawn(node, [...FLAGS, MAIN, 'start', '--config', 'gateway.yaml'], { cwd: folder, env: ENV })
    let text = ''
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding('utf8').on('data', piece => {
        text += piece
      })
    t.after(() => void child.kill('SIGKILL'))
    const told = () => text.replace(/^.*"route":.*\n/gm, '')
    return { child, ended: new Promise(resolve => child.once('close', resolve)), text: told }
  }

  const refused = start('uws')
  assert.equal(await refused.ended, 1)
  assert.match(refused.text(), /no tested binary of uWebSockets\.js for .* with Node 24.*listener: node/)

  const gateway = start('node')
  const ready = () =>
    fetch(`http://127.0.0.1:${port + 1}/readyz`).then(
      answer => answer.status === 200,
      () => false,
    )
  await eventually(ready).catch(error => {
    throw new Error(`${error.message}; the gateway said: ${gateway.text()}`)
  })
  const ask = (path: string, body?: object) =>
    fetch(`http://127.0.0.1:${port}${path}`, {
      method: body ? 'POST' : 'GET',
      headers: { authorization: `Bearer ${KEY}`, 'content-type': 'application/json' },
      ...(body && { body: JSON.stringify(body) }),
    })
  const messages = [{ role: 'user', content: 'Hello' }]
  const streamed = await ask('/v1/chat/completions', { model: 'eb1-preview', stream: true, messages })
  assert.equal(streamed.status, 200)
  assert.match(await streamed.text(), /data: \[DONE\]\n\n$/)

  const more =
    '  late: { context_window: 1000, price: { input: 1, output: 1 }, backends: [{ provider: chat, model: sim-large }] }\n'
  write('node', more)
  await eventually(async () => (await (await ask('/v1/models')).text()).includes('"late"')).catch(error => {
    throw new Error(`${error.message}; the gateway said: ${gateway.text()}`)
  })

  gateway.child.kill('SIGTERM')
  assert.equal(await gateway.ended, 0, gateway.text())
})
