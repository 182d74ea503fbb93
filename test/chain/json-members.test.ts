import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { jsonMembers } from '../../core/tools/json-members.ts'

/** The members with the texts of their values, whether the text was an object, and how often it paused. */
function read(text: string, slice?: number) {
  const bytes = Buffer.from(text)
  const members: [string | undefined, string][] = []
  const walk = jsonMembers(bytes, slice)
  for (let pauses = 0; ; ) {
    const { done, value } = walk.next()
    if (done) return { members, whole: value, pauses }
    if (value === undefined) pauses++
    else members.push([value.name, bytes.toString('utf8', value.from, value.to)])
  }
}

test('the members of every object are those of JSON.parse, however it is sliced', () => {
  const object = fc.dictionary(fc.string({ unit: 'binary', maxLength: 12 }), fc.jsonValue())
  fc.assert(
    fc.property(object, fc.constantFrom(undefined, 1, '\t'), fc.integer({ min: 1, max: 40 }), (value, space, slice) => {
      const { members, whole } = read(JSON.stringify(value, null, space), slice)
      assert.equal(whole, true)
      const expected = JSON.parse(JSON.stringify(value)) as Record<string, unknown>
      assert.deepEqual(
        members.map(([name]) => name),
        Object.keys(expected),
      )
      for (const [name, text] of members) assert.deepEqual(JSON.parse(text), expected[name!])
    }),
  )
})

test('names are read with their escapes, and long ones are not', () => {
  assert.deepEqual(read('{"\\u0061":1,"b":"\\"}" , "c" : {"d":[","]}}').members, [
    ['a', '1'],
    ['b', '"\\"}"'],
    ['c', '{"d":[","]}'],
  ])
  const name = 'x'.repeat(126)
  assert.deepEqual(read(`{"${name}":1,"${name}x":2,"\\q":3}`).members, [
    [name, '1'],
    [undefined, '2'],
    [undefined, '3'],
  ])
})

test('what is no object is none, up to where that shows', () => {
  for (const text of ['', ' ', '[]', '"a"', '{"a"}', '{"a" 1}', '{"a":1;"b":2}', '{', '{"a":1,', '{a:1}', '{,}'])
    assert.equal(read(text).whole, false, text)
  for (const text of ['{}', ' { } ', '{"a":1}', '{"a":}']) assert.equal(read(text).whole, true, text)
  assert.deepEqual(read('{"a":1 "b":2}').members, [['a', '1 "b"']])
})

test('it pauses at each slice, within a value and between many', () => {
  assert.equal(read(`{"a":"${'x'.repeat(1000)}"}`).pauses, 0)
  assert.equal(read(`{"a":"${'x'.repeat(1000)}"}`, 100).pauses, 10)
  const many = `{${Array.from({ length: 200 }, () => '"":1').join(',')}}`
  assert.ok(read(many, 100).pauses >= many.length / 100 - 1)
})
