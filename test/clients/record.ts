/**
 * Records what agents send, as they come from their registries, in two sessions each: one that gets on with its work,
 * and one that makes the same call again and again.
 *
 *   node bin/sluice.mjs --run test/clients/record.ts            all of them, into test/clients/sessions/
 *   node bin/sluice.mjs --run test/clients/record.ts codex      those that are named
 *
 * Of a text it keeps a digest, so that the same text is the same, and nothing of the agents' own prompts. Texts of up to
 * 40 characters and the results of tools stay as they are. test/plugins/extra/runaway-sessions.test.ts reads the files.
 */
import { createHash } from 'node:crypto'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { pipeline, Readable } from 'node:stream'
import { buffer } from 'node:stream/consumers'
import { parse, stringify } from 'yaml'
import { buildGateway } from '../../cli/gateway.ts'
import { silent } from '../../cli/log.ts'
import type { AgentClient, AgentRun } from './client.ts'
import { MAKE } from './client.ts'
import { AGENTS } from './clients.ts'
import { environmentOf, execute } from './execute.ts'
import { install } from './install.ts'

const ROOT = join(import.meta.dirname, '../..')
const SESSIONS = join(import.meta.dirname, 'sessions')
const MODEL = 'eb1-preview'
const KEY = 'sk-demo'

/** A test that fails until a file is changed, is run more often than that, and fails again in the end. */
const WORK = [
  'ls',
  'cat check.sh',
  'sh check.sh',
  'echo one > value',
  'sh check.sh',
  'cat value',
  'echo two > value',
  'sh check.sh',
  'cat value',
  'echo three > value',
  'sh check.sh',
  'cat value check.sh',
  'rm value',
  'sh check.sh',
  'wc check.sh',
]
const CIRCLE: readonly string[] = Array(12).fill('sh check.sh; date')
const CHECK = 'if grep -q two value 2>/dev/null; then echo 1 passing; else echo 1 failing; fi\n'

interface Recorded {
  path: string
  body: any
}

/** Before a gateway: hands everything on, and keeps the bodies. */
async function recorder(gateway: string, recorded: Recorded[]) {
  const server = createServer(async (request, response) => {
    const body = await buffer(request)
    if (request.method === 'POST') recorded.push({ path: request.url!, body: JSON.parse(body.toString()) })
    const headers = new Headers()
    for (const [name, value] of Object.entries(request.headers))
      if (!/^(host|connection|content-length|transfer-encoding|accept-encoding|upgrade|sec-.*)$/.test(name))
        headers.set(name, String(value))
    const reply = await fetch(gateway + request.url, {
      method: request.method!,
      headers,
      ...(body.length > 0 && { body }),
    })
    response.writeHead(reply.status, { 'content-type': reply.headers.get('content-type') ?? '' })
    if (reply.body) pipeline(Readable.fromWeb(reply.body as never), response, () => {})
    else response.end()
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close() {
      server.closeAllConnections()
      server.close()
    },
  }
}

/** What is the result of a tool stays, at whatever depth. */
const isResult = (value: any): boolean =>
  value?.role === 'tool' || value?.type === 'tool_result' || /_call_output$/.test(value?.type ?? '')

function digested(value: any, verbatim = false): any {
  if (typeof value === 'string') {
    if (verbatim || value.length <= 40) return value
    return `${createHash('sha256').update(value).digest('hex').slice(0, 16)} ${value.length}`
  }
  if (Array.isArray(value)) return value.map(one => digested(one, verbatim))
  if (typeof value !== 'object' || value === null) return value
  const whole = verbatim || isResult(value)
  return Object.fromEntries(Object.entries(value).map(([name, of]) => [name, digested(of, whole)]))
}

/** Members that grow with each turn: what the request before had of them is left out. */
const GROWING = ['messages', 'input']

/** The request as it is kept: tools by their digest, and of the rest what differs from the request before. */
function kept({ path, body }: Recorded, before: any): object {
  const { tools = [], ...rest } = body
  const now = digested({ ...rest, tools: `${digested(JSON.stringify(tools))}` })
  const out: Record<string, unknown> = { path: path.replace(/\?.*/, '') }
  for (const [name, value] of Object.entries<any>(now)) {
    if (GROWING.includes(name) && Array.isArray(value)) {
      const old: any[] = before?.[name] ?? []
      let same = 0
      while (same < Math.min(old.length, value.length) && JSON.stringify(old[same]) === JSON.stringify(value[same]))
        same++
      out[name] = { same, more: value.slice(same) }
    } else if (JSON.stringify(before?.[name]) !== JSON.stringify(value)) out[name] = value
  }
  const gone = Object.keys(before ?? {}).filter(name => !(name in now))
  if (gone.length > 0) out['gone'] = gone
  return out
}

async function session(client: AgentClient, run: AgentRun, commands: readonly string[]): Promise<Recorded[]> {
  const installed = install(client)
  const home = mkdtempSync(join(tmpdir(), 'sluice-record-'))
  const folder = join(home, 'work')
  mkdirSync(folder)
  writeFileSync(join(folder, 'check.sh'), CHECK)
  const config = parse(readFileSync(join(ROOT, 'gateway.yaml'), 'utf8'))
  config.store = 'sqlite::memory:'
  for (const entries of Object.values<unknown[]>(config.pipelines)) {
    const auth = entries.indexOf('auth')
    if (auth !== -1) entries[auth] = { auth: { x_api_key: true } }
  }
  config.organizations.demo.plan = 'custom'
  const file = join(home, 'gateway.yaml')
  writeFileSync(file, stringify(config))
  const gateway = await buildGateway(file, { log: silent, watch: false, listen: { port: 0 }, admin: false })
  const recorded: Recorded[] = []
  const proxy = await recorder(gateway.address, recorded)
  try {
    const directive = typeof run.directive === 'string' ? run.directive : run.directive(MODEL)
    const [call, ...last] = directive.split('; next ')
    const calls = commands.map(command => call!.replace(JSON.stringify(MAKE).slice(1, -1), command))
    const prompt = `Make the check pass. [[sim: ${[...calls, ...last].join('; next ')}]]`
    const task = { url: proxy.url, key: KEY, model: MODEL, prompt, folder }
    for (const [path, text] of Object.entries(run.files?.(task) ?? {})) {
      mkdirSync(dirname(join(home, path)), { recursive: true })
      writeFileSync(join(home, path), text)
    }
    const environment = { ...environmentOf(installed, home), ...run.environment?.(task) }
    const { code, out, err } = await execute([...installed.command, ...run.arguments(task)], folder, environment)
    // Some agents find out themselves that they are in a circle, and end.
    if (code !== 0) console.error(`  ${client.name} ended with ${code}: ${(out + err).trim().split('\n').at(-1)}`)
  } finally {
    proxy.close()
    await gateway.close()
    rmSync(home, { recursive: true, force: true })
  }
  return JSON.parse(JSON.stringify(recorded).replaceAll(home, '/home/agent'))
}

const named = process.argv.slice(2).map(name => name.toLowerCase())
mkdirSync(SESSIONS, { recursive: true })
for (const client of AGENTS.filter(({ name }) => named.length === 0 || named.includes(name.toLowerCase()))) {
  const name = client.name.toLowerCase().replace(/\W+/g, '-')
  for (const [kind, commands] of Object.entries({ work: WORK, circle: CIRCLE })) {
    try {
      const requests = await session(client, client.runs[0]!, commands)
      // An agent without tools, such as aider, asks once.
      if (requests.length < 2) continue
      let before: any
      const lines = requests.map(request => {
        const line = JSON.stringify(kept(request, before))
        const { tools = [], ...rest } = request.body
        before = digested({ ...rest, tools: `${digested(JSON.stringify(tools))}` })
        return line
      })
      writeFileSync(join(SESSIONS, `${name}-${kind}.jsonl`), lines.join('\n') + '\n')
      console.log(`${name} ${kind}: ${requests.length} requests`)
    } catch (error) {
      console.error(`! ${name} ${kind}: ${(error as Error).message}`)
    }
  }
}
