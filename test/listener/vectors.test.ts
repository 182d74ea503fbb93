import assert from 'node:assert/strict'
import { suite, test } from 'node:test'
import type { Incoming } from '../../core/listener.ts'
import { fastClock, type Kind, kinds, RawClient, serving, text } from './harness.ts'
import { type Outcome, type Vector, vectors } from './vectors.ts'

function handler(runs: string[]): (incoming: Incoming) => void {
  return incoming => {
    if (incoming.path === '/sentinel') return incoming.respond(200, text, 'sentinel')
    runs.push(`${incoming.method} ${incoming.path}`)
    if (incoming.path === '/sync') return incoming.respond(200, text, 'sync')
    if (incoming.path === '/async')
      return void setImmediate(() => setImmediate(() => incoming.respond(200, text, 'async')))
    incoming.readBody({ maxBytes: 1 << 20, timeoutMs: 2_000 }, fault => {
      incoming.respond(fault === 'timeout' ? 408 : fault ? 413 : incoming.upgrade ? 426 : 200, text, 'read')
    })
  }
}

async function check(kind: Kind, port: number, vector: Vector, runs: string[], refused: string[]): Promise<void> {
  const outcome: Outcome = vector[kind]
  refused.length = 0
  const client = await RawClient.open(port)
  try {
    client.send(vector.bytes)
    switch (outcome.kind) {
      case 'served': {
        const answers = await client.answers(outcome.statuses.length)
        assert.deepEqual(
          answers.map(a => a.status),
          outcome.statuses,
        )
        assert.equal(client.closed, undefined)
        // In step: the next request on the connection gets the next answer, and it is its own.
        client.send('GET /sentinel HTTP/1.1\r\nHost: a\r\n\r\n')
        const all = await client.answers(outcome.statuses.length + 1)
        assert.equal(all.length, outcome.statuses.length + 1)
        assert.equal(all.at(-1)!.body.toString(), 'sentinel')
        break
      }
      case 'refused': {
        await client.closing()
        const [answer, ...more] = await client.answers(1)
        assert.equal(answer?.status, outcome.status)
        assert.equal(JSON.parse(answer!.body.toString()).error.message, outcome.reason)
        assert.equal(answer!.headers.get('connection'), 'close')
        assert.equal(more.length, 0)
        assert.deepEqual(refused, [outcome.reason])
        break
      }
      case 'answered':
      case 'own': {
        await client.closing()
        const answers = await client.answers(1)
        assert.deepEqual(
          answers.map(a => a.status),
          [outcome.status],
        )
        assert.equal(/uWebSockets/.test(answers[0]!.body.toString()), outcome.kind === 'own')
        break
      }
      case 'dropped':
      case 'late':
        await client.closing()
        assert.equal(client.received.length, 0, client.received.toString('latin1'))
    }
    const expected = vector.runs ?? []
    assert.deepEqual(runs, Array.isArray(expected) ? expected : expected[kind])
  } finally {
    client.destroy()
  }
}

for (const kind of kinds) {
  suite(`${kind}: bad and odd requests`, { concurrency: false }, () => {
    for (const vector of vectors.filter(v => v[kind].kind !== 'late')) {
      test(vector.name, { timeout: 120_000 }, () => {
        const runs: string[] = []
        return serving(kind, handler(runs), h => check(kind, h.port, vector, runs, h.refused), {
          clock: fastClock(20),
        })
      })
    }
    // These wait for uWebSockets.js's own clock: 8 to 12 s for all of them together.
    const slow = vectors.filter(v => v[kind].kind === 'late')
    if (slow.length > 0) {
      test('no answer, closed by uWebSockets.js’s own clock', { timeout: 120_000 }, async () => {
        const runs: string[] = []
        await serving(kind, handler(runs), async h => {
          await Promise.all(slow.map(vector => check(kind, h.port, { ...vector, runs: [] }, runs, h.refused)))
        })
      })
    }
  })
}

test('no vector has a smuggled request served', () => {
  for (const vector of vectors) {
    const runs = vector.runs ?? []
    for (const kind of kinds) {
      assert.ok(!(Array.isArray(runs) ? runs : runs[kind]).some(run => run.includes('smuggled')), vector.name)
    }
  }
})

/**
 * uWebSockets.js reads the chunk size `9;;` as 0x9ba, so the client chooses where the body ends for it, while a proxy in
 * front reads on. The connection stayed open behind the answer, and the rest of the body was served as a request.
 */
suite('what stands in a body behind a misread chunk size', () => {
  const size = 0x9ba
  const pad = (length: number): string => 'x'.repeat(length)
  const hidden = 'GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n'
  const end = '\r\n0\r\n\r\n'
  // A correct reader sees nine bytes, then a chunk that holds the padding, what looks like an end, and the request.
  const second = (padding: number): string => (padding + end.length + hidden.length).toString(16)
  const between = `\r\n${second(size)}\r\n`
  const start = `9;;\r\n${pad(9)}${between}${pad(size - 9 - between.length)}${end}`
  for (const kind of kinds) {
    for (const path of ['/read', '/sync']) {
      for (const [name, pieces] of [
        ['later', [start, hidden]],
        ['in one piece', [start + hidden]],
      ] as const) {
        test(`${kind}: ${path}, ${name}, is not served`, () => {
          const runs: string[] = []
          return serving(
            kind,
            handler(runs),
            async ({ port }) => {
              const client = await RawClient.open(port)
              try {
                client.send(`POST ${path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n`)
                for (const [i, piece] of pieces.entries()) {
                  client.send(piece)
                  if (i < pieces.length - 1) await Promise.race([client.answers(1), client.closing()])
                }
                await client.closing()
              } finally {
                client.destroy()
              }
              assert.deepEqual(runs, [`POST ${path}`])
            },
            { clock: fastClock(20) },
          )
        })
      }
    }
  }
})
