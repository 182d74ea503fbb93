/** Profile 3: streams of 200 events on each surface, with the surface's own dialect and translated. */
import { ALL, type Running } from '../contenders/index.ts'
import { alternate, closedLoop, demandNone, type Lane, lane, ready, startAll, startUpstream, Void } from '../lanes.ts'
import { settled } from '../machine.ts'
import {
  chat,
  chatOnResponses,
  messages,
  messagesOnChat,
  type Route,
  responses,
  responsesOnMessages,
} from '../requests.ts'
import { type Figures, goals, inverse, medians, type Profile, ratio, ratios } from '../results.ts'
import { EVENTS } from '../upstream-replies.ts'

const CONNECTIONS = 64
const LEAD_IN_MS = 300
/** The warm-up ends after this many events, when the code of a JavaScript contender is compiled. */
const WARM_EVENTS = 400_000
const WARM_RUNS = 6

const same = [chat, messages, responses]
const translations = [chatOnResponses, messagesOnChat, responsesOnMessages]
/** The upstream writes each event separately, which is the most work that an event can cause. */
const single: Route = { name: 'chat, an event a write', surface: 'chat', model: 'single-chat' }

const routesOf: Record<string, Route[]> = { sluice: [...same, single, ...translations], nginx: [...same, single] }
/** The routes that the regression guard compares. */
const guarded: Record<string, Route[]> = { sluice: [chat, messagesOnChat] }

export const streamed: Profile = {
  name: 'streamed',
  title: 'streams of 200 events, 64 at a time, each surface, same dialect and translated',
  async run({ rounds, seconds = 1, contenders, quick }) {
    const upstream = await startUpstream()
    const names = contenders ?? ALL
    const running = await startAll(names, { upstream: upstream.port, streaming: true })
    const lanes = [...running].flatMap(([{ name, headers, times = 1 }, at]) =>
      ((quick ? guarded : routesOf)[name] ?? [chat]).map(route => ({
        ...laneOf(name, at, route, headers?.(upstream.port)),
        times,
      })),
    )
    const good = await ready(lanes, warm)
    const samples = await alternate(good, rounds, async each => {
      const figures = await measure(each, each.times * seconds * 1000)
      if (figures['events/s'] === 0) throw new Void('no content in the measured time')
      return figures
    })
    for (const at of [...running.values(), upstream]) await at.stop()

    const events = 'events/s'
    const figures = medians(samples)
    const cpu = (route: Route) => figures[laneName('sluice', route)]?.['CPU µs/event']
    const pairs: [string, string][] = [
      [laneName('sluice', messagesOnChat), laneName('sluice', chat)],
      ...[...same, single].map((route): [string, string] => [laneName('sluice', route), laneName('nginx', route)]),
      ...names
        .filter(name => name !== 'sluice' && name !== 'nginx')
        .map((name): [string, string] => [laneName('sluice', chat), laneName(name, chat)]),
    ]
    return {
      profile: 'streamed',
      lanes: figures,
      ratios: { ...ratios(samples, events, pairs), ...ratios(samples, 'CPU µs/event', inverse(pairs)) },
      goals: goals(
        ...same.map(route => ({ text: `CPU µs per event, ${route.name}`, value: cpu(route), most: 8 })),
        ...translations.map(route => ({ text: `CPU µs per event, ${route.name}`, value: cpu(route), most: 10 })),
        ...same.map(route => ({
          text: `events/s of nginx, ${route.name}`,
          value: ratio(samples, events, laneName('sluice', route), laneName('nginx', route)),
          least: 0.6,
        })),
      ),
    }
  },
}

const laneName = (contender: string, route: Route) => `${contender}: ${route.name}`
const laneOf = (contender: string, running: Running, route: Route, headers?: Record<string, string>) =>
  lane(laneName(contender, route), running, route, true, headers)

export async function warm(each: Lane): Promise<void> {
  for (let i = 0, events = 0; i < WARM_RUNS && events < WARM_EVENTS; i++)
    events += (await measure(each, 1000))['events/s']!
}

export async function measure(each: Lane, measureMs: number): Promise<Figures> {
  const { running, expect } = each
  const report = await closedLoop(each, CONNECTIONS, LEAD_IN_MS, measureMs)
  await settled(running.pid)
  demandNone(report.failures)
  // Events are computed from bytes, so that an incomplete stream counts for what arrived in the measured time.
  const events = (report.payloadBytes / ((expect.payloadMin + expect.payloadMax) / 2)) * EVENTS
  return {
    'events/s': events / report.seconds,
    'CPU µs/event': report.cpuMicros / events,
    'busy %': report.cpuMicros / report.seconds / 1e4,
    'stream p50 ms': report.p50,
  }
}
