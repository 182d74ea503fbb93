/** What a large heap grows by between two full collections, in a process of its own with the flags of the gateway. */
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { test } from 'node:test'
import { FLAGS } from '../../bin/flags.mjs'
import { growingPercent } from '../../cli/gateway/heap.ts'

const MIB = 1024 * 1024
const file = (path: string) => JSON.stringify(new URL(path, import.meta.url).href)

/** MiB of the largest heap of a process that keeps `live` MiB and makes as much garbage as it likes. */
function peak(live: number, bounded: boolean): number {
  const program = `
    import v8 from 'node:v8'
    const { ManualClock } = await import(${file('../../core/tools/clock.ts')})
    const { boundHeapGrowth } = await import(${file('../../cli/gateway/heap.ts')})
    const clock = new ManualClock()
    if (${bounded}) boundHeapGrowth(clock)
    const bytes = Buffer.alloc(500_000, 'a')
    const kept = Array.from({ length: ${live * 2} }, () => bytes.latin1Slice())
    let peak = 0
    for (let i = 0; i < ${live * 12}; i++) {
      kept[i % kept.length] = bytes.latin1Slice()
      clock.advance(200)
      peak = Math.max(peak, v8.getHeapStatistics().used_heap_size)
    }
    console.log(peak / ${MIB})`
  const args = [...FLAGS, '--input-type=module', '--eval', program]
  const { stdout, stderr, status } = spawnSync(process.execPath, args, { encoding: 'utf8' })
  assert.equal(status, 0, stderr)
  return Number(stdout)
}

test('a large heap grows by 256 MiB, and no longer by twice its size', () => {
  const [bounded, free] = [peak(150, true), peak(150, false)]
  assert.ok(free > 430, `${free}`)
  assert.ok(bounded < 150 + 256, `${bounded}`)
})

test('the percentage falls as the heap grows', () => {
  assert.deepEqual(
    [1, 128, 129, 256, 400, 1280, 4000].map(size => growingPercent(size * MIB)),
    [200, 200, 190, 100, 60, 20, 20],
  )
})
