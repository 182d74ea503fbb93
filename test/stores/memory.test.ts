/** The embedded limit engine: what the suite for both engines does not reach. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { cost } from '../../core/canon/money.ts'
import { ManualClock } from '../../core/tools/clock.ts'
import type { Charge } from '../../stores/journal.ts'
import { MemoryLimits } from '../../stores/limits/memory.ts'
import { bucket, DAY, everyDimension, MINUTE, slots, spend } from './kit.ts'

test('admissions are answered at once, not by a promise', () => {
  const limits = new MemoryLimits({ clock: new ManualClock() })
  const cells = everyDimension()
  const admission = limits.admit({ org: 'acme', id: 'a', cells, amounts: cells.map(() => 1), now: 0 })
  assert.equal(admission.admitted, true)
  limits.close()
})

test('cells that are full again are dropped; those in use and spend of the running period stay', () => {
  const clock = new ManualClock()
  const limits = new MemoryLimits({ clock })
  for (let i = 0; i < 1200; i++) {
    const cells = [bucket('o:rpm', 60), bucket('k:key:tpm', 100), slots('o:conc', 5), spend('o:day', 1000)]
    limits.admit({ org: `org${i}`, id: 'a', cells, amounts: [1, 100, 1, 10], now: clock.now() })
    limits.settle(`org${i}`, 'a', [1, 100, 1, i % 2 ? 10 : 0], clock.now())
  }
  assert.equal(limits.size, 4800)
  clock.advance(5000)
  // The slots and the requests are free again; the tokens need a minute.
  assert.equal(limits.size, 2400)
  clock.advance(MINUTE + 3000)
  assert.equal(limits.size, 1200)
  clock.advance(DAY + 3000)
  assert.equal(limits.size, 0)
  limits.close()
  assert.equal(clock.pending, 0)
})

test('a dropped cell comes back as a full one, also for a set of cells asked before', () => {
  const clock = new ManualClock()
  const limits = new MemoryLimits({ clock })
  const cells = [bucket('o:rpm', 2)]
  const ask = (id: string) => limits.admit({ org: 'acme', id, cells, amounts: [1], now: clock.now() }).admitted
  assert.deepEqual([ask('a'), ask('b'), ask('c')], [true, true, false])
  for (const id of ['a', 'b']) limits.settle('acme', id, [1], clock.now())
  clock.advance(2 * MINUTE)
  assert.equal(limits.size, 0)
  assert.deepEqual([ask('d'), ask('e'), ask('f')], [true, true, false])
  limits.close()
})

/**
 * The sweep let every level refill as its cell first stood: after a reload that narrowed a limit, an organization that
 * asked before its bucket was full by the old one got the old rate for ever (35,460 requests in this hour instead of 60
 * a minute), and one whose cell was first met under platform load kept a tenth.
 */
test('[LIM-3] a level refills by the capacity it is now asked for, not by the one it was first met with', () => {
  for (const [before, now, expected] of [
    [600, 60, 60 * 60 - (600 - 60)],
    [60, 600, 60 * 600 + (600 - 60)],
  ] as const) {
    const clock = new ManualClock()
    const limits = new MemoryLimits({ clock })
    let asked = 0
    const passes = (capacity: number, cells = [bucket('o:rpm', capacity)]) => {
      let passed = 0
      for (; ; passed++) {
        const id = `r${asked++}`
        if (!limits.admit({ org: 'acme', id, cells, amounts: [1], now: clock.now() }).admitted) return passed
        limits.settle('acme', id, [1], clock.now())
      }
    }
    assert.equal(passes(before), before)
    let hour = passes(now)
    for (let i = 0; i < 720; i++) {
      clock.advance(5000)
      hour += passes(now)
    }
    assert.equal(hour, expected, `${before} a minute, then ${now}`)
    limits.close()
  }
})

test('a million settlements add up to the cent, and beyond', () => {
  const charges: Charge[] = []
  const clock = new ManualClock()
  const limits = new MemoryLimits({ clock, onCharge: (_org, _id, list) => void charges.push(...list) })
  const cells = [spend('o:month', Number.MAX_SAFE_INTEGER, 'month'), spend('k:key:day', Number.MAX_SAFE_INTEGER)]
  const price = { input: 1_250_000, output: 10_000_000 }
  let exact = 0n
  for (let i = 0; i < 1_000_000; i++) {
    const input = (i * 7919) % 20_011
    const bill = cost({ input, cached: input % 97, output: (i * 104_729) % 2003 }, price)
    exact += BigInt(bill)
    limits.admit({ org: 'acme', id: `r${i}`, cells, amounts: [50_000_000, 50_000_000], now: clock.now() })
    limits.settle('acme', `r${i}`, [bill, bill], clock.now())
  }
  const [month, day] = limits.peek('acme', cells, clock.now())
  assert.equal(BigInt(Number.MAX_SAFE_INTEGER - month!.remaining), exact)
  assert.equal(day!.remaining, month!.remaining)
  assert.equal(
    charges.reduce((sum, [, , , amount]) => sum + BigInt(amount), 0n),
    2n * exact,
  )
  assert.equal(limits.open, 0)
  limits.close()
})
