import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { DenseSet, IdMap } from '../../core/tools/collections.ts'

const ids = fc.oneof(fc.integer({ min: 0, max: 40 }).map(String), fc.string({ maxLength: 6 }))

test('an id map is a Map, whatever comes and goes', () => {
  fc.assert(
    fc.property(
      fc.array(fc.tuple(fc.constantFrom('set', 'add', 'delete', 'take'), ids, fc.nat()), { maxLength: 400 }),
      steps => {
        const map = new IdMap<number>()
        const model = new Map<string, number>()
        for (const [step, id, value] of steps) {
          if (step === 'set') {
            map.set(id, value)
            model.set(id, value)
          } else if (step === 'add') {
            assert.equal(map.add(id, value), !model.has(id))
            if (!model.has(id)) model.set(id, value)
          } else if (step === 'take') {
            assert.equal(map.take(id), model.get(id))
            model.delete(id)
          } else assert.equal(map.delete(id), model.delete(id))
          assert.equal(map.size, model.size)
          assert.equal(map.has(id), model.has(id))
          assert.equal(map.get(id), model.get(id))
        }
        for (const [id, value] of model) assert.equal(map.get(id), value)
        assert.deepEqual([...map.entries()].sort(), [...model].sort())
      },
    ),
    { numRuns: 300 },
  )
})

test('a dense set is a Set, and gives each member up', () => {
  fc.assert(
    fc.property(fc.array(fc.tuple(fc.constantFrom('add', 'delete'), fc.nat(20)), { maxLength: 200 }), steps => {
      const members = Array.from({ length: 21 }, (_, name) => ({ name, place: -1 }))
      const set = new DenseSet<(typeof members)[number]>()
      const model = new Set<(typeof members)[number]>()
      for (const [step, i] of steps) {
        const member = members[i]!
        if (step === 'add') {
          set.add(member)
          model.add(member)
        } else assert.equal(set.delete(member), model.delete(member))
        assert.equal(set.size, model.size)
        assert.deepEqual(new Set(set), model)
      }
      for (const member of members) assert.equal(member.place >= 0, model.has(member))
      // Whoever is visited may leave.
      const visited: string[] = []
      set.forEach(member => {
        visited.push(String(member.name))
        set.delete(member)
      })
      assert.deepEqual(visited.sort(), [...model].map(member => String(member.name)).sort())
      assert.equal(set.size, 0)
    }),
    { numRuns: 300 },
  )
})
