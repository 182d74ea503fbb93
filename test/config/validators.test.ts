/** What `npm run generate` writes to core/validators/generated/config.cjs against what ajv makes of the same schemas now. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { TEXT_FORMATS, validate, withoutDefault } from '../../config/validate.ts'
import { digest, writtenAhead } from '../../core/validators/read.ts'
import { optionSchemas } from '../../docs/generate/index.ts'
import { sample } from './samples.ts'

const schemas = optionSchemas()
/** Of most messages, sorted. */
const WORDS = ['at least', 'has no key', 'in quotes', 'must be', 'needs', 'not be empty', 'one of', 'twice']

test('every schema of the gateway itself has its validator written', () => {
  const written = writtenAhead('config', { formats: TEXT_FORMATS })
  for (const schema of schemas) assert.ok(written[digest(withoutDefault(schema))], JSON.stringify(schema).slice(0, 200))
})

test('the written validators say of any value what ajv says, in words', () => {
  // A comment makes it another schema, with nothing written for it.
  const unwritten = schemas.map(schema => ({ ...schema, $comment: 'compiled when used' }))
  const seen = { valid: 0, words: new Set<string>() }
  fc.assert(
    fc.property(fc.gen(), fc.nat(schemas.length - 1), fc.constantFrom(4, 30, 1000), (g, i, slips) => {
      const value = sample(schemas[i]!, g, slips)
      const options = { name: 'part', bareNumbers: g(fc.boolean) }
      const found = validate(schemas[i]!, value, options)
      assert.deepEqual(found, validate(unwritten[i]!, value, options))
      if (!found.problems) seen.valid++
      for (const { message } of found.problems ?? []) {
        // The default of describeOne: a keyword of the gateway's own schemas has no words, and none are written.
        assert.doesNotMatch(message, / is not valid$/)
        for (const words of WORDS) if (message.includes(words)) seen.words.add(words)
      }
    }),
    // The same samples each time: by chance alone a run may lack one of the words.
    { numRuns: 6000, seed: 1 },
  )
  assert.ok(seen.valid > 100, `${seen.valid} valid`)
  assert.deepEqual([...seen.words].sort(), WORDS)
})
