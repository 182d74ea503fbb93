/**
 * kill -9 right behind the last byte of a burst, round after round, on both engines. Each reply that a client has read
 * whole must have its row in the ledger once, completed and with its cost.
 */
import { join } from 'node:path'
import { systemClock } from '../../core/tools/clock.ts'
import { openStore } from '../../stores/index.ts'
import { RedisServer, redisAvailable } from '../stores/redis-server.ts'
import { bodyOf, Gateway, judge, keyOf, MIB, PATHS, type Part, peakBytes, type Result, send } from './kit.ts'

const PART = 'crash'
const BURST = 60
const silent = { debug() {}, info() {}, warn() {}, error() {} }

export async function crash(part: Part): Promise<Result[]> {
  const budgetMs = part.budgetMs / 2
  const results = [await rounds(part, 'sqlite', undefined, budgetMs)]
  if (!redisAvailable) return [...results, { part: `${PART} redis`, cases: 0, note: 'redis-server is not installed' }]
  const redis = await RedisServer.start()
  results.push(await rounds(part, 'redis', redis.url, budgetMs))
  await redis.stop()
  return results
}

async function rounds(
  { random, breaches, simulator }: Part,
  engine: string,
  store: string | undefined,
  budgetMs: number,
): Promise<Result> {
  const name = `${PART} ${engine}`
  const gateway = await Gateway.start({
    upstream: simulator,
    organizations: { crash: 'custom' },
    ...(store && { store }),
  })
  const read: string[] = []
  const until = performance.now() + budgetMs
  let residentMib = 0
  let round = 0
  do {
    if (round++ > 0) await gateway.start()
    await Promise.all(
      Array.from({ length: BURST }, async () => {
        const stream = random.chance(0.5)
        const text = `[[sim: tokens ${1 + random.below(30)}]] x`
        const answer = await send(
          gateway.url,
          PATHS.chat,
          keyOf('crash'),
          bodyOf('chat', 'a-chat', text, stream ? { stream } : {}),
        )
        judge(name, breaches, 'a request of the burst', answer)
        const id = answer.headers['x-request-id']
        if (answer.status === 200 && typeof id === 'string' && (!stream || answer.text.includes('[DONE]')))
          read.push(id)
      }),
    )
    residentMib = Math.max(residentMib, peakBytes(gateway.pid) / MIB)
    await gateway.kill()
  } while (performance.now() < until)
  // A start closes what the last crash left open, and a clean stop writes everything.
  await gateway.start()
  await gateway.stop()

  const books = await openStore({
    url: store ?? `sqlite:${join(gateway.folder, 'data', 'gateway.db')}`,
    timeout: 10_000,
    clock: systemClock,
    log: silent,
    dataDir: join(gateway.folder, 'observer'),
  })
  const rows = await books.ledger.query({ limit: 10_000_000 })
  await books.close()
  const byId = Map.groupBy(rows, row => row.request_id)
  let wrong = 0
  for (const id of read) {
    const own = byId.get(id) ?? []
    const fault =
      own.length !== 1
        ? `${own.length} rows`
        : own[0]!.outcome !== 'completed'
          ? `outcome ${own[0]!.outcome}`
          : own[0]!.cost <= 0
            ? 'no cost'
            : undefined
    if (fault === undefined) continue
    wrong++
    breaches.add(name, 'books', fault, id)
  }
  return {
    part: name,
    cases: read.length,
    residentMib,
    note: `${round} × kill -9; ${wrong} replies without their row`,
  }
}
