/*
 * Loaded into the gateway under test before its own code (`NODE_OPTIONS=--import=…`). Both clocks stand still and move
 * only when the test says so, and Math.random() returns 0 until the test says otherwise. So timestamps, refills, cooldowns and jitter are the same in
 * every run. Timers run as usual. Ids stay random; `normalise.ts` replaces them by numbers.
 *
 * GOLDEN_CLOCK is the path of a socket that takes commands. Without it only the wall clock stands still, and durations
 * are real. A command is a line `WALL MONO CHANCE`. It sets the wall clock to WALL ms after its start, moves the
 * monotonic clock forward by MONO ms, and sets what Math.random() returns. The answer is a line too.
 */
import { rmSync } from 'node:fs'
import { createServer } from 'node:net'
import { isMainThread } from 'node:worker_threads'

const START = Date.UTC(2026, 0, 15, 12, 0, 30, 250)
let wall = START
const System = globalThis.Date

globalThis.Date = class extends System {
  static name = 'Date'
  constructor(...args) {
    super(...(args.length === 0 ? [wall] : args))
  }
  static now() {
    return wall
  }
}
let chance = 0
Math.random = () => chance

const { GOLDEN_CLOCK: path, SLUICE_PARENT: launched } = process.env
// The launcher loads this file too. Only the gateway, which it starts, must take commands for its clock.
if (launched && isMainThread) {
  // The wall clock goes its way apart from the monotonic one. The gateway's own clock would not follow it.
  const { SteadyClock } = await import('../../../core/tools/clock.ts')
  SteadyClock.prototype.now = () => wall
}
if (path && launched && isMainThread) {
  let mono = performance.now()
  performance.now = () => mono
  rmSync(path, { force: true })
  createServer(socket => {
    socket.setEncoding('utf8').on('data', order => {
      const [past, on, random] = order.trim().split(' ').map(Number)
      wall = START + past
      mono += on
      chance = random
      socket.write('done\n')
    })
    socket.on('error', () => {})
    socket.unref()
  })
    .listen(path)
    .unref()
}
