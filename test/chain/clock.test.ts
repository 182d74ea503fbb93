import assert from 'node:assert/strict'
import { test } from 'node:test'
import { systemClock } from '../../core/tools/clock.ts'
import { timersOf } from '../eventually.ts'

test('a timer longer than Node can count waits as long as it can', async () => {
  // `drain: 30d` ended every stream at once.
  let fired = false
  const timer = systemClock.setTimer(30 * 86_400_000, () => {
    fired = true
  })
  await timersOf(20)
  timer.cancel()
  assert.equal(fired, false)
})
