import assert from 'node:assert/strict'
import { globSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { neededPackages, PACKAGES } from '../ensure-deps.ts'

const file = (path: string) => join(import.meta.dirname, '..', path)

test('a test gets the packages that its helpers need: the browser of the dashboard’s tests, the server of the stores’', () => {
  assert.deepEqual(neededPackages([file('admin/dashboard.long.test.ts')]), ['chromium-headless-shell'])
  assert.ok(neededPackages([file('stores/redis.test.ts')]).includes('redis-server'))
  assert.deepEqual(neededPackages([file('config/units.test.ts')]), [])
  const all = globSync('**/*.test.ts', { cwd: file('.') }).map(file)
  assert.deepEqual(neededPackages(all).sort(), Object.keys(PACKAGES).sort())
})
