/** Profile 1: buffered chat through the full chain, compared with all contenders. */
import { ALL } from '../contenders/index.ts'
import { checkRecords, lane, type Samples, startAll, startUpstream } from '../lanes.ts'
import { measureBuffered } from '../load/buffered.ts'
import { median } from '../load/percentile.ts'
import { chat } from '../requests.ts'
import {
  type Figures,
  goals,
  inverse,
  medians,
  type Profile,
  paired,
  type RunOptions,
  ratio,
  ratios,
  show,
  table,
} from '../results.ts'

/** Starts these contenders, measures them in turns, and stops them. */
export async function sample(
  names: readonly string[],
  rounds: number,
  seconds: number,
  tls = false,
): Promise<Samples<Figures>> {
  const upstream = await startUpstream({ tls })
  const running = await startAll(names, { upstream: upstream.port, streaming: false, secure: upstream.secure })
  const lanes = [...running].map(([{ name, headers }, at]) => lane(name, at, chat, false, headers?.(upstream.port)))
  const samples = await measureBuffered(lanes, upstream, rounds, seconds)
  for (const at of [...running.values(), upstream]) await at.stop()
  checkRecords(lanes)
  return samples
}

/**
 * Compares the gateway with undici and with its own HTTP/1.1 client, by whole requests.
 * @returns a table of ratios: the figure with undici divided by that with our client, for rounds that measured both
 */
export async function compareClients({ rounds, seconds = 2 }: RunOptions): Promise<string> {
  const samples = await sample(['sluice', 'sluice-undici'], rounds, seconds)
  const rows = ['CPU µs/request', 'requests/s'].map(figure => {
    const ratios = paired(samples, figure, 'sluice-undici', 'sluice')
    return [figure, ...[median(ratios), Math.min(...ratios), Math.max(...ratios)].map(show), String(ratios.length)]
  })
  return table(['undici / own client', 'median', 'least', 'most', 'rounds'], rows)
}

export const buffered: Profile = {
  name: 'buffered',
  title: 'buffered chat: 1 KB prompt, 400-byte reply, 64 connections, openai-chat backend, ledger on sqlite',
  async run({ rounds, seconds = 2, contenders }) {
    const names = contenders ?? ALL
    const samples = await sample(names, rounds, seconds)
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
