/** Reading a chain of retained responses. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Continuation, Conversation, Part } from '../../core/canon/conversation.ts'
import { GatewayError } from '../../core/canon/errors.ts'
import type { Store } from '../../core/ports/store.ts'
import { Sealer } from '../../core/tools/sealer.ts'
import { type Added, continueFrom, Memory, type Reader, type Recalled } from '../../plugins/conversation/memory.ts'
import { RecentConversations } from '../../plugins/shared/recent.ts'

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

test('[RESP-2] a chain that was continued is not read again while the store has it', async () => {
  const kept = new Map<string, Uint8Array>()
  let reads: string[] = []
  const records = {
    put: (_organization: string, kind: string, id: string, value: Uint8Array) => void kept.set(`${kind} ${id}`, value),
    get(_organization: string, kind: string, id: string) {
      reads.push(id)
      return kept.get(`${kind} ${id}`) ?? null
    },
    getMany: (_organization: string, kind: string, ids: string[]) => ids.map(id => kept.get(`${kind} ${id}`) ?? null),
    hasAll: (_organization: string, kind: string, ids: string[]) => ids.every(id => kept.has(`${kind} ${id}`)),
    touch: () => {},
  }
  const clock = { now: () => 0, mono: () => 0, setTimer: () => ({ cancel() {} }) }
  const all = new RecentConversations()
  const bounds = { bytes: 100_000, organization_bytes: 100_000 }
  const memory = new Memory({ records } as unknown as Store, new Sealer(new Uint8Array(32)), clock, 1000, 1000, {
    all,
    bounds,
  })
  const call = (i: number): Part => ({
    type: 'call',
    id: `call_eba1_${i}`,
    kind: 'function',
    name: 'f',
    input: '{}',
    path: '',
  })
  const added = (i: number): Added => ({ system: [], turns: [{ role: 'assistant', parts: [call(i)] }] })
  const recalled = async (id: string) => {
    reads = []
    return (await memory.recall('acme', id, 1 << 20, any)) as Recalled
  }
  memory.retain('acme', 'r0', added(0), undefined)
  assert.equal(all.bytes, 0, 'most responses are never continued')
  for (let i = 1; i < 5; i++) {
    const before = await recalled(`r${i - 1}`)
    assert.deepEqual(reads, i === 1 ? ['r0'] : [], `turn ${i}`)
    assert.equal(before.turns.length, i)
    // Data of a provider is of one request: it may be gone at the next.
    memory.keep('acme', `call_eba1_${i - 1}`, { dialect: 'd', value: i } as unknown as Continuation)
    const whole = continueFrom(before, { system: [], turns: [], tools: [] } as unknown as Conversation)
    await memory.restore('acme', whole, 1 << 20, () => {})
    const parts = whole.turns.flatMap(turn => turn.parts) as { continuation?: unknown }[]
    assert.ok(parts.at(-1)!.continuation, 'what is stored is restored')
    kept.delete(`continuation call_eba1_${i - 1}`)
    memory.retain('acme', `r${i}`, { ...added(i), previous: `r${i - 1}` }, before)
  }
  const again = continueFrom(await recalled('r4'), { system: [], turns: [], tools: [] } as unknown as Conversation)
  assert.ok(again.turns.every(turn => turn.parts.every(part => !('continuation' in part))))
  // One that is continued twice is read the second time, since its chain has moved on.
  await recalled('r2')
  assert.deepEqual(reads, ['r2', 'r1', 'r0'])
  kept.delete('response r1')
  assert.deepEqual(await memory.recall('acme', 'r4', 1 << 20, any), { gone: 'r1' })
  assert.equal(all.bytes, 0)
})
