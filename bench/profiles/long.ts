/** Profile 5: prompts of 100 KB and 1 MB, ten at a time, and the latency of short requests meanwhile. */
import { join } from 'node:path'
import { temporaryFolder } from '../children.ts'
import { alternate, demandNone, lane, load, ready, startAll, startUpstream } from '../lanes.ts'
import type { Job as ClosedJob, Report as ClosedReport } from '../load/closed-loop.ts'
import type { Job as OpenJob, Report as OpenReport } from '../load/open-loop.ts'
import { chat, writeLongText } from '../requests.ts'
import { type Figures, goals, medians, type Profile } from '../results.ts'

const SIZES: [name: string, bytes: number][] = [
  ['100 KB', 100_000],
  ['1 MB', 1_000_000],
]
const AT_ONCE = 10
/** The short requests: so few that they do not slow anything down. */
const OTHERS = { connections: 16, rate: 200 }
const TEXT_BYTES = 24_000_000

export const long: Profile = {
  name: 'long',
  title: `prompts of 100 KB and 1 MB, ${AT_ONCE} at a time, and the p99 of short requests beside them`,
  async run({ rounds, seconds = 2, contenders }) {
    const upstream = await startUpstream()
    const text = join(temporaryFolder(), 'long-text')
    writeLongText(text, TEXT_BYTES)
    const names = contenders ?? ['sluice', 'uws-undici', 'nginx']
    const running = await startAll(names, { upstream: upstream.port, streaming: false })
    const lanes = [...running].flatMap(([{ name, headers }, at]) =>
      SIZES.map(([size, bytes]) => ({
        ...lane(`${name}: ${size}`, at, chat, false, headers?.(upstream.port)),
        bytes,
      })),
    )
    type LongLane = (typeof lanes)[number]
    let seed = 0
    const measure = async ({ running, route, headers, file, bytes, expect }: LongLane, measureMs: number) => {
      const closed: ClosedJob = {
        port: running.port,
        pid: running.pid,
        connections: AT_ONCE,
        requests: { kind: 'long', file: text, bytes, route, headers, seed: ++seed },
        leadInMs: 500,
        measureMs,
        // The gateway counts the longer prompt. Each of the two counts in its reply then has up to four more digits.
        expect: { ...expect, payloadMax: expect.payloadMax + 8 },
      }
      const open: OpenJob = {
        port: running.port,
        ...OTHERS,
        requests: { kind: 'short', file },
        leadInMs: 500,
        measureMs: measureMs - 300,
        expect,
      }
      const [big, others] = await Promise.all([
        load<ClosedReport>('closed-loop.ts', closed, measureMs + 30_000),
        load<OpenReport>('open-loop.ts', open, measureMs + 30_000),
      ])
      demandNone({ ...big.failures, ...others.failures })
      const figures: Figures = {
        'MB/s': (big.answers * bytes) / big.seconds / 1e6,
        'CPU ms/MB': big.cpuMicros / 1000 / ((big.answers * bytes) / 1e6),
        'prompt p50 ms': big.p50,
        'others p50 ms': others.p50,
        'others p99 ms': others.p99,
      }
      return figures
    }
    const good = (await ready(lanes, each => measure(each as LongLane, 1000))) as LongLane[]
    const samples = await alternate(good, rounds, each => measure(each, seconds * 1000))
    for (const at of [...running.values(), upstream]) await at.stop()

    const figures = medians(samples)
    const ours = figures['sluice: 1 MB']
    return {
      profile: 'long',
      lanes: figures,
      ratios: {},
      goals: goals(
        { text: '1 MB: MB/s of prompt text', value: ours?.['MB/s'], least: 40 },
        { text: '1 MB: p99 ms of other requests', value: ours?.['others p99 ms'], most: 25 },
      ),
    }
  },
}
