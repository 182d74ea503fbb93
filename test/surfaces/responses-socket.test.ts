/** What is read of a WebSocket message before its turn comes is what JSON.parse would say of it. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { GatewayError } from '../../core/canon/errors.ts'
import { responses } from '../../surfaces/responses/index.ts'

const form = responses.socket!

/** The lane, 'notice', or the code of the refusal. */
function opened(text: string): string {
  const reading = form.open(Buffer.from(text))
  try {
    for (;;) {
      const { done, value } = reading.next()
      if (done) return value.kind === 'notice' ? 'notice' : `lane ${value.lane}`
    }
  } catch (error) {
    if (error instanceof GatewayError) return error.code
    throw error
  }
}

function meant(text: string): string {
  const { type, stream_id: lane } = JSON.parse(text)
  if (type === 'response.processed') return 'notice'
  if (type === undefined) return 'missing_required_parameter'
  if (type !== 'response.create') return 'unsupported_value'
  if (lane === undefined || lane === null) return 'lane undefined'
  return typeof lane === 'string' && /^[\w.-]{1,256}$/.test(lane) ? `lane ${lane}` : 'invalid_stream_id'
}

const word = fc.oneof(fc.constantFrom('\\', '"', '\\"', '}', ']', '{"type":"x"}', 'é😀', '\n'), fc.string())
const value = fc.letrec(tie => ({
  any: fc.oneof(
    { maxDepth: 4 },
    word,
    fc.integer(),
    fc.boolean(),
    fc.constant(null),
    fc.array(tie('any'), { maxLength: 4 }),
    fc.dictionary(word, tie('any'), { maxKeys: 4 }),
  ),
})).any
const member = fc.oneof(
  fc.tuple(
    fc.constant('type'),
    fc.oneof(fc.constantFrom('response.create', 'response.processed', 'response.steer'), value),
  ),
  fc.tuple(fc.constant('stream_id'), fc.oneof(fc.constantFrom('a', 'a.b-C_1', '', 'x y', 'x'.repeat(257)), value)),
  fc.tuple(word, value),
)
/** Members may come twice, in any order, with blanks between and with names in escapes. */
const message = fc
  .tuple(fc.array(fc.tuple(member, fc.boolean()), { maxLength: 8 }), fc.constantFrom('', ' ', '\n\t ', '\r\n'))
  .map(([members, blank]) => {
    const parts = members.map(([[name, value], escaped]) => {
      const key = escaped
        ? `"${[...name].map(c => (c.length === 1 ? `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}` : c)).join('')}"`
        : JSON.stringify(name)
      return `${blank}${key}${blank}:${blank}${JSON.stringify(value, null, blank.length)}${blank}`
    })
    return `${blank}{${blank}${parts.join(',')}}${blank}`
  })

test('any object: type and lane as JSON.parse has them', () => {
  fc.assert(
    fc.property(message, text => {
      assert.equal(opened(text), meant(text), text)
    }),
    { numRuns: 5000 },
  )
})

test('any other bytes end in a verdict, never in an exception', () => {
  fc.assert(
    fc.property(message, fc.nat(), fc.nat(), fc.string(), (text, from, length, junk) => {
      const at = from % (text.length + 1)
      opened(text.slice(0, at))
      opened(text.slice(0, at) + junk + text.slice(at + (length % 5)))
    }),
    { numRuns: 5000 },
  )
})

test('frames take the lane and, the first, the headers along; what speaks of HTTP alone stays behind', () => {
  assert.equal(form.frame('{"type":"a"}', undefined, null), '{"type":"a"}')
  assert.deepEqual(
    JSON.parse(
      form.frame('{"type":"a"}', 'l"', [
        ['content-type', 'x'],
        ['x-request-id', 'r'],
      ]),
    ),
    { type: 'a', stream_id: 'l"', headers: { 'x-request-id': 'r' } },
  )
})

test('a reply that is no stream is an error message: the body of the refusal, or that there is no event for it', () => {
  const refused = form.reply(429, [['retry-after', '2']], '{"error":{"code":"c","message":"m"}}', 'lane')
  assert.deepEqual(JSON.parse(refused), {
    type: 'error',
    status: 429,
    error: { code: 'c', message: 'm', headers: { 'retry-after': '2' } },
    headers: { 'retry-after': '2' },
    stream_id: 'lane',
  })
  const { type, status, error } = JSON.parse(form.reply(200, [], '{"answer":"of a plugin"}', undefined))
  assert.deepEqual([type, status, error.code], ['error', 501, 'not_implemented'])
})
