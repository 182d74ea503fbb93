/**
 * What a console does by itself, again and again. Each is right when several consoles do it at the same time, and when
 * one is killed while it does.
 */
import { meterUsage } from './billing/meters.ts'
import { lookAgain, settleDue } from './billing/moves.ts'
import { lookAtKeys } from './notices/keys.ts'
import { sendNotices } from './notices/outbox.ts'
import { readSpendNotices } from './notices/spend.ts'
import { sweep } from './people/sweep.ts'
import type { Parts } from './web/visit.ts'

const SECOND = 1000
const MINUTE = 60 * SECOND

const JOBS: readonly { every: number; run(parts: Parts): Promise<void> }[] = [
  { every: SECOND, run: settleDue },
  { every: SECOND, run: sendNotices },
  { every: 10 * SECOND, run: readSpendNotices },
  { every: MINUTE, run: meterUsage },
  { every: MINUTE, run: lookAtKeys },
  { every: 60 * MINUTE, run: lookAgain },
  { every: 60 * MINUTE, run: ({ db, config, now }) => sweep(db, config.sessions, now()) },
]

/**
 * Starts them: what the console before left undone is done at once. Each waits for its own last run.
 * @returns what stops them
 */
export function startJobs(parts: Parts): () => void {
  const timers = JOBS.map(({ every, run }) => {
    let running = false
    // What goes wrong every second is told once, until it goes right.
    let told = ''
    const tick = () => {
      if (running) return
      running = true
      parts.later(async () => {
        try {
          await run(parts)
          told = ''
        } catch (error) {
          const { message } = error as Error
          if (message !== told) parts.tell(`console: ${message}`)
          told = message
        } finally {
          running = false
        }
      })
    }
    tick()
    return setInterval(tick, every).unref()
  })
  return () => {
    for (const timer of timers) clearInterval(timer)
  }
}
