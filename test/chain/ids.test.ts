import assert from 'node:assert/strict'
import { test } from 'node:test'
import { requestId, token } from '../../core/tools/ids.ts'

test('[GEN-1] request ids have their form, none comes twice, and later ones are greater', () => {
  const seen = new Set<string>()
  let time = ''
  for (let i = 0; i < 100_000; i++) {
    const id = requestId()
    assert.match(id, /^req_[A-Za-z0-9]{24}$/)
    assert.ok(id.slice(0, 11) >= time)
    time = id.slice(0, 11)
    seen.add(id)
  }
  assert.equal(seen.size, 100_000)
})

test('tokens draw every letter about as often', () => {
  const counts = new Map<string, number>()
  for (let i = 0; i < 10_000; i++) for (const letter of token(62)) counts.set(letter, (counts.get(letter) ?? 0) + 1)
  assert.equal(counts.size, 62)
  // 10,000 each; six standard deviations are 600.
  for (const [letter, n] of counts) assert.ok(Math.abs(n - 10_000) < 600, `${letter}: ${n}`)
})
