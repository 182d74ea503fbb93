/**
 * Runs exchanges against a store until it is killed; tells on stdout what it has been promised. Arguments: store URL,
 * data folder.
 */
import fs from 'node:fs'
import { openStore } from '../../stores/index.ts'
import { openRedisStore } from '../../stores/redis/store.ts'
import { timersOf } from '../eventually.ts'
import { CRASH_CELLS, intent, options, outcome, redisOptions } from './kit.ts'

const [url, dataDir] = process.argv.slice(2) as [string, string]
const store = url.startsWith('sqlite:')
  ? await openStore(options(url, { dataDir }))
  : await openRedisStore(redisOptions(url, { dataDir, leaseTimes: { ttl: 600, every: 200 } }))
const say = (line: string) => fs.writeSync(1, line + '\n')

async function exchange(id: string): Promise<void> {
  const now = Date.now()
  const admission = await store.limits.admit({
    org: 'acme',
    id,
    cells: CRASH_CELLS,
    amounts: [1, 1_000_000, 1, 10, 10, 1_000_000],
    now,
  })
  if (!admission.admitted) throw new Error('denied')
  await store.ledger.intent(intent(id, { time: now, input_tokens: 2, billing: 'prepaid' }))
  say(`admitted ${id}`)
  await timersOf(Math.random() * 20)
  const cost = 1 + Math.floor(Math.random() * 1000)
  store.limits.settle('acme', id, [1, cost, 1, cost % 3, 2, cost], Date.now())
  store.ledger.outcome(outcome(id, { cost }))
  await new Promise(resolve => setImmediate(resolve))
  say(`settled ${id} ${cost}`)
}

async function runner(name: string): Promise<void> {
  for (let i = 0; ; i++) await exchange(`${process.pid}-${name}-${i}`)
}

say('ready')
await Promise.all(Array.from({ length: 20 }, (_, i) => runner(`w${i}`)))
