/**
 * Workers that reload one file get one answer about the accounts of the store. Each asked by itself, one could find the
 * store out, or an account that was made meanwhile, and keep another configuration than the others.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { AllWorkers } from '../../admin/all-workers.ts'
import { answering, Peer } from '../../admin/peer.ts'
import type { GatewayFacts } from '../../admin/view.ts'
import type { WorkerApi } from '../../admin/worker-api.ts'
import type { NameUsers } from '../../core/ports/accounts.ts'
import { ManualClock } from '../../core/tools/clock.ts'

const gold = (organizations: number): NameUsers => ({ kind: 'plan', name: 'gold', organizations, ids: ['acme'] })
const names = { plan: ['gold'], model: [] }

/** Two workers, each of which answers with what `asked` gives. */
function workers(asked: (worker: number) => { users: NameUsers[] } | { fault: string }) {
  const clock = new ManualClock()
  const all = new AllWorkers(2, [], clock)
  for (const number of [1, 2]) {
    const peer: Peer<WorkerApi> = new Peer(message => take(message))
    const take = answering({ usersOf: async () => asked(number) }, message => peer.receive(message))
    all.joined(number, peer, { worker: number } as GatewayFacts)
  }
  return { all, clock }
}

test('one worker asks the store for all that reload; a worker that reloads again has it asked again', async () => {
  let calls = 0
  const { all, clock } = workers(() => ({ users: [gold(++calls)] }))
  const counts = async (...asking: number[]) =>
    (await Promise.all(asking.map(worker => all.usersOf(worker, names)))).map(([user]) => user!.organizations)
  assert.deepEqual(await counts(1, 2), [1, 1])
  // The operator has moved accounts, and saves again at once.
  assert.deepEqual(await counts(2, 1), [2, 2])
  // Another file, and one that is loaded later.
  assert.equal((await all.usersOf(1, { ...names, model: ['fast'] }))[0]!.organizations, 3)
  assert.deepEqual(await counts(1), [4])
  clock.advance(60_000)
  assert.deepEqual(await counts(2), [5])
})

test('a store that is out is out for all of them, with its reason', async () => {
  const { all } = workers(worker => ({ fault: `the store is out (${worker})` }))
  const answers = [1, 2].map(worker => all.usersOf(worker, names))
  for (const answer of answers) await assert.rejects(answer, /^Error: the store is out \(1\)$/)
  all.left(1)
  await assert.rejects(all.usersOf(2, names), /the store is out \(2\)/)
  all.left(2)
  await assert.rejects(all.usersOf(2, names), /no worker answers/)
})
