import assert from 'node:assert/strict'
import type { Incoming } from '../../core/ports/listener.ts'
import { type Kind, RawClient, text } from './harness.ts'
import type { Outcome, Vector } from './vectors.ts'

/** Answers by path, and writes down what it ran. */
export function handler(runs: string[]): (incoming: Incoming) => void {
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

/** Sends a vector, and asserts its outcome at this listener. */
export async function check(
  kind: Kind,
  port: number,
  vector: Vector,
  runs: string[],
  refused: string[],
): Promise<void> {
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
