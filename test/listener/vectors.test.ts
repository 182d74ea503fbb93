import assert from 'node:assert/strict'
import { suite, test } from 'node:test'
import { fastClock, kinds, RawClient, serving } from './harness.ts'
import { check, handler } from './vector-check.ts'
import { vectors } from './vectors.ts'

for (const kind of kinds) {
  suite(`${kind}: bad and odd requests`, { concurrency: false }, () => {
    // Those that come late are in vectors.long.test.ts.
    for (const vector of vectors.filter(v => v[kind].kind !== 'late')) {
      test(vector.name, { timeout: 120_000 }, () => {
        const runs: string[] = []
        return serving(kind, handler(runs), h => check(kind, h.port, vector, runs, h.refused), {
          clock: fastClock(20),
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
