/** Profile 11: turns of agents, 100 KB each and 3 KB of it new, 16 conversations at a time, answered by streams. */
import { alternate, closedLoop, demandNone, type Lane, lane, ready, startAll, startUpstream, Void } from '../lanes.ts'
import { settled } from '../machine.ts'
import { agentRoutes, type Route } from '../requests.ts'
import { type Figures, goals, inverse, medians, type Profile, ratio, ratios } from '../results.ts'

export const CONVERSATIONS = 16
const LEAD_IN_MS = 500
/** The warm-up ends after this many turns, when the code of a JavaScript contender is compiled. */
const WARM_TURNS = 8_000
const WARM_RUNS = 8

const { chat, messagesOnChat, messages, responses, continued } = {
  chat: agentRoutes['agents-chat']!,
  messagesOnChat: agentRoutes['agents-messages-chat']!,
  messages: agentRoutes['agents-messages']!,
  responses: agentRoutes['agents-responses']!,
  continued: agentRoutes['agents-continued']!,
}
/** Contenders that only forward take the same bytes whatever the backend speaks. */
const forwarded = [chat, messages, responses, continued]
const routesOf: Record<string, Route[]> = {
  sluice: Object.values(agentRoutes),
  nginx: forwarded,
  'uws-undici': forwarded,
}
/** The routes that the regression guard compares. */
const guarded: Record<string, Route[]> = {
  sluice: [chat, messagesOnChat],
  nginx: [chat, messages],
  'uws-undici': [chat],
}

const REQUESTS = 'requests/s'
const CPU = 'CPU µs/request'

export const agents: Profile = {
  name: 'agents',
  title: `turns of agents: 100 KB on average, 3 KB of it new, 40 tools, ${CONVERSATIONS} conversations, streams of 60 events`,
  async run({ rounds, seconds = 2, contenders, quick }) {
    const upstream = await startUpstream()
    const names = contenders ?? ['sluice', 'nginx', 'uws-undici', 'portkey', 'litellm']
    const running = await startAll(names, { upstream: upstream.port, streaming: true })
    const lanes = [...running].flatMap(([{ name, headers, times = 1 }, at]) =>
      ((quick ? guarded : routesOf)[name] ?? [chat]).map(route => ({
        ...lane(laneName(name, route), at, route, true, headers?.(upstream.port)),
        times,
      })),
    )
    const good = await ready(lanes, warm)
    const samples = await alternate(good, rounds, each => measure(each, each.times * seconds * 1000))
    for (const at of [...running.values(), upstream]) await at.stop()

    const to = (peer: string, route: Route, theirs = route): [string, string] => [
      laneName('sluice', route),
      laneName(peer, theirs),
    ]
    const peers = names.filter(name => name !== 'sluice')
    const pairs = peers.flatMap(peer => [
      ...(routesOf[peer] ?? [chat]).map(route => to(peer, route)),
      ...(routesOf[peer] ? [to(peer, messagesOnChat, messages)] : []),
    ])
    const cpu = inverse(pairs)
    return {
      profile: 'agents',
      lanes: medians(samples),
      ratios: { ...ratios(samples, REQUESTS, pairs), ...ratios(samples, CPU, cpu) },
      goals: goals(
        ...Object.values(agentRoutes).map(route => {
          const [ours, theirs] = to('nginx', route, route === messagesOnChat ? messages : route)
          return {
            text: `CPU time of nginx to ours, ${route.name}`,
            value: ratio(samples, CPU, theirs, ours),
            least: 0.2,
          }
        }),
      ),
    }
  },
}

const laneName = (contender: string, route: Route) => `${contender}: ${route.name.replace('agents: ', '')}`

async function warm(each: Lane): Promise<void> {
  for (let i = 0, turns = 0; i < WARM_RUNS && turns < WARM_TURNS; i++)
    turns += (await closedLoop(each, CONVERSATIONS, LEAD_IN_MS, 2000)).answers
}

async function measure(each: Lane, measureMs: number): Promise<Figures> {
  const report = await closedLoop(each, CONVERSATIONS, LEAD_IN_MS, measureMs)
  await settled(each.running.pid)
  demandNone(report.failures)
  if (report.answers === 0) throw new Void('no answer in the measured time')
  return {
    [REQUESTS]: report.answers / report.seconds,
    [CPU]: report.cpuMicros / report.answers,
    'busy %': report.cpuMicros / report.seconds / 1e4,
    'KB/request': report.requestBytes / report.answers / 1000,
    'p50 ms': report.p50,
    'p99 ms': report.p99,
  }
}
