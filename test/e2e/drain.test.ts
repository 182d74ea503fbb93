/**
 * SIGTERM: no more requests, running streams finish within `drain`, the rest end in an honest frame; the ledger has
 * every row.
 */
import assert from 'node:assert/strict'
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import Anthropic from '@anthropic-ai/sdk'
import OpenAI from 'openai'
import { ManualClock } from '../../core/tools/clock.ts'
import { startSimulator } from '../../providers/simulator/server.ts'
import { eventually, timersOf } from '../eventually.ts'
import { startFakeUpstream } from '../fake-upstream/server.ts'
import { TableClock } from '../faults/table.ts'
import { RawClient } from '../listener/harness.ts'
import { LISTENERS } from '../listeners.ts'
import { defaultYaml, KEY, startGateway, type TestGateway } from './harness.ts'
import { LeakScan } from './leak-scan.ts'

const ROOT = join(import.meta.dirname, '../..')
const say = (content: string) => [{ role: 'user' as const, content }]
const chat = (content: string, more: object = {}) => ({ model: 'eb1-preview', messages: say(content), ...more })

/** What a stream sent until it was over, and whether it was cut. */
async function read(response: Response): Promise<{ text: string; cut: boolean }> {
  let text = ''
  const decoder = new TextDecoder()
  try {
    for await (const chunk of response.body!) text += decoder.decode(chunk, { stream: true })
    return { text, cut: false }
  } catch {
    return { text, cut: true }
  }
}

const frames = (text: string): any[] =>
  text
    .split('\n\n')
    .map(frame => frame.split('\n').find(line => line.startsWith('data: {')))
    .filter(line => line !== undefined)
    .map(line => JSON.parse(line.slice(6)))

/** The rows of a gateway that closes by itself: taken when its last exchange has settled. */
function keepRows(t: TestGateway) {
  const { store } = t.gateway
  const close = store.close.bind(store)
  const kept: { rows: Awaited<ReturnType<TestGateway['ledger']>> } = { rows: [] }
  store.close = async () => {
    await store.ledger.flush()
    kept.rows = await store.ledger.query({})
    return close()
  }
  return kept
}

function refusesConnections(port: number): Promise<boolean> {
  return new Promise(resolve => {
    const socket = connect(port, '127.0.0.1')
    socket.once('connect', () => {
      socket.destroy()
      resolve(false)
    })
    socket.once('error', () => resolve(true))
  })
}

const defaultModel =
  '  eb1-preview: { context_window: 400000, price: { input: 1, output: 1 }, backends: [{ provider: chat, model: m }] }'

for (const listener of LISTENERS) {
  describe(`drain on ${listener}`, () => {
    test('accepts no more; running streams and buffered requests finish whole; then all is closed', async () => {
      const t = await startGateway({ gateway: { listener }, server: 'drain: 2m' })
      try {
        const kept = keepRows(t)
        const idleConnection = await RawClient.open(t.gateway.port)
        idleConnection.send(`GET /v1/models HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${KEY}\r\n\r\n`)
        await idleConnection.answers(1)
        const streams = await Promise.all(
          Array.from({ length: 10 }, () =>
            t.post('/v1/chat/completions', chat('[[sim: tokens 20; pace 100ms]] x', { stream: true })),
          ),
        )
        const buffered = t.post('/v1/chat/completions', chat('[[sim: delay 2s; text "whole"]] x'))
        await eventually(() => t.gateway.ingress.running.size === 11)
        const drained = t.gateway.drain()
        assert.equal(await refusesConnections(t.gateway.port), true)
        for (const stream of streams) {
          const { text, cut } = await read(stream)
          assert.equal(cut, false)
          assert.ok(text.endsWith('data: [DONE]\n\n'))
        }
        const reply = await buffered
        assert.equal(((await reply.json()) as any).choices[0].message.content, 'whole')
        assert.equal(reply.headers.get('connection'), 'close')
        await drained
        await idleConnection.closing()
        assert.equal(kept.rows.length, 11)
        assert.ok(kept.rows.every(row => row.outcome === 'completed'))
      } finally {
        await t.close()
      }
    })

    test('drain_delay: not ready at once, new requests are served on connections that then close, and only then it drains', async () => {
      const clock = new ManualClock()
      const t = await startGateway({ gateway: { listener, clock }, server: 'drain: 2s, drain_delay: 5s' })
      try {
        const headers = { authorization: `Bearer ${KEY}` }
        const kept = await RawClient.open(t.gateway.port)
        const drained = t.gateway.drain()
        assert.equal((await fetch(`${t.gateway.adminAddress}/readyz`)).status, 503)
        const fresh = await fetch(`${t.url}/v1/models`, { headers })
        assert.deepEqual([fresh.status, fresh.headers.get('connection')], [200, 'close'])
        await fresh.text()
        // A connection that stands open, as a proxy's pool has it, serves one more request.
        kept.send(`GET /v1/models HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${KEY}\r\n\r\n`)
        const [answer] = await kept.answers(1)
        assert.equal(answer!.status, 200)
        await kept.closing()
        clock.advance(4999)
        assert.equal(await refusesConnections(t.gateway.port), false)
        clock.advance(1)
        await drained
        assert.equal(await refusesConnections(t.gateway.port), true)
      } finally {
        await t.close()
      }
    })

    test('[STR-6] [ERR-8] what is still running at the end gets one error frame of its surface, route_unavailable, and nothing after it', async () => {
      const t = await startGateway({ gateway: { listener }, server: 'drain: 100ms' })
      try {
        const kept = keepRows(t)
        const stall = '[[sim: text "some words to begin with"; stall 4]] x'
        const paths = {
          chat: ['/v1/chat/completions', chat(stall, { stream: true })],
          responses: ['/v1/responses', { model: 'eb1-preview', input: stall, stream: true }],
          messages: ['/v1/messages', { model: 'eb1-preview', max_tokens: 100, messages: say(stall), stream: true }],
        } as const
        const open = await Promise.all(Object.values(paths).map(([path, body]) => t.post(path, body)))
        const waiting = t.post('/v1/chat/completions', chat('[[sim: delay 60s]] x'))
        const uploading = await RawClient.open(t.gateway.port)
        uploading.send(
          `POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${KEY}\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"model"`,
        )
        await eventually(() => t.gateway.ingress.running.size === 5)
        await eventually(() => t.simulator.requests.length === 4)
        const requests = [...t.simulator.requests]
        const drained = t.gateway.drain()

        const [chatStream, responses, messages] = await Promise.all(open.map(read))
        const last = frames(chatStream!.text).at(-1)
        assert.equal(last.error.code, 'route_unavailable')
        assert.equal(last.error.type, 'server_error')
        assert.equal(last.error.request_id, open[0]!.headers.get('x-request-id'))
        assert.ok(last.error.details.retry_after_seconds > 0 || last.error.retry_after_seconds > 0)
        assert.doesNotMatch(chatStream!.text, /\[DONE\]|"finish_reason":"/)
        const events = frames(responses!.text)
        assert.deepEqual(
          events.slice(-2).map(e => e.type),
          ['error', 'response.failed'],
        )
        assert.equal(events.at(-1).response.error.code, 'route_unavailable')
        const errors = frames(messages!.text).filter(e => e.type === 'error')
        assert.equal(errors.length, 1)
        assert.equal(errors[0].error.code, 'route_unavailable')
        assert.doesNotMatch(messages!.text, /message_stop/)
        for (const { cut } of [chatStream!, responses!, messages!]) assert.equal(cut, false, 'the frame is not cut off')

        const refused = await waiting
        assert.equal(refused.status, 503)
        assert.equal(((await refused.json()) as any).error.code, 'route_unavailable')
        assert.ok(Number(refused.headers.get('retry-after')) >= 1)
        const [upload] = await uploading.answers(1)
        assert.equal(upload!.status, 503)
        await drained
        for (const request of requests) assert.equal(await request.settled, 'aborted')
        assert.equal(kept.rows.length, 4, 'what was admitted has its row')
        for (const row of kept.rows) assert.equal(row.outcome, 'upstream_error')
        assert.deepEqual(
          kept.rows.map(row => row.cost > 0).sort(),
          [false, true, true, true],
          'billed where something was delivered',
        )
      } finally {
        await t.close()
      }
    })

    test('[ERR-8] the official clients raise on the frame', async () => {
      const t = await startGateway({ gateway: { listener }, server: 'drain: 50ms' })
      try {
        const stall = '[[sim: text "some words to begin with"; stall 4]] x'
        const chatStream = await t.openai().chat.completions.create({ ...chat(stall), stream: true })
        const messages = t.anthropic().messages.stream({ model: 'eb1-preview', max_tokens: 100, messages: say(stall) })
        const failed = Promise.all([
          assert.rejects(async () => {
            for await (const _ of chatStream);
          }, OpenAI.APIError),
          assert.rejects(messages.finalMessage(), Anthropic.AnthropicError),
        ])
        await eventually(() => t.gateway.ingress.running.size === 2 && t.simulator.requests.length === 2)
        await t.gateway.drain()
        await failed
      } finally {
        await t.close()
      }
    })

    test('[STR-4] a large buffered reply to a slow client leaves whole, however slowly, until the deadline', async () => {
      const upstream = await startFakeUpstream()
      const part = 'word '.repeat(200_000)
      const content = part.repeat(20)
      const frame = (choice: object) =>
        `data: ${JSON.stringify({ id: 'c', object: 'chat.completion.chunk', created: 1, model: 'm', choices: [{ index: 0, ...choice }] })}\n\n`
      // Asked for as a stream: a reply that is asked for whole has a smaller bound.
      const frames = Array.from({ length: 20 }, () => frame({ delta: { content: part }, finish_reason: null }))
      frames.push(frame({ delta: {}, finish_reason: 'stop' }), 'data: [DONE]\n\n')
      upstream.script = turn => turn.stream(frames.join(''))
      const providers = `  chat: { dialect: openai-chat, base_url: "${upstream.url}" }`
      const models = defaultModel
      const body = JSON.stringify(chat('x', { max_completion_tokens: 9000 }))
      const plugins = { upstream: '{ max_reply: 64MiB }' }
      const ask = `POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${KEY}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`
      for (const drain of ['60s', '300ms']) {
        const t = await startGateway({ gateway: { listener }, providers, models, plugins, server: `drain: ${drain}` })
        try {
          const client = await RawClient.open(t.gateway.port)
          client.socket.pause()
          client.send(ask)
          // The exchange is over, its answer is on its way.
          await eventually(() => t.gateway.listener.unsent === 1 && t.gateway.ingress.running.size === 0)
          const drained = t.gateway.drain()
          if (drain === '60s') {
            // Longer than idle connections are waited for.
            await timersOf(700)
            client.socket.resume()
            const [answer] = await client.answers(1, content.length)
            assert.equal(answer!.whole, true)
            assert.equal(JSON.parse(answer!.body.toString()).choices[0].message.content.length, content.length)
          }
          await drained
          client.destroy()
        } finally {
          await t.close()
        }
      }
      await upstream.close()
    })

    // The deadline of the first would be 10 minutes: a run that waits for it ends by the runner's.
    test('a second drain, and close, end at once', { timeout: 120_000 }, async () => {
      for (const how of ['drain', 'close'] as const) {
        const t = await startGateway({ gateway: { listener }, server: 'drain: 10m' })
        try {
          const stream = await t.post('/v1/chat/completions', chat('[[sim: stall 4]] x', { stream: true }))
          const drained = t.gateway.drain()
          await t.gateway[how]()
          await drained
          assert.equal((await read(stream)).cut, true)
        } finally {
          await t.close()
        }
      }
    })

    // Its upstream would be read for a minute, by a clock that stands still.
    test('a client that left a draining upstream behind does not keep the gateway', { timeout: 120_000 }, async () => {
      const models =
        '  eb1-preview: { context_window: 400000, on_client_gone: drain, price: { input: 1, output: 1 }, backends: [{ provider: chat, model: m }] }'
      const t = await startGateway({ gateway: { listener, clock: new TableClock() }, models })
      try {
        const stream = await t.post('/v1/chat/completions', chat('[[sim: stall 4]] x', { stream: true }))
        await stream.body!.cancel()
        await t.gateway.close()
        assert.equal(await t.simulator.requests[0]!.settled, 'aborted')
      } finally {
        await t.close()
      }
    })
  })
}

// ---- the process ----------------------------------------------------------------------------------------------------

async function startProcess(
  yaml: string,
  folder: string,
): Promise<{ child: ChildProcess; address: string; log: () => string; exit: Promise<[number | null, string | null]> }> {
  const file = join(folder, 'gateway.yaml')
  await writeFile(file, yaml)
  const child = spawn(process.execPath, [join(ROOT, 'bin/sluice.mjs'), 'start', '--config', file], { cwd: folder })
  const exit = once(child, 'exit') as Promise<[number | null, string | null]>
  let out = ''
  let log = ''
  child.stderr.on('data', data => (log += data))
  const address = await new Promise<string>((resolve, reject) => {
    child.stdout.on('data', data => {
      out += data
      const found = /http:\/\/127\.0\.0\.1:\d+/.exec(out)
      if (found) resolve(found[0])
    })
    child.once('exit', code => reject(new Error(`exit ${code}\n${out}\n${log}`)))
  })
  return { child, address, log: () => log, exit }
}

test('the process: SIGTERM lets a stream finish and exits with 0; SIGHUP reloads', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'sluice-drain-'))
  const simulator = await startSimulator({ port: 0 })
  const yaml = defaultYaml(simulator.url, { server: 'drain: 10s' }).replace('sqlite::memory:', 'sqlite:./gateway.db')
  const { child, address, log, exit } = await startProcess(yaml, folder)
  const leaks = new LeakScan(address)
  try {
    const send = (body: unknown) =>
      fetch(`${address}/v1/chat/completions`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', authorization: `Bearer ${KEY}` },
        body: JSON.stringify(body),
      })
    child.kill('SIGHUP')
    await eventually(() => log().includes('configuration reloaded'))
    const stream = await send(chat('[[sim: tokens 20; pace 20ms]] x', { stream: true }))
    child.kill('SIGTERM')
    const { text, cut } = await read(stream)
    assert.equal(cut, false)
    assert.ok(text.endsWith('data: [DONE]\n\n'))
    assert.deepEqual(await exit, [0, null])
    await assert.rejects(send(chat('x')))
    leaks.close()
  } finally {
    child.kill('SIGKILL')
    await simulator.close()
    await rm(folder, { recursive: true, force: true })
  }
})

test('the process: a promise that a plugin left alone ends nobody’s stream, and a timer that it left does not outlive the gateway', {
  timeout: 120_000,
}, async () => {
  const folder = await mkdtemp(join(tmpdir(), 'sluice-drain-'))
  const simulator = await startSimulator({ port: 0 })
  await writeFile(
    join(folder, 'careless.mjs'),
    `export default {
  name: 'careless',
  summary: 'Leaves things lying about.',
  create() {
    setInterval(() => {}, 1000)
    return { onEvent() { Promise.reject(new Error('nobody waits')) } }
  },
}
`,
  )
  const yaml = `${defaultYaml(simulator.url).replace('auth, validation', 'auth, careless, validation')}plugins: [./careless.mjs]\n`
  const { child, address, log, exit } = await startProcess(yaml, folder)
  try {
    for (let i = 0; i < 3; i++) {
      const response = await fetch(`${address}/v1/chat/completions`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', authorization: `Bearer ${KEY}` },
        body: JSON.stringify(chat('[[sim: tokens 5; pace 20ms]] x', { stream: true })),
      })
      const { text, cut } = await read(response)
      assert.ok(!cut && text.endsWith('data: [DONE]\n\n'))
    }
    assert.match(log(), /nobody waited for it/)
    child.kill('SIGTERM')
    assert.deepEqual(await exit, [0, null])
  } finally {
    child.kill('SIGKILL')
    await simulator.close()
    await rm(folder, { recursive: true, force: true })
  }
})
