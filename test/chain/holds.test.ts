import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import type { StreamEvent } from '../../core/canon/events.ts'
import { Holds, type HoldsOwner } from '../../core/engine/exchange/holds.ts'

const text = (n: number): StreamEvent => ({ type: 'text', text: String(n) })

/** Holds whose owner writes down what leaves and what it is told. @param onLeave runs while an event leaves */
function holding(onLeave: (event: StreamEvent, holds: Holds) => void = () => {}) {
  const left: string[] = []
  const told: string[] = []
  const owner: HoldsOwner = {
    leave(event) {
      left.push(event.type === 'text' ? event.text : event.type)
      onLeave(event, holds)
    },
    held: () => void told.push('held'),
    released: () => void told.push('released'),
    crashed: cause => void told.push(`crashed: ${(cause as Error).message}`),
  }
  const holds = new Holds(owner)
  return { holds, left, told }
}

test('events leave in order, once each, however holds are taken and released meanwhile', () => {
  // One action after the other: an event passes, a hold is taken, or one of those taken is released. Some events bring
  // about a hold as they leave, and some an event.
  const action = fc.oneof(
    fc.record({ kind: fc.constant('event' as const), as: fc.constantFrom('plain', 'holds', 'passes') }),
    fc.record({ kind: fc.constant('hold' as const) }),
    fc.record({ kind: fc.constant('release' as const), which: fc.nat(9) }),
  )
  fc.assert(
    fc.property(fc.array(action, { maxLength: 40 }), actions => {
      const releases: (() => void)[] = []
      const special = new Map<string, string>()
      const passed: string[] = []
      let next = 0
      const { holds, left } = holding(event => {
        const as = event.type === 'text' ? special.get(event.text) : undefined
        if (as === 'holds') releases.push(holds.take())
        if (as === 'passes') pass('plain')
      })
      function pass(as: string): void {
        const event = text(next++)
        passed.push((event as { text: string }).text)
        special.set(passed.at(-1)!, as)
        holds.pass(event)
      }
      for (const step of actions) {
        if (step.kind === 'event') pass(step.as)
        else if (step.kind === 'hold') releases.push(holds.take())
        else releases[step.which]?.()
        assert.deepEqual(left, passed.slice(0, left.length))
        if (!holds.any) assert.deepEqual(left, passed)
      }
      // Whatever is still held comes, if all let go; those that leave may hold again.
      for (let i = 0; i < releases.length; i++) releases[i]!()
      assert.deepEqual(left, passed)
    }),
  )
})

test('the owner hears of the first hold and of the last release', () => {
  const { holds, told } = holding()
  const one = holds.take()
  const two = holds.take()
  one()
  one()
  assert.deepEqual(told, ['held'], 'one release, called twice, undoes one hold')
  two()
  assert.deepEqual(told, ['held', 'released'])
})

test('given up: what is kept leaves but for the finish, and a late release does nothing', () => {
  const { holds, left, told } = holding()
  const release = holds.take()
  holds.pass(text(1))
  holds.pass({ type: 'finish', reason: 'stop' })
  holds.giveUp()
  release()
  assert.deepEqual(left, ['1'])
  assert.deepEqual(told, ['held'])
})

test('a fault in what leaves is the owner’s, not of whoever releases', () => {
  const { holds, told } = holding(() => {
    throw new Error('no frame for this')
  })
  const release = holds.take()
  holds.pass(text(1))
  release()
  assert.deepEqual(told, ['held', 'crashed: no frame for this'])
})
