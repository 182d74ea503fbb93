/**
 * Profile 6: profile 1 with limits, spend and ledger in Redis on loopback, compared with SQLite. The Redis server runs
 * on the load's core, because in a deployment it runs on another machine.
 */
import { startSluice } from '../contenders/sluice.ts'
import { ensurePrograms } from '../install.ts'
import { lane, startUpstream } from '../lanes.ts'
import { measureBuffered } from '../load/buffered.ts'
import { startRedis } from '../redis-server.ts'
import { chat } from '../requests.ts'
import { goals, medians, type Profile, ratio, ratios } from '../results.ts'

export const redis: Profile = {
  name: 'redis',
  title: 'profile 1 with the redis store on loopback, beside sqlite',
  async run({ rounds, seconds = 2 }) {
    if (ensurePrograms(['redis-server']).size > 0) {
      console.error('! the redis profile is left out')
      return { profile: 'redis', lanes: {}, ratios: {}, goals: [] }
    }
    const upstream = await startUpstream()
    const server = await startRedis()
    const lanes = [
      lane('redis', await startSluice({ upstream: upstream.port, store: server.url }), chat, false),
      lane('sqlite', await startSluice({ upstream: upstream.port }), chat, false),
    ]
    const samples = await measureBuffered(lanes, upstream, rounds, seconds)
    for (const { running } of lanes) await running.stop()
    await server.stop()
    await upstream.stop()
    return {
      profile: 'redis',
      lanes: medians(samples),
      ratios: ratios(samples, 'requests/s', [['redis', 'sqlite']]),
      goals: goals({ text: 'of sqlite', value: ratio(samples, 'requests/s', 'redis', 'sqlite'), least: 0.75 }),
    }
  },
}
