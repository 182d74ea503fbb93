/** Reading a chain of retained responses. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { GatewayError } from '../../core/canon/errors.ts'
import type { Store } from '../../core/ports/store.ts'
import { type Added, Memory, type Reader } from '../../plugins/conversation/memory.ts'
import { Sealer } from '../../plugins/conversation/seal.ts'

/** A request that may hold all. */
const any: Reader = { take() {}, onLeave: release => release() }

test('[REQ-2] [RESP-2] a chain is read as far as a request may hold, and no further', async () => {
  const kept = new Map<string, Uint8Array>()
  let reads = 0
  const records = {
    put: (_organization: string, _kind: string, id: string, value: Uint8Array) => void kept.set(id, value),
    get: (_organization: string, _kind: string, id: string) => {
      reads++
      return kept.get(id) ?? null
    },
    touch: () => {},
  }
  const clock = { now: () => 0, mono: () => 0, setTimer: () => ({ cancel() {} }) }
  const memory = new Memory({ records } as unknown as Store, new Sealer(new Uint8Array(32)), clock, 1000, 1000)
  const added: Added = {
    system: [],
    turns: [
      { role: 'user', parts: [{ type: 'text', text: 'x'.repeat(50) }] },
      { role: 'assistant', parts: [{ type: 'reasoning', summary: ['y'.repeat(50)] }] },
    ],
  }
  for (let i = 0; i < 20; i++) {
    const previous = i === 0 ? undefined : `r${i - 1}`
    memory.retain('acme', `r${i}`, { ...added, ...(previous && { previous }) }, undefined)
  }
  assert.equal(((await memory.recall('acme', 'r19', 2000, any)) as Added).turns.length, 40)
  reads = 0
  assert.equal(await memory.recall('acme', 'r19', 250, any), 300)
  assert.equal(reads, 3)
  // Each link counts before it is opened, and the first that may not be held ends the recall.
  reads = 0
  const held: number[] = []
  const full = new GatewayError('concurrency_limit_exceeded', { message: 'full' })
  const take = (bytes: number) => {
    if (held.length === 4) throw full
    held.push(bytes)
  }
  await assert.rejects(async () => memory.recall('acme', 'r19', 2000, { ...any, take }), full)
  assert.deepEqual(
    held,
    [19, 18, 17, 16].map(i => kept.get(`r${i}`)!.length),
  )
  assert.equal(reads, 5)
})

test('large chains of one organization are in preparation two at a time', async () => {
  const kept = new Map<string, Uint8Array>()
  const records = {
    put: (_organization: string, _kind: string, id: string, value: Uint8Array) => void kept.set(id, value),
    get: async (_organization: string, _kind: string, id: string) => kept.get(id),
    touch: () => {},
  }
  const clock = { now: () => 0, mono: () => 0, setTimer: () => ({ cancel() {} }) }
  const memory = new Memory({ records } as unknown as Store, new Sealer(new Uint8Array(32)), clock, 1000, 1000)
  const added = (text: string): Added => ({ system: [], turns: [{ role: 'user', parts: [{ type: 'text', text }] }] })
  memory.retain('acme', 'first', added('x'), undefined)
  memory.retain('acme', 'last', { ...added('y'.repeat(2 << 20)), previous: 'first' }, undefined)
  let inPreparation = 0
  let most = 0
  let read = 0
  await Promise.all(
    [1, 2, 3, 4, 5].map(async () => {
      const releases: (() => void)[] = []
      const recalled = await memory.recall('acme', 'last', 1 << 23, {
        take() {},
        onLeave: release => releases.push(release),
      })
      most = Math.max(most, ++inPreparation)
      assert.equal((recalled as Added).turns.length, 2)
      read++
      // It is counted meanwhile, and the others could read on.
      for (let turn = 0; turn < 20; turn++) await new Promise(resolve => setImmediate(resolve))
      inPreparation--
      for (const release of releases) release()
    }),
  )
  assert.equal(read, 5)
  assert.equal(most, 2)
})
