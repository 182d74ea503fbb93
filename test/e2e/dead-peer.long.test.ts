/**
 * A client whose network is gone: no FIN, no RST, and no acknowledgement. Needs root and iproute2 for a network
 * namespace of its own; skipped loudly where they are missing.
 */
import assert from 'node:assert/strict'
import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { behave, type FakeUpstream, startFakeUpstream } from '../fake-upstream/server.ts'
import { LISTENERS } from '../listeners.ts'
import { defaultYaml, KEY, startGateway, type TestGateway } from './harness.ts'

const NAME = `sl${process.pid}`
const octet = process.pid % 250
const ip = (...args: string[]) => execFileSync('ip', args, { stdio: 'ignore' })

/**
 * No name is this namespace; `gateway` is where a gateway process runs in two of the tests; `client` is the peer that
 * dies.
 */
const links = {
  near: { from: null, to: 'client', net: `10.231.${octet}` },
  upstream: { from: null, to: 'gateway', net: `10.232.${octet}` },
  far: { from: 'gateway', to: 'client', net: `10.233.${octet}` },
} as const
type Link = keyof typeof links
const namespaces = ['gateway', 'client'] as const
const nameOf = (namespace: string) => `${NAME}${namespace[0]}`
const inside = (namespace: string | null, ...args: string[]) =>
  namespace === null ? ip(...args) : ip('netns', 'exec', nameOf(namespace), 'ip', ...args)

/** An end of a link has its number for its last octet: 1 is where it comes from. */
const address = (link: Link, end: 1 | 2) => `${links[link].net}.${end}`
const device = (link: Link, end: 1 | 2) => `${NAME}${link[0]}${end}`

function world(): boolean {
  try {
    for (const namespace of namespaces) {
      ip('netns', 'add', nameOf(namespace))
      inside(namespace, 'link', 'set', 'lo', 'up')
    }
    for (const link of Object.keys(links) as Link[]) {
      ip('link', 'add', device(link, 1), 'type', 'veth', 'peer', 'name', device(link, 2))
      for (const [end, namespace] of [
        [1, links[link].from],
        [2, links[link].to],
      ] as const) {
        if (namespace !== null) ip('link', 'set', device(link, end), 'netns', nameOf(namespace))
        inside(namespace, 'addr', 'add', `${address(link, end)}/24`, 'dev', device(link, end))
        inside(namespace, 'link', 'set', device(link, end), 'up')
      }
    }
    return true
  } catch {
    remove()
    return false
  }
}
function remove(): void {
  for (const args of [
    ...Object.keys(links).map(link => ['link', 'del', device(link as Link, 1)]),
    ...namespaces.map(namespace => ['netns', 'del', nameOf(namespace)]),
  ]) {
    try {
      ip(...args)
    } catch {
      // It was never made, or went with its other end.
    }
  }
}
/** The client's machine loses its network. */
const cut = (link: Link) => inside('client', 'link', 'set', device(link, 2), 'down')

const CLIENT = `
const [host, port, body] = process.argv.slice(1)
const socket = require('node:net').connect(Number(port), host)
socket.write('POST /v1/chat/completions HTTP/1.1\\r\\nhost: x\\r\\nauthorization: Bearer ${KEY}\\r\\ncontent-type: application/json\\r\\ncontent-length: ' + Buffer.byteLength(body) + '\\r\\n\\r\\n' + body)
socket.once('data', () => process.stdout.write('data'))
socket.resume()
socket.on('error', () => {})
`

const SKIPPED = 'SKIPPED: no network namespace can be made here (needs root and iproute2)'
const possible = world()
after(remove)

/** A client in a namespace of its own; resolves when it runs. */
function dial(host: string, port: number | string, stream: boolean): { client: ChildProcess; first: Promise<unknown> } {
  const body = JSON.stringify({ model: 'eb1-preview', stream, messages: [{ role: 'user', content: 'x' }] })
  const command = ['netns', 'exec', nameOf('client'), process.execPath, '-e', CLIENT, host, String(port), body]
  const client = spawn('ip', command, { stdio: ['ignore', 'pipe', 'inherit'] })
  return { client, first: once(client.stdout!, 'data') }
}

const models =
  '  eb1-preview: { context_window: 400000, price: { input: 1.25, output: 10.00 }, backends: [{ provider: one, model: sim-aaaa }] }'
const provider = (url: string) => `  one: { dialect: openai-chat, base_url: "${url}" }`

interface Near {
  t: TestGateway
  upstream: FakeUpstream
  dial(stream: boolean): ReturnType<typeof dial>
}

/**
 * A gateway of this process for a client in its namespace; afterwards the client is gone and the way to it open again.
 */
async function nearGateway(gateway: { listener?: 'node' }, body: (near: Near) => Promise<void>): Promise<void> {
  const upstream = await startFakeUpstream()
  const t = await startGateway({
    providers: provider(upstream.url),
    models,
    server: 'drain: 2s, stall_timeout: 1s',
    gateway: { ...gateway, listen: { host: address('near', 1), port: 0 } },
  })
  let client: ChildProcess | undefined
  try {
    await body({
      t,
      upstream,
      dial(stream) {
        const dialled = dial(address('near', 1), t.gateway.port, stream)
        client = dialled.client
        return dialled
      },
    })
  } finally {
    client?.kill('SIGKILL')
    inside('client', 'link', 'set', device('near', 2), 'up')
    await t.close()
    await upstream.close()
  }
}

test('[STR-4] a dead peer is found when nothing more fits on its way, and its upstream is cancelled', async context => {
  if (!possible) return context.skip(SKIPPED)
  await nearGateway({}, async ({ t, upstream, dial }) => {
    const { promise: released, resolve } = Promise.withResolvers<void>()
    upstream.script = async turn => {
      const { events } = await turn.open()
      await turn.chunk(events[0]!)
      const piece = events[1]!.replace(/"content":"[^"]*"/, `"content":"${'word '.repeat(400)}"`).repeat(20)
      while (await turn.chunk(piece));
      resolve()
    }
    await dial(true).first
    cut('near')
    await released
    while (t.gateway.ingress.running.size > 0) await new Promise<void>(resolve => setImmediate(resolve))
    const [row] = await t.ledger()
    assert.deepEqual([row!.outcome, row!.cost > 0], ['client_gone', true])
  })
})

test('[STR-4] node: a peer that dies while it waits for its answer is found by the kernel’s probes', async context => {
  if (!possible) return context.skip(SKIPPED)
  await nearGateway({ listener: 'node' }, async ({ t, upstream, dial }) => {
    const { promise: released, resolve } = Promise.withResolvers<void>()
    upstream.script = turn => turn.stall().then(resolve)
    const stalled = upstream.whenStalled()
    dial(false)
    await stalled
    cut('near')
    await released
    while (t.gateway.ingress.running.size > 0) await new Promise<void>(resolve => setImmediate(resolve))
    const [row] = await t.ledger()
    assert.deepEqual([row!.outcome, row!.cost], ['client_gone', 0])
  })
})

for (const listener of LISTENERS) {
  test(`[STR-4] [STR-5] ${listener}: on a near-silent stream the keep-alives find a dead peer, when the kernel gives up on them (tcp_retries2)`, async context => {
    if (!possible) return context.skip(SKIPPED)
    // 3 retries are given up after some 3 s; docs/listeners.md has the figures for production.
    try {
      execFileSync('ip', ['netns', 'exec', nameOf('gateway'), 'sysctl', '-qw', 'net.ipv4.tcp_retries2=3'])
    } catch {
      return context.skip('SKIPPED: net.ipv4.tcp_retries2 can’t be set in a namespace here')
    }
    const folder = await mkdtemp(join(tmpdir(), 'sluice-dead-'))
    const upstream = await startFakeUpstream(behave, { host: address('upstream', 1) })
    const file = join(folder, 'gateway.yaml')
    const server = `drain: 1s, listener: ${listener}, keep_alive: 500ms`
    // Not found by a timer of ours: none of them is shorter than an hour.
    const plugins = { upstream: '{ first_byte_timeout: 1h }' }
    const extra = 'stream_limits: { medium: { idle: 1h, ceiling: 2h } }'
    const yaml = defaultYaml('', { providers: provider(upstream.url), models, server, plugins, extra })
    await writeFile(file, yaml.replace('listen: 127.0.0.1:0', `listen: ${address('far', 1)}:0`))
    const command = [join(import.meta.dirname, '../../bin/sluice.mjs'), 'start', '--config', file]
    const gateway = spawn('ip', ['netns', 'exec', nameOf('gateway'), process.execPath, ...command], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    let client: ChildProcess | undefined
    try {
      const { promise: released, resolve } = Promise.withResolvers<void>()
      upstream.script = async turn => {
        const { events } = await turn.open()
        await turn.chunk(events[0]!)
        await turn.chunk(events[1]!)
        await turn.stall()
        resolve()
      }
      let said = ''
      const port = await new Promise<string>((resolve, reject) => {
        gateway.once('exit', code => reject(new Error(`exit ${code}: ${said}`)))
        gateway.stdout.on('data', data => {
          said += data
          const found = /listens on http:\/\/[\d.]+:(\d+)/.exec(said)
          if (found) resolve(found[1]!)
        })
      })
      const dialled = dial(address('far', 1), port, true)
      client = dialled.client
      await dialled.first
      cut('far')
      await released
    } finally {
      client?.kill('SIGKILL')
      gateway.removeAllListeners('exit')
      gateway.kill('SIGTERM')
      await once(gateway, 'exit')
      inside('client', 'link', 'set', device('far', 2), 'up')
      await upstream.close()
      await rm(folder, { recursive: true, force: true })
    }
  })
}
