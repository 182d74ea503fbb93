/**
 * The charts' last hour: kept by the gateway in a ring, sent as it lies there, and put together by the page with what
 * the feed brings.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { History, SERIES } from '../../admin/history.ts'
import type { Live } from '../../admin/snapshot.ts'
import { startGateway } from '../e2e/harness.ts'
import { eventually } from '../eventually.ts'

/** The page's module: plain JavaScript, without types. */
const { History: PageHistory } = await import(String(new URL('../../admin/dashboard/history.mjs', import.meta.url)))

/** A second in which `n` exchanges ended well. */
const second = (at: number, n: number): Live => ({
  at: at * 1000,
  ok: n,
  refused: 1,
  failed: 2,
  gone: 3,
  input: 4,
  output: 5,
  exchanges: 7,
  streams: 6,
  connections: 8,
  ttfb: { p50: null, p99: 0.5 },
  duration: { p50: 9, p99: 10 },
  loop: { p50: 11, p99: 12, max: 13 },
})
function read(bytes: Buffer): { times: number[]; rows: Record<string, number>[] } {
  const count = bytes.length / (8 + 4 * SERIES.length)
  const points = Array.from({ length: count }, (_, i) => i)
  return {
    times: points.map(i => bytes.readDoubleLE(8 * i)),
    rows: points.map(i =>
      Object.fromEntries(SERIES.map((name, j) => [name, bytes.readFloatLE(8 * count + 4 * (i * SERIES.length + j))])),
    ),
  }
}

test('an hour of seconds is kept, and no more is ever sent', () => {
  const history = new History()
  assert.equal(history.since(0).length, 0)
  const start = 1_700_000_000
  for (let i = 0; i < 5000; i++) history.add(second(start + i, i))
  const bytes = history.since(0)
  assert.equal(bytes.length, 244_800)
  const { times, rows } = read(bytes)
  assert.deepEqual([times[0], times.at(-1), times.length], [start + 1400, start + 4999, 3600])
  assert.deepEqual([rows[0]!['ok'], rows.at(-1)!['ok']], [1400, 4999])
  const { ok: _, ...rest } = rows[0]!
  assert.deepEqual(Object.values(rest), [1, 2, 3, 4, 5, 6, 7, 8, Number.NaN, 0.5, 9, 10, 12, 13])
  // Over the place where the ring begins anew.
  assert.deepEqual(
    read(history.since(start + 4989)).rows.map(row => row['ok']),
    Array.from({ length: 10 }, (_, i) => 4990 + i),
  )
  assert.equal(history.since(start + 4999).length, 0)
})

test('the page puts the past before what the feed has brought meanwhile, each second once', () => {
  const page = new PageHistory(['ok'])
  const times = (from: number, to: number) => Array.from({ length: to - from }, (_, i) => from + i)
  // It was open, lost the gateway at 10, and is back at 20: the feed's first points come before the answer does.
  for (const at of times(1, 11)) page.push(at, { ok: at })
  for (const at of [20, 21, 21]) page.push(at, { ok: at })
  page.fill(
    times(11, 21),
    times(11, 21).map(at => ({ ok: at })),
  )
  assert.deepEqual(page.window(['ok'], 3600), [times(1, 22), times(1, 22)])
  page.fill([], [])
  assert.equal(page.last, 21)
  // Longer than the hour that is kept.
  page.fill(
    times(22, 9000),
    times(22, 9000).map(at => ({ ok: at })),
  )
  assert.deepEqual(page.window(['ok'], 4000)[0], times(5400, 9000))
})

test('seconds of which no point came are a gap, and a point that is late is none', () => {
  const page = new PageHistory(['ok'])
  for (const at of [1, 2, 4.5, 20, 21]) page.push(at, { ok: at })
  assert.deepEqual(page.window(['ok'], 3600), [
    [1, 2, 4.5, 5.5, 20, 21],
    [1, 2, 4.5, null, 20, 21],
  ])
})

test('points are taken while no page is open', async () => {
  const g = await startGateway()
  try {
    for (let i = 0; i < 3; i++) await (await g.post('/v1/chat/completions', { model: 'gpt-9', messages: [] })).text()
    await eventually(() => g.gateway.ingress.running.size === 0)
    const points = async () => {
      const answer = await fetch(`${g.gateway.adminAddress}/history`)
      assert.equal(answer.headers.get('x-series'), SERIES.join(' '))
      return read(Buffer.from(await answer.arrayBuffer()))
    }
    // Within a second or two of the system's clock, by which pages are served.
    await eventually(async () => (await points()).rows.some(row => row['refused']! > 0))
    const { times } = await points()
    assert.deepEqual(times, [...times].sort())
    const since = await (await fetch(`${g.gateway.adminAddress}/history?since=${times.at(-1)}`)).arrayBuffer()
    assert.ok(read(Buffer.from(since)).times.every(at => at > times.at(-1)!))
  } finally {
    await g.close()
  }
})
