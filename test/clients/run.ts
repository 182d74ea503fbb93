/**
 * `npm run clients`: tries SDKs, frameworks and coding agents, as they come from their registries, against a gateway
 * with a model on each dialect, and then servers behind one (servers.ts). Prints the tables of docs/compatibility.md.
 *
 *   npm run clients                    all of them
 *   npm run clients -- codex aimock    those that are named
 *   npm run clients -- --newest        their newest versions of today, not those of the list
 *   npm run clients -- --update        writes what came out into expected.json and servers.json; then npm run generate
 *
 * Clients are installed into a folder outside of the checkout. One that can't be installed is named and left out. They
 * run in a network namespace of their own, in which only the gateway is: none of them can ask anything else. Where the
 * system does not allow that, they run without, and a line says so.
 *
 * The exit code is 1 when something came out worse than those files have it.
 */
import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { parse, stringify } from 'yaml'
import { buildGateway, type Gateway } from '../../cli/gateway.ts'
import { ERRORS } from '../../core/canon/errors.ts'
import type { LedgerRow } from '../../core/ports/store.ts'
import { billOf, TAGS } from './bill.ts'
import { type AgentClient, type AgentRun, CONTENT, MADE, type ProgramClient, type Result } from './client.ts'
import { AGENTS, PROGRAMS } from './clients.ts'
import { endAll, environmentOf, execute, type Ran, TIMEOUT } from './execute.ts'
import { CACHE, type Installed, install, NotInstalled } from './install.ts'
import { recipe } from './recipes.ts'
import { BY_STATUS_ALONE, CODES, ONE_OF_EACH, Refusals } from './refusals.ts'
import { type RealServer, SERVERS, tryServer } from './servers.ts'
import { compare, MODELS, markdown, type Outcomes, outcomesOf, type Tried } from './table.ts'

const ROOT = join(import.meta.dirname, '../..')
const EXPECTED = join(import.meta.dirname, 'expected.json')
const EXPECTED_OF_SERVERS = join(import.meta.dirname, 'servers.json')
const KEY = 'sk-demo'
/** The key of an organization that has used up its limit of requests: for the errors of that. */
const SPENT_KEY = 'sk-spent'
/** The beginnings of names by which clients tell what a model can do. */
const FAMILIES = ['gpt-5-', 'claude-sonnet-4-5-']

const args = process.argv.slice(2)
const named = args.filter(arg => !arg.startsWith('--')).map(name => name.toLowerCase())
const every = [...PROGRAMS, ...AGENTS]
const isChosen = ({ name }: { name: string }) => named.length === 0 || named.includes(name.toLowerCase())
const chosen = every.filter(isChosen)
const servers = SERVERS.filter(isChosen)
const known = [...every, ...SERVERS].map(({ name }) => name)
if (named.some(name => !known.some(one => one.toLowerCase() === name))) {
  console.error(`The clients and servers are: ${known.map(name => `'${name}'`).join(', ')}.`)
  process.exit(2)
}

if (args.includes('--installed')) await inside()
else outside()

/** Installs the clients, then starts itself again in a closed network. */
function outside(): void {
  for (const one of [...chosen, ...servers]) tried(one)
  const again = [...process.execArgv, import.meta.filename, '--installed', ...args]
  const closed = ['unshare', '--net', 'sh', '-c', 'ip link set lo up && exec "$@"', 'sh']
  const alone = spawnSync(closed[0]!, [...closed.slice(1), 'true']).status === 0
  if (!alone) console.error('! no closed network namespace (root may make one): clients can reach the network')
  const [program, ...rest] = [...(alone ? closed : []), process.execPath, ...again]
  process.exitCode = spawnSync(program!, rest, { stdio: 'inherit' }).status ?? 1
}

/** The installation of a client or server; undefined, and a line that names it, when there is none. */
function tried(client: ProgramClient | AgentClient | RealServer): Installed | undefined {
  try {
    return install(client, args.includes('--newest'))
  } catch (error) {
    if (!(error instanceof NotInstalled)) throw error
    console.error(`! ${client.name} is left out: ${error.message}`)
    return undefined
  }
}

async function inside(): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-clients-run-'))
  const said: string[] = []
  const note = (level: string) => (fields: object, message: string) =>
    void said.push(JSON.stringify({ level, message, ...fields }))
  const log = { debug() {}, info: note('info'), warn: note('warn'), error: note('error') }
  const started: Gateway[] = []
  let refusals: Refusals | undefined
  const start = async (name: string, structured: boolean) => {
    const file = join(folder, `${name}.yaml`)
    writeFileSync(file, configuration(structured))
    const gateway = await buildGateway(file, { log, watch: false, listen: { port: 0 }, admin: false })
    started.push(gateway)
    return gateway
  }
  const expected = JSON.parse(readFileSync(EXPECTED, 'utf8')) as Record<string, Tried>
  const found: Record<string, Tried> = {}
  const day = new Date().toISOString().slice(0, 10)
  try {
    const plain = await start('plain', false)
    refusals = await Refusals.listen(plain.address)
    const addresses = { plain, objects: await start('structured', true), refusals }
    await fetch(`${plain.address}/v1/responses`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${SPENT_KEY}` },
      body: JSON.stringify({ model: MODELS.C, input: 'The only request of the day.' }),
    })
    for (const client of chosen) {
      const installed = tried(client)
      if (!installed) continue
      console.error(`trying ${client.name} ${installed.version}`)
      const results =
        'command' in client
          ? await agentResults(client, installed, addresses)
          : await programResults(client, installed, addresses)
      const features = outcomesOf(results)
      found[client.name] = { version: installed.version, day, features }
      for (const { feature, model, outcome, detail } of results) {
        if (outcome === 'ok' || features[feature] === expected[client.name]?.features[feature]) continue
        console.error(`  ${feature}, ${model}: ${outcome}\n${detail.replace(/^/gm, '    ')}`)
      }
      if (args.includes('--update')) write(EXPECTED, every, { ...expected, ...found })
    }
  } finally {
    refusals?.close()
    for (const gateway of started) await gateway.close()
    rmSync(folder, { recursive: true, force: true })
    writeFileSync(join(CACHE, 'gateway.log'), said.join('\n') + '\n')
  }
  if (chosen.length > 0) tell(expected, found)
  await behind(day)
}

/** Puts the servers behind gateways of their own. */
async function behind(day: string): Promise<void> {
  const expected = JSON.parse(readFileSync(EXPECTED_OF_SERVERS, 'utf8')) as Record<string, Tried>
  const found: Record<string, Tried> = {}
  for (const server of servers) {
    const installed = tried(server)
    if (!installed) continue
    console.error(`trying ${server.name} ${installed.version}`)
    let results: readonly Result[]
    try {
      results = await tryServer(server, installed)
    } catch (error) {
      console.error(`WORSE: ${(error as Error).message}`)
      process.exitCode = 1
      continue
    }
    found[server.name] = { version: installed.version, day, features: outcomesOf(results) }
    for (const { feature, model, outcome, detail } of results)
      if (outcome === 'failed') console.error(`  ${feature}, ${model}: ${detail}`)
  }
  if (args.includes('--update')) write(EXPECTED_OF_SERVERS, SERVERS, { ...expected, ...found })
  if (servers.length > 0) tell(expected, found, 'server')
}

/** Prints the table, and what differs from the expected one. */
function tell(expected: Record<string, Tried>, found: Record<string, Tried>, what = 'client'): void {
  console.log(markdown(found, what))
  if (args.includes('--update')) return
  const { regressions, gains } = compare(outcomesBy(expected), outcomesBy(found))
  for (const line of gains) console.log(`better: ${line}`)
  for (const line of regressions) console.log(`WORSE: ${line}`)
  if (gains.length > 0) console.log('npm run clients -- --update writes what is better')
  if (regressions.length > 0) process.exitCode = 1
}

/** Writes them in the order of the list. What did not run keeps its rows. */
function write(file: string, list: readonly { name: string }[], all: Readonly<Record<string, Tried>>): void {
  const ordered = list.filter(({ name }) => all[name]).map(({ name }) => [name, all[name]])
  writeFileSync(file, JSON.stringify(Object.fromEntries(ordered), null, 2) + '\n')
}

function outcomesBy(clients: Record<string, Tried>): Outcomes {
  return Object.fromEntries(Object.entries(clients).map(([name, { features }]) => [name, features]))
}

interface Addresses {
  readonly plain: Gateway
  /** Has `structured_output: translate`. */
  readonly objects: Gateway
  /** Before the first one. */
  readonly refusals: Refusals
}

/** The quickstart's configuration, with a model on each dialect, and keys in x-api-key too. */
function configuration(structured: boolean): string {
  const config = parse(readFileSync(join(ROOT, 'gateway.yaml'), 'utf8'))
  config.store = 'sqlite::memory:'
  for (const entries of Object.values<unknown[]>(config.pipelines)) {
    const auth = entries.indexOf('auth')
    if (auth !== -1) entries[auth] = { auth: { x_api_key: true } }
    const validation = entries.indexOf('validation')
    const capture = entries.indexOf('usage-capture')
    if (capture !== -1) entries[capture] = { 'usage-capture': { tags: TAGS } }
    if (structured && validation !== -1) entries[validation] = { validation: { structured_output: 'translate' } }
  }
  config.providers = {}
  config.models = {}
  for (const model of Object.values(MODELS)) {
    const dialect = model.slice('on-'.length)
    config.providers[dialect] = { dialect, base_url: 'simulator', api_key: 'k' }
    config.models[model] = {
      aliases: FAMILIES.map(family => family + model),
      context_window: 400_000,
      max_output_tokens: 128_000,
      price: { input: 1.25, output: 10 },
      backends: [{ provider: dialect, model: 'sim-large' }],
    }
  }
  config.organizations.demo.plan = 'custom'
  const sha256 = createHash('sha256').update(SPENT_KEY).digest('hex')
  config.organizations.spent = {
    plan: 'custom',
    limits: { requests_per_day: 1 },
    keys: [{ id: 'key_spent', sha256, status: 'active' }],
  }
  return stringify(config)
}

async function programResults(client: ProgramClient, installed: Installed, addresses: Addresses): Promise<Result[]> {
  const { plain, objects, refusals } = addresses
  const url = plain.address
  const home = mkdtempSync(join(tmpdir(), 'sluice-client-'))
  const environment = {
    ...environmentOf(installed, home),
    SLUICE_URL: url,
    SLUICE_OBJECTS_URL: objects.address,
    SLUICE_REFUSALS_URL: refusals.url,
    SLUICE_REFUSED: CODES.join(),
    SLUICE_KEY: KEY,
    SLUICE_SPENT_KEY: SPENT_KEY,
    SLUICE_MODELS: Object.values(MODELS).join(),
  }
  const { out, err } = await execute(installed.command, home, environment)
  const lines = out.split('\n').filter(line => line.startsWith('{"'))
  if (lines.length === 0) console.error(err)
  const results = lines.map(line => JSON.parse(line) as Result)
  const [interpreter] = installed.command
  const [language, how, cwd] = client.npm
    ? ['js', ['--input-type=module', '-e'], dirname(installed.command[1]!)]
    : ['python', ['-c'], home]
  for (const model of client.recipe === undefined ? [] : Object.values(MODELS)) {
    const programs = recipe(client.recipe!, { url, key: KEY, model }, language)
    let [outcome, detail] = ['ok', '']
    for (const program of programs) {
      const { out, err, code } = await execute([interpreter!, ...how, program], cwd, environment)
      if (code !== 0 || out.trim() === '') [outcome, detail] = ['failed', err.slice(-2000)]
    }
    results.push({ feature: 'its recipe', model, outcome: programs.length > 0 ? outcome : 'missing', detail })
  }
  rmSync(home, { recursive: true, force: true })
  return results
}

async function agentResults(client: AgentClient, installed: Installed, addresses: Addresses): Promise<Result[]> {
  const results: Result[] = []
  for (const run of client.runs) {
    const gateway = run.structured ? addresses.objects : addresses.plain
    for (const model of Object.values(MODELS)) {
      const since = Date.now()
      const rows = async () => {
        await gateway.store.ledger.flush()
        return gateway.store.ledger.query({ since })
      }
      results.push(await oneTask(run, model, installed, gateway.address, { rows }))
      if (!run.bill) continue
      console.error(`  ${run.feature}, ${model}`)
      for (const line of billOf(await rows())) console.error(`    ${line}`)
    }
  }
  if (client.refused)
    results.push(...(await refusedResults(client.name, client.refused, installed, addresses.refusals)))
  return results
}

/** Tries one task on each kind of error, but for those that clients are known to repeat for minutes. */
async function refusedResults(
  client: string,
  run: AgentRun,
  installed: Installed,
  refusals: Refusals,
): Promise<Result[]> {
  const failed: string[] = []
  for (const code of ONE_OF_EACH.filter(code => !BY_STATUS_ALONE.includes(code))) {
    const url = `${refusals.url}/${client}/${code}`
    const { outcome, detail } = await oneTask(run, MODELS.C, installed, url, { timeout: 60_000 })
    if (ERRORS[code].retriable && outcome !== 'ok') failed.push(`${code}: ${detail}`)
  }
  const detail = [...refusals.faults(client), ...failed].join('\n')
  const outcome = detail === '' ? 'ok' : 'failed'
  return Object.values(MODELS).map(model => ({ feature: run.feature, model, outcome, detail }))
}

async function oneTask(
  run: AgentRun,
  model: string,
  installed: Installed,
  url: string,
  { rows = async () => [], timeout = TIMEOUT }: { rows?: () => Promise<LedgerRow[]>; timeout?: number } = {},
): Promise<Result> {
  const home = mkdtempSync(join(tmpdir(), 'sluice-client-'))
  const folder = join(home, 'work')
  mkdirSync(folder)
  const directive = typeof run.directive === 'string' ? run.directive : run.directive(model)
  const prompt = `Make the file ${MADE}. [[sim: ${directive}]]`
  const task = { url, key: KEY, model, prompt, folder }
  for (const [path, text] of Object.entries(run.files?.(task) ?? {})) {
    mkdirSync(dirname(join(home, path)), { recursive: true })
    writeFileSync(join(home, path), text)
  }
  const environment = { ...environmentOf(installed, home), ...run.environment?.(task) }
  let ran: Ran = { out: '', err: '', code: 0 }
  for (const rest of [...(run.earlier?.(task) ?? []), run.arguments(task)]) {
    if (ran.code === 0) ran = await execute([...installed.command, ...rest], folder, environment, timeout)
  }
  const { out, err, code } = ran
  let made = ''
  try {
    made = readFileSync(join(folder, MADE), 'utf8').trim()
  } catch {}
  endAll(home)
  const wrong = code === 0 ? run.check?.(home, await rows()) : undefined
  rmSync(home, { recursive: true, force: true })
  const ok = code === 0 && made === (run.content ?? CONTENT) && wrong === undefined
  const detail = `exit code ${code}, ${MADE} has '${made}'${wrong ? `, ${wrong}` : ''}\n${(out + err).slice(-3000)}`
  return { feature: run.feature, model, outcome: ok ? 'ok' : 'failed', detail }
}
