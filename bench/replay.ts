/**
 * Measures `sluice replay`: makes a SQLite ledger of a month, and replays it with narrower plans and other prices.
 *
 *   npm run bench:replay [-- --rows 1000000 --organizations 100]
 *
 * Goal: a million rows in a minute.
 */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { parseArgs } from 'node:util'
import { cost } from '../core/canon/money.ts'
import type { LedgerRow } from '../core/ports/store.ts'
import { prepare } from '../stores/sqlite/schema.ts'
import { generator } from '../test/random.ts'
import { insertRows } from '../test/stores/kit.ts'
import { output, startProgram, temporaryFolder } from './children.ts'
import { machine } from './machine.ts'

const { values: flags } = parseArgs({
  options: { rows: { type: 'string', default: '1000000' }, organizations: { type: 'string', default: '100' } },
})
const ROWS = Number(flags.rows)
const ORGANIZATIONS = Number(flags.organizations)
if (![ROWS, ORGANIZATIONS].every(value => Number.isInteger(value) && value > 0)) {
  console.error('--rows and --organizations are numbers from 1')
  process.exit(2)
}

const NOVEMBER = Date.UTC(2025, 10, 1)
const MONTH_MS = 30 * 86_400_000
const PRICE = { input: 1_250_000, output: 10_000_000 }
const KEY = 'f77894fdfa58e447c57e077eaa9708e8e009c84dc6aba2db80461275e9b85be7'

const random = generator(1)

function rowOf(i: number): LedgerRow {
  const input = 500 + random(20_000)
  const output = random(2000)
  return {
    ...{ request_id: `req_${String(i).padStart(24, '0')}`, time: NOVEMBER + Math.floor((i * MONTH_MS) / ROWS) },
    ...{ organization: `org-${random(ORGANIZATIONS)}`, key_id: 'key_1', surface: 'chat', model: 'eb1' },
    ...{ outcome: 'completed', price_book: '2025-11', billing: 'standard', provider: 'local', provider_model: 'm' },
    ...{ input, cached: 0, cacheWrite: 0, output, reasoning: 0, searches: 0, input_tokens: input, estimated: false },
    ...{ duration_ms: 500 + random(30_000), ttfb_ms: 400, tags: '', price_used: 'model' },
    ...{ price_input: PRICE.input, price_output: PRICE.output, counted_input: input, counted_output: output },
    ...{ output_reserved: 4096, cost: cost({ input, cached: 0, cacheWrite: 0, output }, PRICE) },
    ...{ provider_cost: input * 600, provider_input: input, provider_output: output },
  }
}

function* rows(): Generator<LedgerRow> {
  for (let i = 0; i < ROWS; i++) yield rowOf(i)
}

function fill(file: string): void {
  const db = new DatabaseSync(file)
  prepare(db, file)
  insertRows(db, rows())
  db.close()
}

const folder = temporaryFolder()
const [database, config, plans] = ['ledger.db', 'gateway.yaml', 'new.yaml'].map(name => join(folder, name)) as [
  string,
  string,
  string,
]
fill(database)
const organizations = Array.from(
  { length: ORGANIZATIONS },
  (_, i) =>
    `  org-${i}: { plan: now, keys: [{ id: key_1, sha256: ${KEY.slice(0, -8)}${String(i).padStart(8, '0')} }] }\n`,
)
writeFileSync(
  config,
  `version: 2
server: { listen: "127.0.0.1:0", admin: "127.0.0.1:0" }
store: "sqlite:${database}"
providers: { local: { dialect: openai-chat, base_url: simulator } }
models:
  eb1: { context_window: 400000, price: { input: 1.25, output: 10 }, backends: [{ provider: local, model: m, cost: { input: 0.6, output: 5 } }] }
pipelines:
  completions: [auth, validation, model-access, conversation, token-estimate, routing, admission, translation, upstream, usage-capture, header-stamp]
routes:
  - { match: POST /v1/chat/completions, pipeline: completions, surface: chat }
plans:
  now: { limits: { requests_per_minute: 600, tokens_per_day: 100000000 } }
organizations:
${organizations.join('')}`,
)
// Every kind of limit, so narrow that each refuses some.
writeFileSync(
  plans,
  `plans:
  now:
    limits: { requests_per_minute: 2, requests_per_day: 60, tokens_per_minute: 40000, output_tokens_per_day: 300000, concurrent_requests: 2, daily_spend_usd: 1, monthly_spend_usd: 20 }
prices:
  eb1: { input: 1.5, output: 9 }
`,
)
const MAIN = join(import.meta.dirname, '../cli/main.ts')
const MEASURED = `import { main } from ${JSON.stringify(MAIN)}
const began = performance.now()
await main(process.argv.slice(1))
const { user, system } = process.cpuUsage()
console.log(JSON.stringify({ ms: performance.now() - began, cpu: (user + system) / 1000, kib: process.resourceUsage().maxRSS }))`
const args = ['replay', '--plans', plans, '--prices', plans, '--month', '2025-11', '--json', config]
const child = startProgram(undefined, '--input-type=module-typescript', ['--eval', MEASURED, ...args])
const printed = (await output(child, 1_200_000)).trimEnd()
const end = printed.lastIndexOf('\n')
const report = JSON.parse(printed.slice(0, end))
const { ms, cpu, kib } = JSON.parse(printed.slice(end)) as { ms: number; cpu: number; kib: number }
if (report.before.requests !== ROWS) throw new Error(`${report.before.requests} rows of ${ROWS} were replayed`)
const seconds = ms / 1000
console.log(
  `${ROWS.toLocaleString('en')} rows of ${ORGANIZATIONS.toLocaleString('en')} organizations in ${seconds.toFixed(1)} s (${(cpu / 1000).toFixed(1)} s of CPU), ` +
    `${((seconds * 1e6) / ROWS).toFixed(1)} s for a million; ${report.refused.toLocaleString('en')} refused by ` +
    `${report.refused_by.length} limits; at most ${(kib / 1024).toFixed(0)} MiB (${machine}, Node ${process.version})`,
)
