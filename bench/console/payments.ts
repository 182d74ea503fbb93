/**
 * How long it takes from a payment to the headers of the public API: a signed webhook of five dollars reaches the
 * console, the console changes the plan by the admin API, and the customer's next reply has the limits of tier 1. The
 * clock begins when the webhook is sent, and ends when the first reply with those headers is there. The customer asks
 * again as soon as it has a reply, which is refused until then: the free plan spends nothing.
 */
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { gatewayYaml, newKey, startConsole } from '../../console/test/kit.ts'
import { deliver, StripeStandIn } from '../../console/test/stripe-stand-in.ts'
import { eventually } from '../../test/eventually.ts'
import { freePort } from '../../test/ports.ts'
import { PostgresServer, skipWithoutPostgres } from '../../test/stores/postgres-server.ts'
import { RedisServer, redisAvailable } from '../../test/stores/redis-server.ts'
import { stop, temporaryFolder } from '../children.ts'
import { median, percentile } from '../load/percentile.ts'
import { show, table } from '../results.ts'
import { startGateway } from './gateway.ts'

/** Headers of a refusal on the plan free, and of a reply on the plan tier1. */
const FREE = ['x-ratelimit-limit-spend', '0.00'] as const
const TIER_1 = ['x-ratelimit-limit-requests', '60'] as const

interface Setup {
  name: string
  /** The database of the console. */
  database: string
  /** The store of the gateway. */
  store: string
  /** With two gateways the console changes the plan at the first, and the customer asks the second. */
  gateways: 1 | 2
}

/** Measures so many payments, each of another organization, one after the other. Prints a table. */
export async function measurePayments(payments: number): Promise<void> {
  const folder = join(temporaryFolder(), 'payments')
  mkdirSync(folder)
  const sqlite = (name: string) => `sqlite:${join(folder, `${name}.db`)}`
  const setups: Setup[] = [{ name: 'SQLite', database: sqlite('console-1'), store: sqlite('gateway-1'), gateways: 1 }]
  const postgres = skipWithoutPostgres ? null : await PostgresServer.start()
  if (postgres) setups.push({ name: 'PostgreSQL', database: postgres.url(), store: sqlite('gateway-2'), gateways: 1 })
  else console.log('postgresql is not installed: it is left out')
  const redis = redisAvailable ? await RedisServer.start() : null
  if (redis)
    setups.push({ name: 'SQLite, two gateways on Redis', database: sqlite('console-3'), store: redis.url, gateways: 2 })
  else console.log('redis-server is not installed: it is left out')
  const rows: string[][] = []
  for (const setup of setups) {
    const times = await timesOf(setup, folder, payments)
    const figures = [median(times), percentile(times, 0.95), Math.max(...times)]
    rows.push([setup.name, ...figures.map(show)])
  }
  await postgres?.stop()
  await redis?.stop()
  console.log(`${payments} payments of 5 USD, from the webhook to the headers of the public API\n`)
  console.log(table(['console on', 'median, ms', '95 %, ms', 'most, ms'], rows))
}

async function timesOf({ database, store, gateways }: Setup, folder: string, payments: number): Promise<number[]> {
  const started = []
  for (let i = 0; i < gateways; i++) {
    const port = await freePort(2)
    const file = join(folder, `gateway-${port}.yaml`)
    const listen = `listen: 127.0.0.1:${port}`
    writeFileSync(
      file,
      gatewayYaml('simulator', { store: JSON.stringify(store) })
        .replace('listen: 127.0.0.1:0', listen)
        .replace('admin: { listen: 127.0.0.1:0', `admin: { listen: 127.0.0.1:${port + 1}`)
        .replace('log: { level: info', 'log: { level: error'),
    )
    const child = await startGateway(file)
    started.push({ child, url: `http://127.0.0.1:${port}`, adminAddress: `http://127.0.0.1:${port + 1}` })
  }
  const { url, adminAddress } = started[0]!
  const asked = started.at(-1)!.url
  const stripe = await StripeStandIn.start()
  const c = await startConsole(
    { url, gateway: { adminAddress } },
    { yaml: `tiers: on\n${stripe.yaml()}`, database, tell: () => {} },
  )
  /** Whether the public API tells this limit. */
  const tells = async (secret: string, [header, value]: readonly [string, string]) => {
    const reply = await fetch(`${asked}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${secret}` },
      body: JSON.stringify({ model: 'eb1-preview', max_tokens: 1, messages: [{ role: 'user', content: 'Hi' }] }),
    })
    await reply.arrayBuffer()
    return reply.headers.get(header) === value
  }
  const times: number[] = []
  // The first warms both processes up, and is not counted.
  for (let i = 0; i <= payments; i++) {
    const organization = `customer-${i}`
    await c.organization(organization, 'free')
    const owner = await c.member(organization, `${organization}@example.com`, 'owner')
    const secret = await newKey(owner, organization)
    await eventually(() => tells(secret, FREE))
    const event = stripe.paid(`pi_${i}`, 500, { metadata: { organization } })
    const begin = performance.now()
    const taken = deliver(c.url, event)
    while (!(await tells(secret, TIER_1)));
    if (i > 0) times.push(performance.now() - begin)
    const { status, body } = await taken
    if (status !== 200 || !body.counted) throw new Error(`the webhook got ${status} ${JSON.stringify(body)}`)
  }
  await c.close()
  await stripe.close()
  for (const { child } of started) await stop(child)
  return times
}
