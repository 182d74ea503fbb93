/** The benchmarks' own checks: a load that can't see a wrong answer measures nothing. */
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer } from 'node:http'
import net, { type AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import test from 'node:test'
import { promisify } from 'node:util'
import { TERMINAL, wrong } from '../../bench/answers.ts'
import { fault } from '../../bench/load/closed-loop.ts'
import { type Answer, Connection } from '../../bench/load/connection.ts'
import type { Job, Report } from '../../bench/load/overload.ts'
import { median, percentile } from '../../bench/load/percentile.ts'
import { agentRoutes, openRequests, PATHS, routes, type SurfaceName, writeRequests } from '../../bench/requests.ts'
import { type Figures, goals, ratio, reached } from '../../bench/results.ts'
import { replies } from '../../bench/upstream-replies.ts'
import { FLAGS } from '../../bin/flags.mjs'

const surfaces = Object.keys(PATHS) as SurfaceName[]
const whole = (surface: SurfaceName) => replies[PATHS[surface]]!.whole.toString()
const routeOf = (surface: SurfaceName) => routes[surface]!
const stream = (surface: SurfaceName) => replies[PATHS[surface]]!.frames.map(String)

test('the upstream’s own replies are right, whole and as streams', () => {
  for (const surface of surfaces) {
    assert.equal(wrong(routeOf(surface), false, 200, whole(surface)), undefined)
    assert.equal(wrong(routeOf(surface), true, 200, stream(surface).join('')), undefined)
  }
  assert.equal(replies[PATHS.chat]!.whole.length, 400)
})

test('a reply that is short, altered or an error is wrong', () => {
  for (const surface of surfaces) {
    assert.match(wrong(routeOf(surface), false, 503, whole(surface))!, /status 503/)
    assert.ok(wrong(routeOf(surface), false, 200, whole(surface).slice(0, -1)))
    assert.ok(wrong(routeOf(surface), false, 200, whole(surface).replace('brown', 'green')))
    assert.ok(wrong(routeOf(surface), false, 200, '{"error":{}}'))
  }
})

test('a stream that lacks any frame, has one twice, or is cut anywhere is wrong', () => {
  for (const surface of surfaces) {
    const frames = stream(surface)
    // The frames that open and close carry no text on some surfaces; those with text, the end and the usage must be
    // there.
    for (let i = 5; i < frames.length; i += 13) {
      assert.ok(wrong(routeOf(surface), true, 200, frames.toSpliced(i, 1).join('')), `${surface} without frame ${i}`)
      assert.ok(
        wrong(routeOf(surface), true, 200, frames.toSpliced(i, 0, frames[i]!).join('')),
        `${surface} with ${i} twice`,
      )
    }
    assert.ok(wrong(routeOf(surface), true, 200, frames.slice(0, -1).join('')), `${surface} without its last frame`)
    const bytes = frames.join('')
    for (let cut = 1; cut < 60; cut += 7) assert.ok(wrong(routeOf(surface), true, 200, bytes.slice(0, -cut)))
  }
})

test('during a load, status, length and the terminal event are checked', () => {
  const expect = { payloadMin: 100, payloadMax: 104, terminal: TERMINAL.chat }
  const answer = (over: Partial<Answer>) =>
    fault({ status: 200, payload: 102, wire: 300, tail: Buffer.from(`x\n\n${TERMINAL.chat}`), ...over }, expect)
  assert.equal(answer({}), undefined)
  assert.equal(answer({ status: 500 }), 'status 500')
  assert.equal(answer({ payload: 99 }), 'short answer')
  assert.equal(answer({ payload: 105 }), 'long answer')
  assert.equal(answer({ tail: Buffer.from('x') }), 'no terminal event')
})

/** What a connection reads of these pieces, written one by one. */
async function read(pieces: (string | Buffer)[], answers: number) {
  const server = net.createServer(socket => {
    socket.setNoDelay(true)
    socket.once('data', async () => {
      // Both ends are in this process: after a turn of the event loop the client has read what was written.
      for (const piece of pieces)
        await new Promise<void>(resolve => socket.write(piece, () => setImmediate(() => setImmediate(resolve))))
      if (answers === 0) socket.end()
    })
    socket.on('error', () => {})
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const read: { status: number; payload: number; wire: number; tail: string }[] = []
  const lost = await new Promise<string | undefined>(resolve => {
    const connection = new Connection((server.address() as AddressInfo).port, {
      onAnswer(answer) {
        read.push({ ...answer, tail: answer.tail.toString() })
        if (read.length === answers) resolve(undefined)
        else connection.send([Buffer.from('more')])
      },
      onLost: resolve,
    })
    connection.send([Buffer.from('ask')])
    server.once('close', () => connection.destroy())
  })
  server.close()
  server.emit('close')
  return { read, lost }
}

const head = (framing: string) => `HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n${framing}\r\n\r\n`

test('an answer is read the same wherever it is split', async () => {
  const sized = `${head('Content-Length: 10')}0123456789`
  const chunked = `${head('Transfer-Encoding: chunked')}4\r\n0123\r\na\r\nabcdefghij\r\n0\r\n\r\n`
  for (const [text, payload, tail] of [
    [sized, 10, '0123456789'],
    [chunked, 14, '0123abcdefghij'],
  ] as const)
    for (let at = 1; at < text.length; at++) {
      const { read: found, lost } = await read([text.slice(0, at), text.slice(at)], 1)
      assert.equal(lost, undefined)
      assert.deepEqual(found, [{ status: 200, payload, wire: text.length, tail }], `split at ${at}`)
    }
})

test('of a long answer the last bytes are kept, and all are counted', async () => {
  const pieces = Array.from({ length: 300 }, (_, i) => `${String(i).padStart(99, '.')}\n`)
  const text = pieces.join('')
  const chunks = pieces.map(piece => `64\r\n${piece}\r\n`)
  const { read: found } = await read([head('Transfer-Encoding: chunked'), ...chunks, '0\r\n\r\n'], 1)
  assert.equal(found[0]!.payload, text.length)
  assert.ok(found[0]!.tail.length >= 4096 && text.endsWith(found[0]!.tail))
})

test('an answer that is cut, too long or without a length is a loss', async () => {
  assert.equal((await read([`${head('Content-Length: 10')}01234`], 0)).lost, 'closed within an answer')
  assert.equal((await read([`${head('Transfer-Encoding: chunked')}5\r\nabcde\r\n`], 0)).lost, 'closed within an answer')
  assert.equal((await read([head('Connection: close')], 0)).lost, 'answered without a length within an answer')
  assert.match((await read([`${head('Content-Length: 2')}0123`], 0)).lost!, /more than the answer/)
})

test('requests are well-formed, and no two have the same text', () => {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-bench-test-'))
  try {
    for (const [name, route] of Object.entries(routes)) {
      const file = join(folder, name)
      writeRequests(file, route, true)
      const source = openRequests({ kind: 'short', file })
      const seen = new Set<string>()
      for (let i = 0; i < 5000; i++) {
        const request = Buffer.concat(source.next()).toString()
        const [top, body] = request.split('\r\n\r\n') as [string, string]
        assert.equal(Number(/content-length: (\d+)/.exec(top)![1]), body.length)
        assert.ok(top.startsWith(`POST ${PATHS[route.surface]} HTTP/1.1\r\n`))
        const { model, stream, messages, input } = JSON.parse(body)
        assert.deepEqual([model, stream], [route.model, true])
        const prompt = input ?? messages[0].content
        assert.equal(prompt.length, 1024)
        assert.match(prompt, /^\d{8} /)
        seen.add(prompt)
      }
      assert.equal(seen.size, 5000)
    }
  } finally {
    rmSync(folder, { recursive: true })
  }
})

test('an agent’s requests grow by what is new, average 100 KB, and are what their surfaces take', () => {
  for (const [name, route] of Object.entries(agentRoutes)) {
    const source = openRequests({ kind: 'agents', route, headers: {} })
    const sizes: number[] = []
    let last: { before: string; length: number } | undefined
    for (let i = 0; i < 72; i++) {
      const request = Buffer.concat(source.next()).toString()
      const [top, text] = request.split('\r\n\r\n') as [string, string]
      assert.equal(Number(/content-length: (\d+)/.exec(top)![1]), text.length)
      const body = JSON.parse(text)
      assert.deepEqual([body.model, body.stream, body.tools.length], [route.model, true, 40])
      if (route.agents === 'continued') {
        assert.equal(body.previous_response_id, i % 36 === 0 ? undefined : `resp_${i}`, `${name} ${i}`)
        source.hear!(Buffer.from(`data: {"response":{"id":"resp_${i + 1}"`))
        continue
      }
      sizes.push(text.length)
      // What came before comes again, byte for byte, up to the last message's end.
      const before = text.slice(0, text.lastIndexOf(route.surface === 'messages' ? '],"system"' : '],"tools"'))
      if (i % 36 > 0) {
        assert.ok(before.startsWith(last!.before), `${name} ${i}`)
        assert.ok(before.length - last!.length > 2500 && before.length - last!.length < 4000)
      }
      last = { before, length: before.length }
    }
    if (route.agents === 'continued') continue
    const mean = sizes.reduce((sum, size) => sum + size) / sizes.length
    assert.ok(mean > 95_000 && mean < 112_000, `${name}: ${mean}`)
  }
})

test('the overload tells served from refused, by code, and wrong from both; nobody waits for another', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-bench-test-'))
  const file = join(folder, 'requests')
  writeRequests(file, routes['chat']!, false)
  const refusal = '{"error":{"code":"route_capacity"}}'
  let n = 0
  const server = createServer((request, response) => {
    request.resume()
    // Of four: one is served, one refused, one wrong, one hangs.
    const which = n++ % 4
    if (which === 0) response.end(replies[PATHS.chat]!.whole)
    else if (which === 1) response.writeHead(503, { 'content-length': refusal.length }).end(refusal)
    else if (which === 2) response.end('no')
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  try {
    const job: Job = {
      port: (server.address() as AddressInfo).port,
      rate: 100,
      connections: 60,
      requests: { kind: 'short', file },
      leadInMs: 0,
      measureMs: 4000,
      expect: { payloadMin: 400, payloadMax: 400, terminal: '' },
      pid: process.pid,
    }
    const program = join(import.meta.dirname, '../../bench/load/overload.ts')
    const { stdout } = await promisify(execFile)(process.execPath, [...FLAGS, program, JSON.stringify(job)])
    const report = JSON.parse(stdout) as Report
    assert.ok(report.served > 0 && report.refused > 0)
    assert.deepEqual(Object.keys(report.codes), ['503 route_capacity'])
    assert.deepEqual(Object.keys(report.failures), ['short answer'])
    assert.ok(report.refusedP50 > 0 && report.servedP99 >= report.servedP50)
    // Sixty of the hundred that hang take all connections.
    assert.ok(report.givenUp > 0)
  } finally {
    server.closeAllConnections()
    server.close()
    rmSync(folder, { recursive: true })
  }
})

test('figures: percentiles, medians, ratios of rounds that count', () => {
  const values = Array.from({ length: 1000 }, (_, i) => 1000 - i)
  assert.equal(percentile(values, 0.5), 500)
  assert.equal(percentile(values, 0.999), 999)
  assert.equal(percentile(values, 1), 1000)
  assert.equal(median([3, 1, 2]), 2)
  assert.equal(median([4, 1, 2, 3]), 2.5)
  const samples = new Map<string, (Figures | undefined)[]>([
    ['a', [{ rate: 10 }, { rate: 90 }, undefined, { rate: 30 }]],
    ['b', [{ rate: 20 }, undefined, { rate: 1 }, { rate: 10 }]],
  ])
  assert.equal(ratio(samples, 'rate', 'a', 'b'), 1.75)
  assert.equal(ratio(samples, 'rate', 'a', 'absent'), undefined)
  const [least, most, ...none] = goals(
    { text: 'x', value: 2, least: 3 },
    { text: 'y', value: 2, most: 3 },
    { text: 'z', value: undefined, least: 1 },
  )
  assert.deepEqual([reached(least!), reached(most!), none.length], [false, true, 0])
})
