/**
 * How routing orders backends: by group, by weight, and the same for one conversation whatever comes and goes around
 * its backend.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import type { Backend } from '../../core/ports/dialect.ts'
import { prefer } from '../../plugins/routing.ts'

const backend = (id: string, weight = 1, group = 'a') => ({ id, weight, ...(group !== '' && { group }) }) as Backend
const ids = (list: readonly Backend[]) => list.map(({ id }) => id)
const key = fc.string({ minLength: 1, maxLength: 20 })
const group = fc
  .uniqueArray(fc.string({ minLength: 1, maxLength: 6 }), { minLength: 2, maxLength: 8 })
  .chain(names => fc.tuple(...names.map(name => fc.integer({ min: 1, max: 10 }).map(weight => backend(name, weight)))))

test('affinity: the same key gives the same order, in whatever order the group is written', () => {
  fc.assert(
    fc.property(group, key, (members, session) => {
      assert.deepEqual(ids(prefer(members, session)), ids(prefer([...members].reverse(), session)))
      assert.equal(new Set(ids(prefer(members, session))).size, members.length)
    }),
  )
})

test('affinity: a backend that goes moves only its own sessions, and one that comes takes only some', () => {
  fc.assert(
    fc.property(group, key, fc.nat(), (members, session, n) => {
      const gone = members[n % members.length]!
      const before = ids(prefer(members, session))
      const after = ids(
        prefer(
          members.filter(member => member !== gone),
          session,
        ),
      )
      assert.deepEqual(
        after,
        before.filter(id => id !== gone.id),
        'the others keep their order',
      )
    }),
  )
})

test('affinity: a heavier backend loses no session when only its own weight grows', () => {
  fc.assert(
    fc.property(group, key, fc.nat(), (members, session, n) => {
      const chosen = n % members.length
      const before = ids(prefer(members, session)).indexOf(members[chosen]!.id)
      const heavier = members.map((member, i) => (i === chosen ? { ...member, weight: member.weight * 2 } : member))
      assert.ok(ids(prefer(heavier, session)).indexOf(members[chosen]!.id) <= before)
    }),
  )
})

test('weights are shares of sessions, within a few per cent; weight 0 gets none', () => {
  const members = [backend('x', 1), backend('y', 3), backend('z', 6), backend('off', 0)]
  const counts: Record<string, number> = { x: 0, y: 0, z: 0 }
  for (let i = 0; i < 20_000; i++) counts[ids(prefer(members, `session ${i}`))[0]!]!++
  for (const [id, share] of [
    ['x', 0.1],
    ['y', 0.3],
    ['z', 0.6],
  ] as const)
    assert.ok(Math.abs(counts[id]! / 20_000 - share) < 0.02, `${id}: ${counts[id]! / 20_000}`)
  assert.equal(ids(prefer(members, 'session')).includes('off'), false)
})

test('groups stand where their first member stands; what has none keeps its place', () => {
  const list = [
    backend('first', 1, ''),
    backend('g1', 1, 'g'),
    backend('middle', 1, ''),
    backend('g2', 1, 'g'),
    backend('h1', 1, 'h'),
  ]
  for (let i = 0; i < 20; i++) {
    const order = ids(prefer(list, `s${i}`))
    assert.equal(order[0], 'first')
    assert.deepEqual(order.slice(1, 3).sort(), ['g1', 'g2'])
    assert.deepEqual(order.slice(3), ['middle', 'h1'])
  }
})
