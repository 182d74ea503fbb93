/** Clients that leave, read slowly, or not at all: what the upstream sees of it, and what is billed. */
import assert from 'node:assert/strict'
import { connect, type Socket } from 'node:net'
import { type TestContext, test } from 'node:test'
import { eventually, standsStill } from '../eventually.ts'
import { behave, type FakeUpstream, startFakeUpstream } from '../fake-upstream/server.ts'
import { TableClock } from '../faults/table.ts'
import { KEY, startGateway, type TestGateway } from './harness.ts'
import { memory } from './memory.ts'

const turn = () => new Promise<void>(resolve => setImmediate(resolve))

async function bench(context: TestContext, model = '', server?: string, clock?: TableClock) {
  const upstream = await startFakeUpstream()
  const t = await startGateway({
    providers: `  one: { dialect: openai-chat, base_url: "${upstream.url}" }`,
    models: `  eb1-preview: { context_window: 400000, price: { input: 1.25, output: 10.00 }, ${model} backends: [{ provider: one, model: sim-aaaa }] }`,
    server,
    gateway: clock && { clock },
  })
  context.after(async () => {
    await t.close()
    await upstream.close()
  })
  return { t, upstream }
}

/** A streamed request over a bare socket. */
function open(t: TestGateway, text = '[[sim: text "one two three four five six"]] x'): Socket {
  const body = JSON.stringify({ model: 'eb1-preview', stream: true, messages: [{ role: 'user', content: text }] })
  const socket = connect(Number(new URL(t.url).port), '127.0.0.1')
  socket.on('error', () => {})
  socket.write(
    `POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${KEY}\r\ncontent-type: application/json\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
  )
  return socket
}
function until(socket: Socket, pattern: RegExp): Promise<string> {
  let text = ''
  return new Promise(resolve =>
    socket.on('data', function look(chunk) {
      text += chunk.toString('utf8')
      if (!pattern.test(text)) return
      socket.off('data', look)
      resolve(text)
    }),
  )
}
/** The reply's first events; then silence until the connection is let go. */
async function half(server: FakeUpstream, events = 4): Promise<{ released: Promise<void> }> {
  const { promise, resolve } = Promise.withResolvers<void>()
  server.script = async turn => {
    const reply = await turn.open()
    for (const event of reply.events.slice(0, events)) await turn.chunk(event)
    await turn.stall()
    resolve()
  }
  return { released: promise }
}

for (const how of ['FIN', 'RST'] as const) {
  for (const stage of ['before the head', 'in the middle of the stream'] as const) {
    test(`[STR-4] [BILL-3] a client that leaves (${how}) ${stage} cancels the upstream`, async context => {
      // No timer of the gateway ever fires: what cancels is that the client has left.
      const { t, upstream } = await bench(context, '', undefined, new TableClock())
      const { released } = await half(upstream, stage === 'before the head' ? 0 : 4)
      const stalled = upstream.whenStalled()
      const socket = open(t)
      const delivered = stage === 'before the head' ? stalled : until(socket, /"content":"three/)
      await delivered
      if (how === 'FIN') socket.destroy()
      else socket.resetAndDestroy()
      await released
      while (t.gateway.ingress.running.size > 0) await turn()
      const [row] = await t.ledger()
      assert.equal(row!.outcome, 'client_gone')
      if (stage === 'before the head') assert.deepEqual([row!.cost, row!.output], [0, 0])
      else
        assert.deepEqual(
          [row!.cost > 0, row!.output],
          [true, 4],
          'the prompt, and what was delivered: one, two, three and a space',
        )
    })
  }
}

test('[BILL-3] on_client_gone: drain reads the upstream to its end, and bills the prompt and what was delivered', async context => {
  const { t, upstream } = await bench(context, 'on_client_gone: drain,')
  let proceed = () => {}
  const gone = new Promise<void>(resolve => (proceed = resolve))
  let whole = false
  upstream.script = async turn => {
    const { events } = await turn.open()
    for (const event of events.slice(0, 4)) await turn.chunk(event)
    await gone
    for (const event of events.slice(4)) await turn.chunk(event)
    whole = await turn.end()
  }
  const socket = open(t)
  await until(socket, /"content":"three/)
  socket.destroy()
  while (![...t.gateway.ingress.running].some(x => x.clientGone)) await turn()
  proceed()
  while (t.gateway.ingress.running.size > 0) await turn()
  assert.equal(whole, true)
  const [row] = await t.ledger()
  assert.deepEqual([row!.outcome, row!.output, row!.cost > 0], ['client_gone', 4, true])
})

test('[BILL-3] a drain has a cap: then the upstream is cancelled, and the bill is the same', async context => {
  const clock = new TableClock()
  const { t, upstream } = await bench(context, 'on_client_gone: drain,', undefined, clock)
  const { released } = await half(upstream)
  const socket = open(t)
  await until(socket, /"content":"three/)
  socket.destroy()
  while (![...t.gateway.ingress.running].some(x => x.clientGone)) await turn()
  clock.advance(59_000)
  assert.equal(t.gateway.ingress.running.size, 1)
  clock.advance(1500)
  await released
  assert.equal(t.gateway.ingress.running.size, 0)
  const [row] = await t.ledger()
  assert.deepEqual([row!.outcome, row!.output, row!.cost > 0], ['client_gone', 4, true])
})

test('[STR-4] [STR-2] fifty readers that stall: endless streams stop being read, and end at their ceiling', async context => {
  const clock = new TableClock()
  const { t, upstream } = await bench(context, '', 'drain: 2s, stall_timeout: 10m', clock)
  let pushed = 0
  upstream.script = async turn => {
    const { events } = await turn.open()
    await turn.chunk(events[0]!)
    const piece = events[1]!.replace(/"content":"[^"]*"/, `"content":"${'word '.repeat(400)}"`).repeat(20)
    while (await turn.chunk(piece)) pushed += piece.length
  }
  const before = await memory()
  const sockets = Array.from({ length: 50 }, () => {
    const socket = open(t)
    socket.pause()
    return socket
  })
  while (upstream.requests.length < 50) await turn()
  await eventually(() => pushed > 0)
  await standsStill(() => pushed)
  assert.equal(t.gateway.ingress.running.size, 50)
  const grown = (await memory()) - before
  clock.advance(10 * 60_000 + 1000)
  for (const socket of sockets) socket.destroy()
  while (t.gateway.ingress.running.size > 0) await turn()
  await upstream.quiet()
  const rows = await t.ledger()
  assert.equal(rows.length, 50)
  assert.ok(rows.every(row => row.outcome === 'incomplete' || row.outcome === 'client_gone'))
  // Gateway, upstream and clients are all in this process; kernel buffers are not. A reply's own text is kept once (a
  // word is a token).
  const text = rows.reduce((sum, row) => sum + row.output * 'word '.length, 0)
  const buffered = (grown - text) / 50
  assert.ok(buffered < 1024 * 1024, `${Math.round(buffered / 1024)} KiB of buffers for each reader`)
  upstream.script = behave
  const again = open(t)
  await until(again, /\[DONE\]/)
  again.destroy()
})
