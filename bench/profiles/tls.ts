/** Profiles 9 and 10: the upstream behind TLS, as real providers are. HTTP/2 is measured only when its contenders are named. */
import { alternate, lane, ready, type Samples, startAll, startUpstream } from '../lanes.ts'
import { chat } from '../requests.ts'
import { type Figures, inverse, medians, type Profile, type Result, ratios } from '../results.ts'
import { sample } from './buffered.ts'
import { measure, warm } from './streamed.ts'

const CONTENDERS = ['sluice', 'uws-undici', 'nginx', 'sluice-undici']
/** Compared are contenders on the same protocol. */
const PAIRS: [string, string][] = [
  ['sluice', 'nginx'],
  ['sluice', 'uws-undici'],
  ['sluice', 'sluice-undici'],
  ['sluice-http2', 'uws-undici-http2'],
]

function resultOf(profile: string, samples: Samples<Figures>, rate: string, cost: string): Result {
  return {
    profile,
    lanes: medians(samples),
    ratios: { ...ratios(samples, rate, PAIRS), ...ratios(samples, cost, inverse(PAIRS)) },
    goals: [],
  }
}

export const tlsBuffered: Profile = {
  name: 'tls-buffered',
  title: 'profile 1 with TLS to the upstream, verified',
  async run({ rounds, seconds = 2, contenders = CONTENDERS }) {
    const samples = await sample(contenders, rounds, seconds, true)
    return resultOf('tls-buffered', samples, 'requests/s', 'CPU µs/request')
  },
}

export const tlsStreamed: Profile = {
  name: 'tls-streamed',
  title: 'the chat streams of profile 3 with TLS to the upstream, verified',
  async run({ rounds, seconds = 1, contenders = CONTENDERS }) {
    const upstream = await startUpstream({ tls: true })
    const options = { upstream: upstream.port, streaming: true, secure: upstream.secure }
    const running = await startAll(contenders, options)
    const lanes = [...running].map(([{ name, headers }, at]) => lane(name, at, chat, true, headers?.(upstream.port)))
    const samples = await alternate(await ready(lanes, warm), rounds, each => measure(each, seconds * 1000))
    for (const at of [...running.values(), upstream]) await at.stop()
    return resultOf('tls-streamed', samples, 'events/s', 'CPU µs/event')
  },
}
