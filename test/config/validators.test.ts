/**
 * The validators of the gateway's own schemas are made together, with what they share written once. Against each schema
 * compiled alone and as it is: a reference that went wrong would lose a default, a fault or its place.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { knownSchemas } from '../../config/load.ts'
import { namesOf } from '../../config/schema.ts'
import { ready, validate } from '../../config/validate.ts'
import { catalog } from '../../plugins/index.ts'
import { dialects } from '../../providers/index.ts'
import { surfaces } from '../../surfaces/index.ts'
import { sample } from './samples.ts'

const sets = knownSchemas(catalog, namesOf(dialects, Object.keys(surfaces)))
for (const set of sets) ready(set)
const schemas = sets.flat()
/** Of most messages, sorted. */
const WORDS = ['at least', 'has no key', 'in quotes', 'must be', 'needs', 'not be empty', 'one of', 'twice']

test('made together they say of any value what each says alone, in words', () => {
  const alone = schemas.map(schema => ({ ...schema }))
  const seen = { valid: 0, words: new Set<string>() }
  fc.assert(
    fc.property(fc.gen(), fc.nat(schemas.length - 1), fc.constantFrom(4, 30, 1000), (g, i, slips) => {
      const value = sample(schemas[i]!, g, slips)
      const options = { name: 'part', bareNumbers: g(fc.boolean) }
      const found = validate(schemas[i]!, value, options)
      assert.deepEqual(found, validate(alone[i]!, value, options))
      if (!found.problems) seen.valid++
      for (const { message } of found.problems ?? []) {
        for (const words of WORDS) if (message.includes(words)) seen.words.add(words)
      }
    }),
    // The same samples each time: by chance alone a run may lack one of the words.
    { numRuns: 6000, seed: 1 },
  )
  assert.ok(seen.valid > 100, `${seen.valid} valid`)
  assert.deepEqual([...seen.words].sort(), WORDS)
})
