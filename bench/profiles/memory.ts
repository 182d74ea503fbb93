/** Profile 7: resident memory with no, 1,000 and 5,000 open streams, each with an event every four seconds. */
import { once } from 'node:events'
import { join } from 'node:path'
import { startProgram, stop } from '../children.ts'
import { alternate, demandNone, type Lane, lane, startAll, startUpstream, Void, verify } from '../lanes.ts'
import type { Job, Opened } from '../load/open-streams.ts'
import { LOAD, residentBytes } from '../machine.ts'
import { chat, type Route } from '../requests.ts'
import { type Figures, goals, medians, type Profile } from '../results.ts'

const STEPS = [1000, 5000]
const trickle: Route = { name: 'trickle', surface: 'chat', model: 'trickle-chat' }
/** The time before a reading. By then garbage of the opening is collected, and every stream has had an event. */
const SETTLE_MS = 4500

export const memory: Profile = {
  name: 'memory',
  title: 'resident memory with 0, 1,000 and 5,000 open streams',
  async run({ contenders }) {
    const upstream = await startUpstream()
    const names = contenders ?? ['sluice', 'uws-undici']
    const running = await startAll(names, { upstream: upstream.port, streaming: true })
    const lanes: Lane[] = []
    for (const [{ name, headers }, at] of running) {
      // A few streams are read to their end first, so that code is loaded before the first reading.
      await verify(lane(name, at, chat, true, headers?.(upstream.port)))
      lanes.push(lane(name, at, trickle, true, headers?.(upstream.port)))
    }
    const samples = await alternate(lanes, 1, measure)
    for (const at of [...running.values(), upstream]) await at.stop()
    const figures = medians(samples)
    return {
      profile: 'memory',
      lanes: figures,
      ratios: {},
      goals: goals({ text: 'KiB per open stream, of 5,000', value: figures['sluice']?.['KiB/stream'], most: 40 }),
    }
  },
}

async function measure({ running, file }: Lane): Promise<Figures> {
  const figures: Figures = { 'MiB at 0': residentBytes(running.pid) / 2 ** 20 }
  const job: Job = { port: running.port, requests: { kind: 'short', file } }
  const child = startProgram(LOAD, join(import.meta.dirname, '..', 'load', 'open-streams.ts'), [JSON.stringify(job)], {
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  })
  try {
    for (const step of STEPS) {
      child.send({ open: step })
      const [{ opened, failures }] = (await once(child, 'message')) as [Opened]
      demandNone(failures)
      if (opened !== step) throw new Void(`${opened} of ${step} streams open`)
      await new Promise(resolve => setTimeout(resolve, SETTLE_MS))
      figures[`MiB at ${step}`] = residentBytes(running.pid) / 2 ** 20
    }
  } finally {
    await stop(child)
  }
  const most = STEPS.at(-1)!
  figures['KiB/stream'] = ((figures[`MiB at ${most}`]! - figures['MiB at 0']!) * 1024) / most
  const [few] = STEPS as [number]
  figures[`KiB/stream from ${few}`] = ((figures[`MiB at ${most}`]! - figures[`MiB at ${few}`]!) * 1024) / (most - few)
  return figures
}
