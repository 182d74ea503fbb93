/**
 * A client whose network is gone: no FIN, no RST, and no acknowledgement. Needs root and iproute2 for a network namespace of its own; skipped loudly
 * where they are missing.
 */
import assert from 'node:assert/strict'
import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { test } from 'node:test'
import { startFaultServer } from '../faults/server.ts'
import { KEY, startGateway } from './harness.ts'

const NAME = `sluice${process.pid}`
const octet = process.pid % 250
const [HERE, THERE] = [`10.231.${octet}.1`, `10.231.${octet}.2`]
const ip = (...args: string[]) => execFileSync('ip', args, { stdio: 'ignore' })

function namespace(): boolean {
  try {
    ip('netns', 'add', NAME)
    ip('link', 'add', `${NAME}a`, 'type', 'veth', 'peer', 'name', `${NAME}b`)
    ip('link', 'set', `${NAME}b`, 'netns', NAME)
    ip('addr', 'add', `${HERE}/24`, 'dev', `${NAME}a`)
    ip('link', 'set', `${NAME}a`, 'up')
    ip('netns', 'exec', NAME, 'ip', 'addr', 'add', `${THERE}/24`, 'dev', `${NAME}b`)
    ip('netns', 'exec', NAME, 'ip', 'link', 'set', `${NAME}b`, 'up')
    return true
  } catch {
    remove()
    return false
  }
}
function remove(): void {
  for (const args of [
    ['link', 'del', `${NAME}a`],
    ['netns', 'del', NAME],
  ]) {
    try {
      ip(...args)
    } catch {
      // It was never made.
    }
  }
}

const CLIENT = `
const [host, port, body] = process.argv.slice(1)
const socket = require('node:net').connect(Number(port), host)
socket.write('POST /v1/chat/completions HTTP/1.1\\r\\nhost: x\\r\\nauthorization: Bearer ${KEY}\\r\\ncontent-type: application/json\\r\\ncontent-length: ' + Buffer.byteLength(body) + '\\r\\n\\r\\n' + body)
socket.once('data', () => process.stdout.write('data'))
socket.resume()
socket.on('error', () => {})
`

test('[STR-4] a dead peer is found when nothing more fits on its way, and its upstream is cancelled', async context => {
  if (!namespace()) return context.skip('SKIPPED: no network namespace can be made here (needs root and iproute2)')
  let client: ChildProcess | undefined
  const upstream = await startFaultServer()
  const t = await startGateway({
    providers: `  one: { dialect: openai-chat, base_url: "${upstream.url}" }`,
    models:
      '  eb1-preview: { context_window: 400000, price: { input: 1.25, output: 10.00 }, backends: [{ provider: one, model: sim-aaaa }] }',
    server: 'drain: 2s, stall_timeout: 1s',
    gateway: { listen: { host: HERE, port: 0 } },
  })
  try {
    const { promise: released, resolve } = Promise.withResolvers<void>()
    upstream.fault = async turn => {
      const { events } = await turn.open()
      await turn.chunk(events[0]!)
      const piece = events[1]!.replace(/"content":"[^"]*"/, `"content":"${'word '.repeat(400)}"`).repeat(20)
      while (await turn.chunk(piece));
      resolve()
    }
    const body = JSON.stringify({ model: 'eb1-preview', stream: true, messages: [{ role: 'user', content: 'x' }] })
    client = spawn('ip', ['netns', 'exec', NAME, process.execPath, '-e', CLIENT, HERE, String(t.gateway.port), body], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    await new Promise(resolve => client!.stdout!.once('data', resolve))
    ip('netns', 'exec', NAME, 'ip', 'link', 'set', `${NAME}b`, 'down')
    await released
    while (t.gateway.ingress.running.size > 0) await new Promise<void>(resolve => setImmediate(resolve))
    const [row] = await t.ledger()
    assert.deepEqual([row!.outcome, row!.cost > 0], ['client_gone', true])
  } finally {
    client?.kill('SIGKILL')
    remove()
    await t.close()
    await upstream.close()
  }
})
