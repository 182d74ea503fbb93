/**
 * Measures buffered answers. wrk makes the load, and checks the length and the text of each answer. Meanwhile a prober
 * parses some answers and checks them exactly. The total of bytes and the upstream's count must agree with both.
 */
import { alternate, demandNone, type Lane, Prober, ready, type Samples, type Upstream, Void } from '../lanes.ts'
import { cpuMicros, settled } from '../machine.ts'
import type { Figures } from '../results.ts'
import { wrk } from './wrk.ts'

const CONNECTIONS = 64
/** The warm-up ends after this many requests, when the code of a JavaScript contender is compiled. */
const WARM_REQUESTS = 60_000
const WARM_RUNS = 8
/**
 * The head of an answer may have this many bytes more or less than when the lane was verified, because numbers in it
 * (what is left of a limit, and when it is full again) change their number of digits.
 */
const HEAD_BYTES = 8
/** The time between two exact checks while the load runs. */
const PROBE_MS = 50

/** Verifies and warms the lanes, then measures them in turns. */
export async function measureBuffered(
  lanes: Lane[],
  upstream: Upstream,
  rounds: number,
  seconds: number,
): Promise<Samples<Figures>> {
  return alternate(await ready(lanes, warm), rounds, lane => measure(lane, upstream, seconds))
}

/** Runs the load until the contender's code is compiled. */
export async function warm({ running, file, expect }: Lane): Promise<void> {
  let requests = 0
  for (let i = 0; i < WARM_RUNS && requests < WARM_REQUESTS; i++)
    requests += (await wrk({ port: running.port, file, expect, connections: CONNECTIONS, seconds: 2 })).requests
  await settled(running.pid)
}

async function measure(lane: Lane, upstream: Upstream, seconds: number): Promise<Figures> {
  const { port, pid } = lane.running
  const before = await upstream.stats()
  const prober = probing(lane)
  const cpu = cpuMicros(pid)
  const report = await wrk({ port, file: lane.file, expect: lane.expect, connections: CONNECTIONS, seconds })
  const during = cpuMicros(pid) - cpu
  const probed = await prober.stop()
  const used = (await settled(pid)) - cpu
  demandNone(report.failures)
  lane.answered += report.requests

  // The last answer of each connection may be incomplete.
  const partial = CONNECTIONS * lane.wireMax
  const least = report.requests * (lane.wireMin - HEAD_BYTES)
  const most = report.requests * (lane.wireMax + HEAD_BYTES) + partial
  if (report.bytes < least || report.bytes > most)
    throw new Void(`${report.bytes} bytes for ${report.requests} answers; ${least} to ${most} would be right`)
  const sent = (await upstream.stats()).whole - before.whole
  const answers = report.requests + probed
  if (sent < answers || sent > answers + CONNECTIONS + 1)
    throw new Void(`${answers} answers for ${sent} that the upstream gave`)

  return {
    'requests/s': report.requests / report.seconds,
    'CPU µs/request': used / report.requests,
    'busy %': (100 * during) / (report.seconds * 1e6),
    'p50 ms': report.p50,
    'p99 ms': report.p99,
  }
}

/** Checks an answer exactly, every PROBE_MS. `stop` rejects with Void when one was wrong. */
function probing(lane: Lane): { stop(): Promise<number> } {
  const prober = new Prober(lane)
  let running = true
  const done = (async () => {
    for (let probed = 1; ; probed++) {
      await prober.ask()
      if (!running) return probed
      await new Promise(resolve => setTimeout(resolve, PROBE_MS))
    }
  })()
  // It may reject long before `stop` awaits it; that must not count as an unhandled rejection.
  done.catch(() => {})
  return {
    async stop() {
      running = false
      try {
        return await done
      } finally {
        prober.close()
      }
    },
  }
}
