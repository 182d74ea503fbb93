import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { ERRORS } from '../../core/canon/errors.ts'

test('docs/errors.md names what to do next for every code', () => {
  const text = readFileSync(join(import.meta.dirname, '../../docs/errors.md'), 'utf8')
  const steps = new Map(
    [...text.matchAll(/^\| `(\w+)` \|.*\| ([^|]*) \|$/gm)].map(([, code, step]) => [code!, step!.trim()]),
  )
  assert.deepEqual([...steps.keys()], Object.keys(ERRORS))
  for (const [code, step] of steps) assert.match(step, /^[A-Z].{8,}\.$/, code)
})
