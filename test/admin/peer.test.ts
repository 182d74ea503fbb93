/** Calls between the primary and a worker. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { answering, Peer, type Send } from '../../admin/peer.ts'

type Calls = { double(n: number): Promise<number>; fail(): never }
const calls: Calls = {
  double: async n => 2 * n,
  fail: () => {
    throw new Error('no disk')
  },
}

/** A peer whose messages wait in `sent` while the other side hangs. */
function pair() {
  const sent: unknown[] = []
  let take: Send | undefined
  const peer = new Peer<Calls>(message => (take ? take(message) : void sent.push(message)))
  const wake = () => {
    take = answering(calls, message => peer.receive(message))
    for (const message of sent.splice(0)) take(message)
  }
  return { peer, sent, wake }
}

test('a call is answered with its value, or rejects with the error of the other side', async () => {
  const { peer, wake } = pair()
  const early = peer.call('double', 2)
  wake()
  assert.equal(await early, 4)
  assert.deepEqual(await Promise.all([peer.call('double', 1), peer.call('double', 3)]), [2, 6])
  await assert.rejects(peer.call('fail'), /no disk/)
})

test('what the other side has not answered when it ends is rejected, and so are later calls', async () => {
  const { peer } = pair()
  const open = peer.call('double', 2)
  peer.close()
  await assert.rejects(open, /the worker has ended/)
  await assert.rejects(peer.call('double', 2), /the worker has ended/)
})

test('a worker that hangs gets no more calls than a thousand; when it goes on, it answers them and gets others', async () => {
  const { peer, sent, wake } = pair()
  const open = Array.from({ length: 1000 }, (_, i) => peer.call('double', i))
  await assert.rejects(peer.call('double', 1), /the worker does not answer/)
  assert.equal(sent.length, 1000)
  wake()
  assert.equal((await Promise.all(open)).at(-1), 1998)
  assert.equal(await peer.call('double', 4), 8)
})
