import assert from 'node:assert/strict'
import { once } from 'node:events'
import { connect } from 'node:net'
import { test } from 'node:test'
import type { Simulator } from '../../providers/simulator/server.ts'
import { SseReader } from '../../providers/sse.ts'
import { stall } from '../eventually.ts'
import { ask, bodyFor, pathFor, post, withSimulator } from './harness.ts'

/**
 * Sends a request over a bare socket; resolves with all bytes and how the connection ended, or with `open` once the
 * bytes satisfy `until`.
 */
async function raw(
  simulator: Simulator,
  prompt: string,
  until?: (text: string) => boolean,
): Promise<{ text: string; end: 'fin' | 'reset' | 'open' }> {
  const body = JSON.stringify(bodyFor('openai-chat', prompt, true))
  const socket = connect(simulator.port, '127.0.0.1')
  await once(socket, 'connect')
  socket.write(
    `POST ${pathFor('openai-chat', true)} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
  )
  let text = ''
  return new Promise(resolve => {
    socket.on('data', chunk => {
      text += chunk.toString('latin1')
      if (until?.(text)) {
        resolve({ text, end: 'open' })
        socket.destroy()
      }
    })
    socket.on('end', () => resolve({ text, end: 'fin' }))
    socket.on('error', () => resolve({ text, end: 'reset' }))
  })
}
const events = (text: string) => text.split('data: ').length - 1
/** The zero chunk that ends a chunked body. */
const ended = (text: string) => text.endsWith('0\r\n\r\n')

test('stall: the events before it arrive, then nothing, and the connection stays', () =>
  withSimulator(async simulator => {
    const { text, end } = await raw(simulator, 'x [[sim: stall 2]]', sofar => events(sofar) === 2)
    assert.deepEqual([events(text), end, ended(text)], [2, 'open', false])
    assert.equal(await simulator.requests[0]!.settled, 'aborted')
  }))

test('cut: a reset after the events, or at the byte', () =>
  withSimulator(async simulator => {
    const byEvents = await raw(simulator, 'x [[sim: cut 3]]')
    assert.deepEqual([events(byEvents.text), byEvents.end], [3, 'reset'])
    const byBytes = await raw(simulator, 'x [[sim: cut byte 50]]')
    const payload = byBytes.text.slice(byBytes.text.indexOf('\r\n\r\n') + 4)
    assert.equal(byBytes.end, 'reset')
    assert.ok(payload.startsWith('32\r\ndata: '), 'one chunk of 50 bytes')
  }))

/**
 * The bytes and the reset were read together on a busy machine, and so seen as a FIN: the delay between them was over
 * before the reader had had a turn.
 */
test('cut: a reset is one, though each turn of the loop takes longer than the delay before it', () =>
  withSimulator(async simulator => {
    let over = false
    const slow = async () => {
      for (; !over; await new Promise(setImmediate)) stall(10)
    }
    const slowly = slow()
    try {
      for (let i = 0; i < 5; i++) {
        const { text, end } = await raw(simulator, 'x [[sim: cut 3]]')
        assert.deepEqual([events(text), end], [3, 'reset'])
      }
    } finally {
      over = true
    }
    await slowly
  }))

test('close: FIN without the end of the HTTP body; end: a proper body without [DONE]', () =>
  withSimulator(async simulator => {
    const closed = await raw(simulator, 'x [[sim: close 2]]')
    assert.deepEqual([events(closed.text), closed.end, ended(closed.text)], [2, 'fin', false])
    const text = await (await ask(simulator, 'openai-chat', 'x [[sim: end 2]]', true)).text()
    assert.equal(events(text), 2)
    assert.ok(!text.includes('[DONE]'))
  }))

test('buffered bodies stall, cut and close in their middle', () =>
  withSimulator(async simulator => {
    for (const directive of ['cut 1', 'close', 'cut byte 20']) {
      await assert.rejects(
        ask(simulator, 'openai-chat', `x [[sim: ${directive}]]`).then(response => response.text()),
        directive,
      )
    }
    const leave = new AbortController()
    const response = await post(
      simulator,
      '/chat/completions',
      bodyFor('openai-chat', 'x [[sim: stall]]', false),
      {},
      leave.signal,
    )
    leave.abort()
    await assert.rejects(response.text())
    assert.equal(await simulator.requests.at(-1)!.settled, 'aborted')
  }))

test('malformed: JSON that is none, an unknown event, bytes that are no UTF-8', () =>
  withSimulator(async simulator => {
    const read = async (directive: string) => {
      const bytes = new Uint8Array(
        await (await ask(simulator, 'openai-chat', `x [[sim: ${directive}]]`, true)).arrayBuffer(),
      )
      const out: [string, string][] = []
      const reader = new SseReader()
      reader.push(bytes, (event, data) => out.push([event, data]))
      reader.end((event, data) => out.push([event, data]))
      return out
    }
    const bad = (await read('malformed json after 2'))[2]![1]
    assert.throws(() => JSON.parse(bad), SyntaxError)
    assert.equal((await read('malformed event after 2'))[2]![0], 'simulated.unknown')
    assert.ok((await read('malformed utf8 after 2'))[2]![1].includes('\ufffd'))
  }))

test('quirks of framing and of calls', () =>
  withSimulator(async simulator => {
    const text = async (quirk: string) =>
      (await ask(simulator, 'openai-chat', `x [[sim: quirk ${quirk}]]`, true)).text()
    assert.ok((await text('crlf')).includes('\r\n\r\n'))
    assert.ok(!(await text('cr')).includes('\n'))
    assert.ok((await text('comments')).startsWith(': simulated'))
    assert.ok(!(await text('no-done')).includes('[DONE]'))
    assert.ok(!(await text('no-finish')).includes('"finish_reason":"stop"'))
    const bom = new Uint8Array(await (await ask(simulator, 'openai-chat', 'x [[sim: quirk bom]]', true)).arrayBuffer())
    assert.deepEqual([...bom.subarray(0, 3)], [0xef, 0xbb, 0xbf])
    const gzip = await ask(simulator, 'openai-chat', 'x [[sim: quirk gzip]]', true)
    assert.equal(gzip.headers.get('content-encoding'), 'gzip')
    assert.ok((await gzip.text()).endsWith('data: [DONE]\n\n'))
    const tools = [{ type: 'function', function: { name: 'f' } }]
    const calls = async (quirk: string) => {
      const body = { ...bodyFor('openai-chat', `[[sim: call f {}; call f {}; quirk ${quirk}]]`, true), tools }
      return (await post(simulator, '/chat/completions', body)).text()
    }
    assert.ok(!(await calls('index-0')).includes('"index":1'))
    assert.ok(!(await calls('no-index')).includes('"tool_calls":[{"index"'))
    assert.ok((await calls('empty-names')).includes('"name":""'))
    assert.ok((await calls('stop-with-calls')).includes('"finish_reason":"stop"'))
  }))

test('split: the stream in small writes is the same stream', () =>
  withSimulator(async simulator => {
    const whole = await (await ask(simulator, 'openai-chat', '[[sim: text "ä 😀"]]', true)).text()
    const split = await (
      await ask(simulator, 'openai-chat', '[[sim: text "ä 😀"]]', true, { 'x-sim': 'split 7' })
    ).text()
    const without = (text: string) => text.replaceAll(/"created":\d+/g, '').replaceAll(/"cached_tokens":\d+/g, '')
    assert.equal(without(split), without(whole))
  }))

test('delay and pace: a client that leaves meanwhile is noticed', () =>
  withSimulator(async simulator => {
    const leave = new AbortController()
    const waiting = post(
      simulator,
      '/chat/completions',
      bodyFor('openai-chat', 'x', false),
      { 'x-sim': 'delay 60s' },
      leave.signal,
    )
    while (simulator.requests.length === 0) await new Promise(setImmediate)
    leave.abort()
    await assert.rejects(waiting)
    assert.equal(await simulator.requests[0]!.settled, 'aborted')
    const paced = await ask(simulator, 'openai-chat', 'a b c', true, { 'x-sim': 'pace 60s' })
    await paced.body!.cancel()
    assert.equal(await simulator.requests[1]!.settled, 'aborted')
  }))

test('a reader that stops reading holds the simulator back', () =>
  withSimulator(async simulator => {
    const body = JSON.stringify(bodyFor('openai-chat', '[[sim: tokens 60000]]', true))
    const socket = connect(simulator.port, '127.0.0.1')
    socket.on('error', () => {})
    socket.pause()
    await once(socket, 'connect')
    socket.write(
      `POST /chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
    )
    while (simulator.requests.length === 0) await new Promise(setImmediate)
    // Another exchange runs to its end meanwhile; the 15 MB of the first do not fit into the socket's buffers.
    await (await ask(simulator, 'openai-chat', '[[sim: tokens 2000]]', true)).text()
    assert.equal(simulator.requests[0]!.state, 'open')
    socket.destroy()
    assert.equal(await simulator.requests[0]!.settled, 'aborted')
  }))
