/** Streams that run while a row looks at something, and streams whose end the row's clock brings. */
import assert from 'node:assert/strict'
import type { Reply, Surface } from './reply.ts'
import type { Ask, World } from './world.ts'

/** How a stream ends that the gateway stops, by surface. */
export const STOPPED = (why: 'idle' | 'ceiling'): Record<Surface, string> => ({
  responses: `incomplete stream_${why}_timeout`,
  chat: 'length',
  messages: 'max_tokens',
})
/** Keep-alives tell a client that a silent stream still runs. */
const KEEP_ALIVE = /^: keep-alive|"type":"keepalive"|"type":"ping"/m

/** The provider falls silent. The stream must run until 3 s before the idle time, and must have ended 3 s after it. */
export async function idles(w: World, surface: Surface, idle: number, ask: Ask): Promise<Reply> {
  let moved = 0
  const reply = await w.well(surface, {
    stream: true,
    say: `[[sim: text "one two three ${'four '.repeat(30).trim()}"; stall 9]]`,
    ...ask,
    steps(raw) {
      if (moved === 0 && raw.includes('two')) return ++moved && idle - 3
      if (moved === 1 && KEEP_ALIVE.test(raw)) return ++moved && 6
      return undefined
    },
  })
  assert.equal(moved, 2, `ended ${moved === 0 ? 'at once' : `before ${idle} s`}: ${reply.raw.slice(-300)}`)
  assert.equal(reply.end, STOPPED('idle')[surface])
  return reply
}

/** The provider works on. The stream must run until 3 s before the ceiling, and must have ended 3 s after it. */
export async function reaches(w: World, surface: Surface, ceiling: number, ask: Ask): Promise<Reply> {
  let elapsed = 0
  let seen = 0
  const reply = await w.well(surface, {
    stream: true,
    say: '[[sim: tokens 5000; pace 4ms]]',
    ...ask,
    steps(raw) {
      const deltas = raw.split('delta').length
      if (deltas === seen || elapsed > ceiling) return undefined
      seen = deltas
      const left = ceiling - 3 - elapsed
      // What is seen may have been sent before the last move. Some of these together must be shorter than the idle time.
      const seconds = left > 0 ? Math.min(20, left) : 6
      elapsed += seconds
      return seconds
    },
  })
  assert.ok(elapsed > ceiling, `ended after ${elapsed} s of ${ceiling}: ${reply.raw.slice(-300)}`)
  assert.equal(reply.end, STOPPED('ceiling')[surface])
  return reply
}

/** Runs something while this many streams hold their places. */
export async function beside<T>(w: World, ask: Ask, times: number, attempt: () => Promise<T>): Promise<T> {
  const leave = new AbortController()
  const open = Array.from({ length: times }, () => {
    const { promise: begun, resolve } = Promise.withResolvers<void>()
    const steps = (raw: string) => (raw.includes('one') ? void resolve() : undefined)
    const say = '[[sim: text "one two three four five six"; stall 4]]'
    const stream = w.ask('chat', { ...ask, stream: true, say, steps, signal: leave.signal })
    return { begun, stream }
  })
  try {
    await Promise.all(open.map(({ begun }) => begun))
    return await attempt()
  } finally {
    leave.abort()
    await Promise.all(open.map(({ stream }) => stream))
  }
}
