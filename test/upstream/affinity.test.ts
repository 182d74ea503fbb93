/**
 * How routing orders backends: by group, by weight, and the same for one conversation whatever comes and goes around
 * its backend.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import type { Backend } from '../../core/ports/dialect.ts'
import { BackendOrder, Choices } from '../../plugins/shared/backend-order.ts'

const backend = (id: string, weight = 1, group = 'a') => ({ id, weight, ...(group !== '' && { group }) }) as Backend
const ids = (list: readonly Backend[]) => list.map(({ id }) => id)
const prefer = (members: readonly Backend[], session: string) => new BackendOrder(members).by(session)
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

/** A thousand backends that are alike, as a model has them which many accounts of one provider serve. */
const many = Array.from({ length: 1000 }, (_, i) => backend(`account-${i}/m`, 1 + (i % 3)))

test('a large group: each backend once, weights are shares, and few sessions move when one goes or comes', () => {
  const sessions = Array.from({ length: 6000 }, (_, i) => `session ${i}`)
  const order = new BackendOrder(many)
  const firsts = sessions.map(session => order.by(session)[0]!)
  for (const session of sessions.slice(0, 50)) assert.equal(new Set(order.by(session)).size, many.length)
  const heavy = firsts.filter(({ weight }) => weight === 3).length / firsts.length
  assert.ok(Math.abs(heavy - 0.5) < 0.03, `${heavy}`)
  const used = new Set(firsts).size
  assert.ok(used > 900, `${used} of the backends come first`)
  for (const others of [many.filter((_, i) => i !== 123), [...many, backend('new/m', 2)]]) {
    const after = new BackendOrder(others)
    const moved = sessions.filter((session, i) => after.by(session)[0]!.id !== firsts[i]!.id).length
    // One in a thousand is its share.
    assert.ok(moved < sessions.length / 100, `${moved} moved`)
  }
})

test('a large group: sessions whose first backends are out do not all go to the same one', () => {
  const order = new BackendOrder(many)
  const out = new Set(order.by('session 0').slice(0, 100))
  const next = new Set<string>()
  for (let i = 0; i < 20_000; i++) {
    const list = order.by(`session ${i}`)
    if (out.has(list[0]!)) next.add(list.find(each => !out.has(each))!.id)
  }
  assert.ok(next.size > 50, `${next.size}`)
})

test('one backend that is listed many times is ordered, too', () => {
  const list = Array.from({ length: 40 }, () => backend('same/m'))
  assert.equal(prefer(list, 'session').length, 40)
})

test('backends that differ in place, name and weight alone are alike; whatever else differs tells them apart', () => {
  const full = (over: Partial<Backend>) =>
    ({
      ...backend('a/m'),
      provider: 'a',
      dialect: 'openai-chat',
      baseUrl: 'http://a',
      headers: {},
      model: 'm',
      supports: new Set(['tools', 'images']),
      nativeTools: new Set(),
      settings: {},
      ...over,
    }) as unknown as Backend
  const list = [
    full({}),
    full({ id: 'b/m', provider: 'b', baseUrl: 'http://b', apiKey: 'k', weight: 5, group: 'z' }),
    full({ contextWindow: 1000 }),
    full({ supports: new Set(['tools']) as never }),
    full({ headers: { 'anthropic-beta': 'x' } }),
  ]
  const choices = new Choices(list)
  assert.deepEqual(
    choices.alike.map(({ members }) => members.length),
    [2, 1, 1, 1],
  )
  assert.equal(choices.of(list[1]!).one, list[0])
  const some = choices.order(new Set([choices.of(list[0]!), choices.of(list[2]!)])).by('x')
  assert.deepEqual(new Set(some), new Set([list[0], list[1], list[2]]))
})
