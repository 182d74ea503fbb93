import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { systemClock } from '../../core/clock.ts'

test('a timer longer than Node can count waits as long as it can', async () => {
  // `drain: 30d` ended every stream at once.
  let fired = false
  const timer = systemClock.setTimer(30 * 86_400_000, () => {
    fired = true
  })
  await sleep(20)
  timer.cancel()
  assert.equal(fired, false)
})
