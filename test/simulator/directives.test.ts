import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  DirectiveError,
  directivesIn,
  readDirectives,
  withoutDirectives,
} from '../../providers/simulator/directives.ts'

test('directives: none in plain text', () => {
  const found = directivesIn('hello [[other]] ]] [[ sim')
  assert.deepEqual(found, { delay: 0, pace: 0, rounds: [], quirks: new Set() })
})

test('directives: several in a block, several blocks', () => {
  const found = directivesIn(
    'a [[sim: delay 500ms; pace 2s; tokens 200; chunk 4]] b [[sim:finish length;usage none]] c',
  )
  assert.deepEqual(
    [found.delay, found.pace, found.tokens, found.chunk, found.finish, found.usage],
    [500, 2000, 200, 4, 'length', 'none'],
  )
})

test('directives: strings and JSON may hold what else would end them', () => {
  const found = directivesIn(
    '[[sim: text "a ]] ; \\"b\\""; call f {"x": "}]];", "y": [[1], {"z": 2}]}; call g "plain ]] text"; next call h]] rest',
  )
  assert.equal(found.text, 'a ]] ; "b"')
  assert.deepEqual(found.rounds, [
    [
      { name: 'f', plain: false, arguments: '{"x": "}]];", "y": [[1], {"z": 2}]}' },
      { name: 'g', plain: true, arguments: 'plain ]] text' },
    ],
    [{ name: 'h', plain: false, arguments: '{}' }],
  ])
})

test('directives: faults', () => {
  const of = (text: string) => readDirectives(text)
  assert.deepEqual(of('status 429 retry-after 7 code quota').status, {
    status: 429,
    body: 'json',
    retryAfter: '7',
    kind: 'quota',
  })
  assert.deepEqual(of('status 502 html').status, { status: 502, body: 'html' })
  assert.deepEqual(of('cut').cut, { unit: 'events', after: 0 })
  assert.deepEqual(of('cut 3').cut, { unit: 'events', after: 3 })
  assert.deepEqual(of('cut byte 30').cut, { unit: 'bytes', after: 30 })
  assert.deepEqual([of('stall').stall, of('close 2').close, of('end 4').end], [0, 2, 4])
  assert.deepEqual(of('error overloaded').error, { kind: 'overloaded', after: 1 })
  assert.deepEqual(of('error rate after 3').error, { kind: 'rate', after: 3 })
  assert.deepEqual(of('malformed utf8 after 2').malformed, { what: 'utf8', after: 2 })
  assert.deepEqual(of('reason 3 tokens 50').reason, { sentences: 3, tokens: 50 })
  assert.deepEqual(of('hidden 900').reason, { sentences: 0, tokens: 900 })
  assert.deepEqual([...of('quirk crlf; quirk bom').quirks], ['crlf', 'bom'])
})

test('directives: a typo is an error that names it', () => {
  for (const text of [
    'dealy 5ms',
    'delay soon',
    'tokens many',
    'text bare',
    'call f {"a":',
    'error strange',
    'usage some',
    'quirk odd',
    'text "a" extra',
    'status',
  ]) {
    assert.throws(() => readDirectives(text), DirectiveError, text)
  }
  assert.throws(() => directivesIn('[[sim: tokens 5'), /no \]\]/)
})

test('directives: the text around them is what is echoed', () => {
  assert.equal(withoutDirectives('[[sim: text "]]"]] hello [[sim: tokens 3]]there '), 'hello there')
  assert.equal(withoutDirectives('plain'), 'plain')
})
