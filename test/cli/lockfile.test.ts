/**
 * `npm ci` of npm 11 refuses a lockfile that lacks the optional packages of other platforms; `npm install` on one
 * platform may prune them.
 */
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'

test('the lockfile lists every optional package, and names no registry', () => {
  const text = readFileSync(new URL('../../package-lock.json', import.meta.url), 'utf8')
  const { packages } = JSON.parse(text) as {
    packages: Record<string, { optionalDependencies?: Record<string, string> }>
  }
  const missing: string[] = []
  for (const [where, entry] of Object.entries(packages)) {
    for (const name of Object.keys(entry.optionalDependencies ?? {})) {
      const nested = `${where}/node_modules/${name}`
      if (!packages[`node_modules/${name}`] && !packages[nested]) missing.push(`${name} (of ${where || 'the project'})`)
    }
  }
  assert.deepEqual(missing, [])
  assert.doesNotMatch(text, /"resolved":/)
})
