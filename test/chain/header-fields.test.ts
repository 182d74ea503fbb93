import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { HeaderFields } from '../../core/tools/header-fields.ts'

const names = fc.constantFrom('a', 'b', 'date', 'etag', 'x-request-id', 'x-ratelimit-scope')

test('header fields are a Map, in the order they came', () => {
  fc.assert(
    fc.property(
      fc.array(fc.tuple(fc.constantFrom('set', 'set', 'set', 'delete', 'clear'), names, fc.string()), {
        maxLength: 60,
      }),
      steps => {
        const fields: Map<string, string> = new HeaderFields()
        const model = new Map<string, string>()
        for (const [step, name, value] of steps) {
          if (step === 'set') {
            assert.equal(fields.set(name, value), fields)
            model.set(name, value)
          } else if (step === 'delete') assert.equal(fields.delete(name), model.delete(name))
          else {
            fields.clear()
            model.clear()
          }
          assert.equal(fields.size, model.size)
          assert.equal(fields.has(name), model.has(name))
          assert.equal(fields.get(name), model.get(name))
        }
        assert.deepEqual([...fields], [...model])
        assert.deepEqual([...fields.keys()], [...model.keys()])
        assert.deepEqual([...fields.values()], [...model.values()])
        const seen: [string, string][] = []
        fields.forEach((value, name, self) => {
          assert.equal(self, fields)
          seen.push([name, value])
        })
        assert.deepEqual(seen, [...model])
      },
    ),
  )
})

test('header fields: a repeated field is one line (RFC 9110 5.3), a cookie one each (RFC 6265 3), and all of them go together', () => {
  const fields = new HeaderFields()
  for (const [name, value] of [
    ['vary', 'a'],
    ['set-cookie', 'a=1'],
    ['vary', 'b'],
    ['set-cookie', 'b=2'],
  ] as const)
    fields.add(name, value)
  assert.deepEqual(
    [...fields],
    [
      ['vary', 'a, b'],
      ['set-cookie', 'a=1'],
      ['set-cookie', 'b=2'],
    ],
  )
  assert.equal(fields.delete('set-cookie'), true)
  assert.deepEqual(fields.flat, ['vary', 'a, b'])
})
