/** Times of the console's pages beside a gateway with many organizations and a year of usage. */
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { PAGES } from '../../console/pages.ts'
import { startConsole, TOKENS } from '../../console/test/kit.ts'
import { freePort } from '../../test/ports.ts'
import { output, startProgram, stop, temporaryFolder } from '../children.ts'
import { table } from '../results.ts'
import { MAIN, startGateway, stdio } from './gateway.ts'

export interface Size {
  organizations: number
  /** Of usage. */
  days: number
  /** Of the organization whose pages these are, in all days. */
  requests: number
  /** Of each page. */
  loads: number
}

const MODELS = ['eb1', 'eb1-efficient', 'eb1-fast']
const DAY_MS = 86_400_000
/** The one that looks at its pages, in the midst of the others. */
const customerOf = (organizations: number) => `customer-${organizations >> 1}`

/** Rows of the ledger for the customer, whose sums a trigger makes; one sum a day for each other organization. */
function fill(file: string, { organizations, days, requests }: Size): void {
  const db = new DatabaseSync(file)
  const customer = customerOf(organizations)
  const now = Date.now()
  const needed = db
    .prepare('SELECT name, type FROM pragma_table_info(\'ledger\') WHERE pk OR ("notnull" AND dflt_value IS NULL)')
    .all() as { name: string; type: string }[]
  const names = needed.map(({ name }) => name)
  const row = db.prepare(`INSERT INTO ledger (${names.join(', ')}) VALUES (${names.map(() => '?').join(', ')})`)
  const figures: Record<string, number> = { input: 20_000, output: 500, cost: 21_000_000 }
  db.exec('BEGIN')
  // As a gateway leaves it that has run all the while: everything here is in the sums of days.
  db.prepare('UPDATE rolled SET hour = ?').run(Math.floor(now / 3_600_000))
  for (let i = 0; i < requests; i++) {
    const time = Math.floor(now - ((requests - i) / requests) * days * DAY_MS)
    const texts: Record<string, string | number> = {
      ...{ request_id: `req_${i}`, organization: customer, key_id: `key_${i % 5}`, surface: 'chat', time },
      ...{ model: MODELS[i % MODELS.length]!, provider: 'sim', outcome: i % 50 === 0 ? 'client_gone' : 'completed' },
    }
    row.run(...needed.map(({ name, type }) => texts[name] ?? figures[name] ?? (type === 'TEXT' ? '' : 0)))
  }
  const columns = 'organization, key_id, model, provider, surface, outcome, requests, input, output, cost'
  const into = (table: string, time: string) =>
    `INSERT INTO ${table} (${time}, ${columns}) VALUES (?, ?, 'key_0', 'eb1', 'sim', 'chat', 'completed', 40, 800000, 20000, 840000000)`
  const sum = db.prepare(into('usage', 'hour'))
  const sumOfDay = db.prepare(into('usage_days', 'day'))
  const hourOf = (day: number, i: number) => Math.floor((now - day * DAY_MS) / 3_600_000) + (i % 24)
  const others = Array.from({ length: organizations }, (_, i) => i).filter(i => i !== organizations >> 1)
  for (let day = days; day > 0; day--) for (const i of others) sum.run(hourOf(day, i), `customer-${i}`)
  for (const i of others)
    for (let day = days; day > 0; day--) sumOfDay.run(Math.floor(hourOf(day, i) / 24), `customer-${i}`)
  db.exec('COMMIT')
  db.close()
}

/** Asks for pages one after the other, and prints a table. */
export async function measurePages(size: Size): Promise<void> {
  const { organizations, days, requests, loads } = size
  const customer = customerOf(organizations)
  const folder = join(temporaryFolder(), 'console')
  mkdirSync(folder)

  const port = await freePort(2)
  const admin = port + 1
  const file = join(folder, 'gateway.yaml')
  writeFileSync(
    file,
    `version: 2
server: { listen: "127.0.0.1:${port}", admin: { listen: "127.0.0.1:${admin}", ${TOKENS} } }
store: "sqlite:${join(folder, 'gateway.db')}"
log: { level: error }
providers: { sim: { dialect: openai-chat, base_url: simulator } }
models:
${MODELS.map(name => `  ${name}: { context_window: 100000, max_output_tokens: 4096, price: { input: 1, output: 2 }, backends: [{ provider: sim, model: sim-large }] }`).join('\n')}
plans: { tier1: { limits: { requests_per_minute: 60, daily_spend_usd: 50 } } }
pipelines:
  models: [auth, models]
routes:
  - { match: GET /v1/models, pipeline: models }
organizations:
  file: { plan: tier1, keys: [] }
`,
  )

  await stop(await startGateway(file))
  const list = join(folder, 'customers.ndjson')
  const keys = (i: number) =>
    Array.from({ length: 5 }, (_, k) => ({
      id: `key_${k}`,
      label: `key ${k}`,
      sha256: `${i}`.padStart(8, '0') + `${k}`.padStart(56, '0'),
    }))
  writeFileSync(
    list,
    Array.from({ length: organizations }, (_, i) =>
      JSON.stringify({ id: `customer-${i}`, name: `Customer ${i}`, plan: 'tier1', keys: keys(i) }),
    ).join('\n'),
  )
  await output(startProgram(undefined, MAIN, ['org', 'import', list, '--config', file], { stdio }), 600_000)
  fill(join(folder, 'gateway.db'), size)
  const gateway = await startGateway(file)

  const c = await startConsole(
    { url: `http://127.0.0.1:${port}`, gateway: { adminAddress: `http://127.0.0.1:${admin}` } },
    { database: `sqlite:${join(folder, 'console.db')}` },
  )
  const { db } = c.console.parts
  const owner = await c.person('owner@example.com', { staff: true })
  await db.transaction().execute(async at => {
    for (let i = 0; i < organizations; i++) {
      const id = `customer-${i}`
      const name = `Customer ${i}`
      await at.insertInto('organization').values({ id, name, created: 0, creator: null, deleted: null }).execute()
    }
  })
  await c.member(customer, 'owner@example.com', 'owner')

  const since = new Date(Date.now() - (days - 1) * DAY_MS).toISOString().slice(0, 10)
  const until = new Date().toISOString().slice(0, 10)
  const paths = PAGES.flatMap(({ routes }) => routes)
    .filter(({ method, scope }) => method === 'GET' && (scope === 'member' || scope === 'staff'))
    .map(({ path }) => path.replace(/:organization\b/g, customer).replace(/:key\b/g, 'key_0'))
    .filter(path => !path.includes(':'))
  paths.push(`/o/${customer}/usage?since=${since}&until=${until}&by=key`)
  const rows: string[][] = []
  for (const path of paths) {
    const times: number[] = []
    let status = 0
    for (let i = 0; i < loads + 2; i++) {
      const begin = performance.now()
      status = (await owner.get(path)).status
      times.push(performance.now() - begin)
    }
    // The first two loads fill caches.
    const sorted = times.slice(2).sort((a, b) => a - b)
    const at = (share: number) => sorted[Math.floor(sorted.length * share)]!.toFixed(1)
    rows.push([path.replace(customer, ':organization'), String(status), at(0.5), at(0.9)])
  }
  console.log(
    `${organizations} organizations, ${requests} requests of one in ${days} days, ${loads} loads of each page\n`,
  )
  console.log(table(['page', 'status', 'median, ms', '90 %, ms'], rows))
  await c.close()
  await stop(gateway)
}
