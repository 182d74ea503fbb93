import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { parse } from 'yaml'
import { addKey, setKeyMember } from '../../cli/edit-keys.ts'
import { addPlugin } from '../../cli/plugin-new.ts'

const key = { id: 'new', sha256: 'ab'.repeat(32), status: 'active' }
const layouts: [string, string][] = [
  [
    'block',
    'organizations:\n  a:\n    plan: p # one\n    keys:\n      # first\n      - { id: x, status: active } # tail\n\n  b: { plan: q }\n# end\n',
  ],
  [
    'block items',
    'organizations:\n  a:\n    keys:\n      - id: x\n        status: active   # tail\n        limits: { requests_per_minute: 3 }\n    plan: p\n',
  ],
  ['list without indent', 'organizations:\n  a:\n    keys:\n    - { id: x, status: active }\n    plan: p\n'],
  ['flow', 'organizations: { a: { plan: p, keys: [{ id: x, status: active }] }, b: { plan: q } }\n'],
  ['no status', 'organizations:\n  a: { keys: [{ id: x }], plan: p }\n'],
  ['block without status', 'organizations:\n  a:\n    plan: p\n    keys:\n      - id: x\n        models: [m]   # m\n'],
  ['without a last newline', 'organizations:\n  a:\n    plan: p\n    keys:\n      - { id: x, status: active }'],
  [
    'CRLF',
    'organizations:\r\n  a:\r\n    plan: p\r\n    keys:\r\n      - { id: x, status: active } # tail\r\n  b: { plan: q }\r\n',
  ],
]

function commonStart(a: string, b: string): number {
  let n = 0
  while (n < a.length && a[n] === b[n]) n++
  return n
}
function commonEnd(a: string, b: string): number {
  let n = 0
  while (n < a.length && a.at(-1 - n) === b.at(-1 - n)) n++
  return n
}

for (const [name, text] of layouts) {
  test(`an edit changes one thing and no comment: ${name}`, () => {
    const before = parse(text)
    const revoked = setKeyMember(text, ['organizations'], 'a', 'x', ['status'], 'revoked')!
    const expected = structuredClone(before)
    expected.organizations.a.keys[0].status = 'revoked'
    assert.deepEqual(parse(revoked), expected)

    const added = addKey(text, ['organizations'], 'a', key)!
    const longer = structuredClone(before)
    longer.organizations.a.keys.push({ ...key })
    assert.deepEqual(parse(added), longer)

    const comments = (t: string) => t.match(/#.*/g) ?? []
    assert.deepEqual(comments(revoked), comments(text))
    assert.deepEqual(comments(added), comments(text))
    // Nothing is lost or reordered: what was there is what is left without the new key.
    const [start, end] = [commonStart(text, added), commonEnd(text, added)]
    assert.ok(start + end >= text.length, 'one piece was put in')
  })
}

test('organizations without keys get a list, in their own style', () => {
  for (const text of [
    'organizations:\n  a: { plan: p }\n',
    'organizations:\n  a: { plan: p, keys: [] }\n',
    'organizations:\n  a:\n    plan: p\n    keys: []  # none\n',
    'organizations:\n  a:\n    plan: p\n    keys:\n    billing: free\n',
    'organizations:\n  a:\n    plan: p\n    keys: ~\n',
    'organizations:\n  a:\n    plan: p # last\n',
  ]) {
    const added = addKey(text, ['organizations'], 'a', key)!
    assert.deepEqual(parse(added).organizations.a.keys, [key], added)
    assert.equal(parse(added).organizations.a.plan, 'p')
  }
})

test('what is not in the text is not edited', () => {
  const text = layouts[0]![1]
  assert.equal(addKey(text, ['organizations'], 'zzz', key), null)
  assert.equal(setKeyMember(text, ['organizations'], 'a', 'zzz', ['status'], 'revoked'), null)
  assert.equal(addKey('organizations: { file: ./x.yaml }\n', ['organizations'], 'a', key), null)
  assert.equal(addPlugin('version: 1\n', './x.ts', 'p', 0, 'x'), null)
  assert.equal(addPlugin('pipelines: { p: [a, b] }\nplugins: { file: ./x.yaml }\n', './x.ts', 'p', 0, 'x'), null)
})

test('a plugin goes into both lists, whatever their style', () => {
  const lists: [string, string[]][] = [
    ['', ['./x.ts']],
    ['plugins: []  # none yet\n', ['./x.ts']],
    ['plugins: ~\n', ['./x.ts']],
    ['plugins:\n', ['./x.ts']],
    ['plugins: [./a.ts]\n', ['./a.ts', './x.ts']],
    ['plugins:\n  - ./a.ts # one\n', ['./a.ts', './x.ts']],
  ]
  for (const [list, expected] of lists) {
    for (const chain of [
      'pipelines:\n  p:\n    - a\n    # answers\n    - t: {}\n    - z\n',
      'pipelines: { p: [a, t: {}, z] }\n',
    ]) {
      for (const text of [list + chain, chain + list]) {
        const { plugins, pipelines } = parse(addPlugin(text, './x.ts', 'p', 1, 'x')!)
        assert.deepEqual(plugins, expected, text)
        assert.deepEqual(pipelines.p, ['a', 'x', { t: {} }, 'z'], text)
      }
    }
  }
})

// Any number of keys, in flow or block style, in any order of statuses: an edit of one leaves the others as they are.
test('setting a status touches that key alone', () => {
  const status = fc.constantFrom('active', 'staged', 'revoked')
  const keys = fc.uniqueArray(fc.record({ id: fc.stringMatching(/^[a-z]{1,6}$/), status, block: fc.boolean() }), {
    minLength: 1,
    maxLength: 6,
    selector: k => k.id,
  })
  fc.assert(
    fc.property(keys, fc.nat(), status, (list, pick, next) => {
      const chosen = list[pick % list.length]!
      const lines = list.map(k =>
        k.block
          ? `      - id: "${k.id}" # ${k.id}\n        status: ${k.status}`
          : `      - { id: "${k.id}", status: ${k.status} } # ${k.id}`,
      )
      const text = `organizations:\n  a:\n    keys:\n${lines.join('\n')}\n    plan: p\n`
      const edited = setKeyMember(text, ['organizations'], 'a', chosen.id, ['status'], next)!
      assert.deepEqual(
        parse(edited).organizations.a.keys,
        list.map(k => ({ id: k.id, status: k.id === chosen.id ? next : k.status })),
      )
      assert.equal(edited.length - text.length, next.length - chosen.status.length)
    }),
  )
})
