/** Profile 1: buffered chat through the full chain, beside everyone. */
import { checkRecords, lane, startAll, startUpstream } from '../lanes.ts'
import { measureBuffered } from '../load/buffered.ts'
import { chat } from '../requests.ts'
import { goals, inverse, medians, type Profile, ratio, ratios } from '../results.ts'

export const buffered: Profile = {
  name: 'buffered',
  title: 'buffered chat: 1 KB prompt, 400-byte reply, 64 connections, openai-chat backend, ledger on sqlite',
  async run({ rounds, seconds = 2, contenders }) {
    const upstream = await startUpstream()
    const names = contenders ?? ['sluice', 'sluice-node', 'uws-undici', 'nginx', 'haproxy', 'http-proxy-3', 'portkey']
    const running = await startAll(names, { upstream: upstream.port, streaming: false })
    const lanes = [...running].map(([{ name, headers }, at]) => lane(name, at, chat, false, headers?.(upstream.port)))
    const samples = await measureBuffered(lanes, upstream, rounds, seconds)
    for (const at of [...running.values(), upstream]) await at.stop()
    checkRecords(lanes)

    const pairs = names.filter(name => name !== 'sluice').map((name): [string, string] => ['sluice', name])
    const to = (peer: string) => ratio(samples, 'requests/s', 'sluice', peer)
    return {
      profile: 'buffered',
      lanes: medians(samples),
      ratios: {
        ...ratios(samples, 'requests/s', pairs),
        ...ratios(samples, 'CPU µs/request', inverse(pairs)),
      },
      goals: goals(
        { text: 'of nginx', value: to('nginx'), least: 0.25 },
        { text: 'of uws-undici', value: to('uws-undici'), least: 0.45 },
        { text: 'of portkey', value: to('portkey'), least: 10 },
      ),
    }
  },
}
