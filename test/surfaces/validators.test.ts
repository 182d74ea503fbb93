/** What `npm run generate` writes to core/validators/generated/ against what ajv makes of the same schemas now. */
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import fc from 'fast-check'
import { GatewayError } from '../../core/errors.ts'
import { digest, type ValidatorFile, writtenAhead } from '../../core/validators/read.ts'
import { compileRequest, type Validate } from '../../surfaces/check.ts'
import { surfaces } from '../../surfaces/index.ts'
import type { Schema } from '../../surfaces/schema.ts'
import { sample } from '../config/samples.ts'

const CASES: [name: string, file: ValidatorFile, schema: Schema][] = [
  ['chat', 'chat', surfaces.chat.requestSchema],
  ['messages', 'messages', surfaces.messages.requestSchema],
  ['responses', 'responses', surfaces.responses.requestSchema],
  ['responses as WebSocket messages', 'responses', surfaces.responses.socket!.surface.requestSchema],
]

type Answer =
  | { body: unknown; stripped: string[] }
  | { body: unknown; code: string; param: string | null; message: string }

function answer(validate: Validate, body: unknown, unknownFields: 'reject' | 'strip'): Answer {
  const own = structuredClone(body)
  try {
    return { stripped: validate(own, unknownFields), body: own }
  } catch (error) {
    assert.ok(error instanceof GatewayError, String(error))
    return { code: error.code, param: error.param, message: error.message, body: own }
  }
}

for (const [name, file, schema] of CASES) {
  describe(name, () => {
    const written = compileRequest(schema, file)
    const compiled = compileRequest(schema)

    test('is written', () => {
      assert.ok(writtenAhead(file, { unknown: {} })[digest(schema)])
    })

    test('says of any body what ajv says', () => {
      const seen = { valid: 0, stripped: 0, codes: new Set<string>() }
      fc.assert(
        fc.property(fc.gen(), fc.constantFrom(4, 40, 1000), fc.constantFrom('reject', 'strip'), (g, slips, form) => {
          const body = sample({ ...schema, type: 'object' }, g, slips)
          const found = answer(written, body, form)
          assert.deepEqual(found, answer(compiled, body, form))
          if ('code' in found) seen.codes.add(found.code)
          else if (found.stripped.length > 0) seen.stripped++
          else seen.valid++
        }),
        // The same samples each time: by chance alone, a run in some dozens has too few of one kind.
        { numRuns: 3000, seed: 1 },
      )
      // The samples have been on both sides.
      assert.ok(seen.valid > 20, `${seen.valid} valid`)
      assert.ok(seen.stripped > 5, `${seen.stripped} stripped`)
      for (const code of ['unknown_parameter', 'missing_required_parameter', 'invalid_type', 'invalid_value'])
        assert.ok(seen.codes.has(code), `${code} among ${[...seen.codes].join()}`)
    })
  })
}

test('an edited schema is not answered for by the written one', () => {
  const { requestSchema } = surfaces.chat
  const edited = { ...requestSchema, required: [...(requestSchema['required'] as string[]), 'seed'] }
  const body = { model: 'm', messages: [{ role: 'user', content: 'hi' }] }
  assert.deepEqual(compileRequest(requestSchema, 'chat')(body, 'reject'), [])
  assert.throws(() => compileRequest(edited, 'chat')(body, 'reject'), {
    code: 'missing_required_parameter',
    param: 'seed',
  })
})
