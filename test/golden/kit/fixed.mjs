/*
 * Loaded into the gateway under test before its own code (`NODE_OPTIONS=--import=…`): time stands still and moves only
 * when the test says so, and chance always gives 0, so that timestamps, refills, cooldowns and jitter are the same in
 * every run. Timers run on. Ids stay random: `normalise.ts` numbers them.
 *
 * GOLDEN_CLOCK is the socket that takes orders; without it only the calendar stands still, and durations are real. An
 * order is a line, `WALL MONO`: the calendar is WALL ms past its start, the monotonic clock moves on by MONO ms. The
 * answer is a line too.
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
Math.random = () => 0

const { GOLDEN_CLOCK: path, SLUICE_PARENT: launched } = process.env
// The launcher loads this file as well; only the gateway, which it starts, has a clock to tell.
if (path && launched && isMainThread) {
  let mono = performance.now()
  performance.now = () => mono
  rmSync(path, { force: true })
  createServer(socket => {
    socket.setEncoding('utf8').on('data', order => {
      const [past, on] = order.trim().split(' ').map(Number)
      wall = START + past
      mono += on
      socket.write('done\n')
    })
    socket.on('error', () => {})
    socket.unref()
  })
    .listen(path)
    .unref()
}
