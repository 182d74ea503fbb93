/** body-digest: the digest of the body as it was sent. */
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { test } from 'node:test'
import { MemoryIncoming } from '../../core/engine/memory-incoming.ts'
import { bodyDigestPlugin } from '../../plugins/body-digest.ts'
import { bodyDigest } from '../../plugins/shared/slots.ts'
import { runPlugin } from '../../plugins/testing.ts'

const sha256 = (body: string | Uint8Array) => createHash('sha256').update(body).digest('hex')

test('it is SHA-256 of the bytes, also of many, and of none', async () => {
  for (const body of ['{"model": "x", "messages": []}\n', 'ü'.repeat(10), '']) {
    const { exchange } = await runPlugin(bodyDigestPlugin, { request: { body } })
    assert.equal(exchange.peek(bodyDigest), sha256(body))
  }
  // More than one slice, and a last one that is not whole.
  const large = Buffer.alloc(9_000_000, 'abc')
  const { exchange } = await runPlugin(bodyDigestPlugin, { request: { body: large } })
  assert.equal(exchange.peek(bodyDigest), sha256(large))
})

test('nothing is digested to count tokens, nor for a client that has left', async () => {
  const counted = await runPlugin(bodyDigestPlugin, { request: { body: 'x' }, advisory: true })
  assert.equal(counted.exchange.peek(bodyDigest), undefined)
  const request = new MemoryIncoming({ body: Buffer.alloc(9_000_000) })
  const run = runPlugin(bodyDigestPlugin, { request })
  request.abort()
  const { exchange, settlement } = await run
  assert.equal(settlement.outcome, 'client_gone')
  assert.equal(exchange.peek(bodyDigest), undefined)
})
