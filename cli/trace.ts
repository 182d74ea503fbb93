/** `sluice trace`: what became of one request, from the log, the ledger and the memory of a running gateway. */
import { createReadStream } from 'node:fs'
import { createInterface } from 'node:readline'
import { parseArgs } from 'node:util'
import type { TakenJson } from '../admin/recent.ts'
import type { Alike, Traced } from '../admin/troubles.ts'
import type { GatewayConfig } from '../config/types.ts'
import { type ErrorCode, OF_STORE } from '../core/canon/errors.ts'
import { type Dimension, isMoney } from '../core/canon/limits.ts'
import { formatUsd } from '../core/canon/money.ts'
import type { TimelineEntry } from '../core/engine/timeline.ts'
import type { PassedOver } from '../core/plugin.ts'
import type { LedgerRow } from '../core/ports/store.ts'
import { requestIdTime } from '../core/tools/ids.ts'
import { ModelAccess } from '../plugins/model-access/access.ts'
import { ADMIN_HELP, ADMIN_OPTIONS, AdminListener } from './admin-listener.ts'
import { configFile } from './arguments.ts'
import { Holders } from './holders.ts'
import type { Verb } from './main.ts'
import { NEXT_STEPS } from './next-steps.ts'
import { unboundedWords } from './org.ts'
import { loadWithoutSecrets } from './problems.ts'
import { Progress } from './progress.ts'
import { columns, Failure, UsageError } from './terminal.ts'
import { openLedger } from './usage-report.ts'

const HELP = `Usage: sluice trace REQUEST_ID [FILE] [--log LOG]

Shows what became of one request: outcome, backends tried, tokens, limits
taken, bill and the time of each plugin. It reads the ledger of FILE's store
(default gateway.yaml), asks the running gateway whether it still has the
exchange in memory, and reads the log where --log names it.

  --log LOG       file with the gateway's log; - is standard input:
                  journalctl -u sluice -o cat | sluice trace ID --log -
${ADMIN_HELP}
  --json          what each source has, as JSON
  --config FILE   the same as FILE
`

/** How far the clock of the limits and the ledger may be from the system's clock, by which ids are made. */
const CLOCKS_APART_MS = 600_000

/** A line of the log. */
export type LogLine = { msg: string; time?: string; level?: string } & Record<string, unknown>

/** What each source has; `missing` says why a source has nothing. */
export interface Found {
  request_id: string
  /** The lines with this request id, and those that say that one of its backends was left out then. */
  log: LogLine[]
  ledger: LedgerRow | null
  memory: (Omit<Traced, 'taken'> & { taken: TakenJson | null }) | null
  missing: { log?: string; ledger?: string; memory?: string }
  /** Why the model was not available, by the configuration and the account as they are now; absent where they don't tell. */
  cause?: string
}

export const trace: Verb = {
  summary: 'Shows what became of one request, by its x-request-id.',
  help: HELP,
  async run(args, terminal) {
    const { values, positionals } = parseArgs({
      args,
      options: {
        config: { type: 'string' },
        log: { type: 'string' },
        ...ADMIN_OPTIONS,
        json: { type: 'boolean', default: false },
      },
      allowPositionals: true,
    })
    const [id, ...files] = positionals
    if (id === undefined) throw new UsageError('name the request id: the header x-request-id of its reply')
    const madeAt = requestIdTime(id)
    if (madeAt === undefined)
      throw new UsageError(`'${id}' is no request id: they are req_ and 24 letters or digits, as in x-request-id`)
    const file = configFile(values.config, files)
    const { config } = await loadWithoutSecrets(file, terminal)
    const gateway = new AdminListener(config, values)
    const [memory, ledger, log] = await Promise.all([
      gateway.get(`/trace?id=${id}`),
      fromLedger(id, madeAt, config.store.url),
      fromLog(id, values.log),
    ])
    const found: Found = {
      request_id: id,
      log: 'lines' in log ? log.lines : [],
      ledger: 'row' in ledger ? ledger.row : null,
      memory: 'found' in memory ? (memory.found as Found['memory']) : null,
      missing: {
        ...('missing' in log && { log: log.missing }),
        ...('missing' in ledger && { ledger: ledger.missing }),
        ...('missing' in memory && { memory: memory.missing }),
      },
    }
    const cause = await causeOf(found, file, config)
    if (cause !== undefined) found.cause = cause
    const known = found.log.length > 0 || found.ledger !== null || found.memory !== null
    if (values.json) terminal.out(JSON.stringify(found, null, 2))
    else if (known) terminal.out(inWords(found))
    else throw new Failure(unknown(found, madeAt))
    return known ? 0 : 1
  },
}

function unknown({ request_id, missing }: Found, madeAt: number): string {
  return [
    `nothing is known of ${request_id}, which a gateway gave out at ${new Date(madeAt).toISOString()}`,
    `  log: ${missing.log}`,
    `  ledger: ${missing.ledger}`,
    `  gateway: ${missing.memory}`,
  ].join('\n')
}

// ---- sources --------------------------------------------------------------------------------------------------------

async function fromLedger(id: string, madeAt: number, url: string): Promise<{ row: LedgerRow } | { missing: string }> {
  if (url === 'sqlite::memory:') return { missing: 'the store is in the memory of the gateway' }
  const [since, until] = [madeAt - CLOCKS_APART_MS, madeAt + CLOCKS_APART_MS]
  try {
    for await (const page of openLedger(
      url,
      { since, until, endedSince: since },
      new Progress(process.stderr, 'rows'),
    )) {
      const row = page.find(({ request_id }) => request_id === id)
      if (row) return { row }
    }
  } catch (error) {
    return { missing: (error as Error).message }
  }
  return { missing: 'no row: it was not admitted, it still runs, or its row is older than the ledger keeps' }
}

/** A line of another program before or around the JSON, as `docker compose logs` writes it, is passed over. */
async function fromLog(id: string, log: string | undefined): Promise<{ lines: LogLine[] } | { missing: string }> {
  if (log === undefined) return { missing: 'not read; name it with --log FILE, or --log - for standard input' }
  const lines: LogLine[] = []
  /** By backend: the line that says that it is left out now. */
  const out = new Map<unknown, LogLine>()
  const input = log === '-' ? process.stdin : createReadStream(log)
  try {
    for await (const text of createInterface({ input, crlfDelay: Number.POSITIVE_INFINITY })) {
      const health = text.includes('"msg":"backend ')
      const line = health || text.includes(id) ? parsed(text) : undefined
      if (line?.msg === 'backend left out') out.set(line['backend'], line)
      else if (line?.msg === 'backend back') out.delete(line['backend'])
      else if (line?.['request_id'] === id) {
        if (line.msg === 'exchange') lines.unshift(...out.values())
        lines.push(line)
      }
    }
  } catch (error) {
    throw new Failure(`${log} can't be read: ${(error as NodeJS.ErrnoException).code ?? (error as Error).message}`)
  }
  if (!lines.some(line => line['request_id'] === id)) return { missing: 'no line has this id' }
  return { lines }
}

function parsed(text: string): LogLine | undefined {
  try {
    const value: unknown = JSON.parse(text.slice(text.indexOf('{')))
    return typeof value === 'object' && value !== null && 'msg' in value ? (value as LogLine) : undefined
  } catch {
    return undefined
  }
}

/** Why a model is not available that the file has, and that plan and key allow. */
async function causeOf({ memory, log }: Found, file: string, config: GatewayConfig): Promise<string | undefined> {
  const line = (log.find(({ msg }) => msg === 'exchange') ?? {}) as Record<string, any>
  const code = memory?.code || line['code']
  const id: string | undefined = memory?.organization || line['organization']
  if (code !== 'model_not_available' || !id) return undefined
  const access = new ModelAccess(config)
  const asked = access.find(memory?.unknownModel || line['unknown_model'] || '')
  const holders = new Holders(file, config)
  try {
    const { organization } = (await holders.find(id)) ?? {}
    const unbounded = asked !== undefined && organization && access.unbounded(organization).includes(asked)
    return unbounded ? unboundedWords([asked.id]) : undefined
  } catch {
    // What the ledger is missing says that the store does not open.
    return undefined
  } finally {
    await holders.close()
  }
}

// ---- in words -------------------------------------------------------------------------------------------------------

/** The report as text of at most 80 columns, as far as its words are shorter than that; exported for tests. */
export function inWords(found: Found): string {
  const { memory, ledger, log } = found
  const line = (log.find(({ msg }) => msg === 'exchange') ?? {}) as Record<string, any>
  const detail = log.find(({ msg }) => msg === 'trace') as
    | { taken: TakenJson | null; timeline: TimelineEntry[] | null }
    | undefined
  const rows: string[][] = [['request', found.request_id]]
  const row = (name: string, value: string | undefined) => value && rows.push([name, value])
  const at = ledger?.time ?? memory?.at
  row('began', at === undefined ? undefined : new Date(at).toISOString())
  const status: number | undefined = memory?.status ?? line['status']
  const outcome: string | undefined = memory?.outcome ?? line['outcome'] ?? ledger?.outcome
  const code = memory?.code || line['code']
  const param = memory?.param || line['param']
  row(
    'outcome',
    [status || undefined, outcome, code && `(${code}${param ? ` at ${param}` : ''})`].filter(Boolean).join(' '),
  )
  row('alike', memory?.alike ? alike(memory.alike) : undefined)
  row('route', memory?.route || line['route'] || ledger?.surface)
  const organization = memory?.organization || line['organization'] || ledger?.organization
  row('client', memory?.client && `${memory.client}, of no organization that is known`)
  row('caller', organization && `${organization}, key ${memory?.key || line['key'] || ledger?.key_id}`)
  const unknownModel = memory?.unknownModel || line['unknown_model']
  row(
    'model',
    memory?.model ||
      line['model'] ||
      ledger?.model ||
      (unknownModel &&
        `${unknownModel}, which is not offered${code === 'model_not_available' ? ' to this caller' : ''}`),
  )
  for (const text of backends(found, line)) row('backend', text)
  for (const over of memory?.passedOver ?? (line['passed_over'] as PassedOver[] | undefined) ?? [])
    row('backend', notAsked(over))
  row('cause', found.cause ?? (memory?.cause || line['cause']))
  const slowed = memory?.slowedMs || line['slowed_ms']
  row('slowed', slowed && `by ${ms(slowed)}, on purpose`)
  const taken = memory?.taken ?? detail?.taken
  const reserved = taken ?? (line['reserved_input'] === undefined ? undefined : reservedOf(line))
  row(
    'reserved',
    reserved &&
      `${reserved.input} tokens in, ${reserved.output} out${reserved.cost === undefined ? '' : `, at most $${formatUsd(reserved.cost, 6)}`}`,
  )
  for (const { scope, dimension, per, capacity, remaining } of taken?.limits ?? []) {
    const amount = (value: number) =>
      isMoney(dimension as Dimension) ? `$${formatUsd(value, 4)}` : String(Math.floor(value))
    row('limit', `${scope}: ${amount(remaining)} of ${amount(capacity)} ${dimension}${per ? ` per ${per}` : ''} left`)
  }
  row('tokens', tokens(found, line))
  const cost: number | undefined = ledger?.cost ?? memory?.cost ?? line['cost']
  const terms = ledger && `, ${ledger.billing}${ledger.price_book && `, price book ${ledger.price_book}`}`
  row(
    'bill',
    cost === undefined ? undefined : `$${formatUsd(cost, 9)}${terms ?? (cost === 0 ? '' : ', no ledger row seen')}`,
  )
  const duration = memory?.durationMs ?? line['duration_ms'] ?? ledger?.duration_ms
  const first = memory?.ttfbMs ?? line['ttfb_ms'] ?? ledger?.ttfb_ms
  row(
    'time',
    duration === undefined ? undefined : `${ms(duration)}${first == null ? '' : `, first byte after ${ms(first)}`}`,
  )
  const known = code !== undefined && code !== '' && Object.hasOwn(NEXT_STEPS, code)
  row('next', ownStep(found, line) ?? (known ? nextStep(code as ErrorCode) : undefined))
  const parts = [columns(rows, 80, 0)]
  const timeline = memory?.timeline ?? detail?.timeline
  if (timeline) parts.push('', 'plugins', columns(timelineRows(timeline), 80))
  const others = log.filter(({ msg }) => msg !== 'exchange' && msg !== 'attempt failed' && msg !== 'trace')
  if (others.length > 0) parts.push('', 'other log lines', columns(others.map(otherLine), 80))
  const missing = Object.entries({ ...found.missing, ...(!timeline && { plugins: NOT_TIMED }) })
  if (missing.length > 0)
    parts.push(
      '',
      'not found',
      columns(
        missing.map(([name, why]) => [name, why!]),
        80,
      ),
    )
  return parts.join('\n')
}

/** `local/one was not asked: paused for all until 23:08:03.1, since it answered req_… with capacity_exceeded at 23:07:56.3` */
function notAsked({ backend, why, scope, code, how, requestId, since, until }: PassedOver): string {
  const met = how === undefined ? code : `${code} (${how})`
  const state = why === 'pause' ? 'paused' : 'left out'
  const whom = scope === 'all' ? 'all' : 'this organization'
  const cause =
    why === 'pause' ? `it answered ${requestId} with ${met}` : `${requestId} and others before it failed with ${met}`
  return `${backend} was not asked: ${state} for ${whom} until ${clockOf(until)}, since ${cause} at ${clockOf(since)}`
}

/** `1 of 12,345 that differ in nothing but their times, from 2026-12-01T10:02:11Z to 11:40:00Z` */
function alike({ count, first, last }: Alike): string {
  const [from, to] = [first, last].map(time => `${new Date(time).toISOString().slice(0, 19)}Z`) as [string, string]
  const until = to.slice(0, 10) === from.slice(0, 10) ? to.slice(11) : to
  return `1 of ${count.toLocaleString('en')} of this caller that went the same way, from ${from} to ${until}`
}

/** The time of day in UTC, to a tenth of a second. */
const clockOf = (time: number): string => `${new Date(time).toISOString().slice(11, 21)}Z`

/** What whoever runs the gateway can do where the cause is theirs. */
function ownStep({ memory }: Found, line: Record<string, any>): string | undefined {
  const cause: string = memory?.cause || line['cause'] || ''
  if (cause.startsWith(OF_STORE))
    return 'Look at the store: /readyz says how it is now, and SluiceStoreDown in docs/runbooks.md what to do.'
  const failed = memory?.failed ?? []
  const providerOf = ({ backend }: { backend: string }) => backend.split('/')[0]
  const unreachable = failed.find(({ why }) => why?.startsWith('could not connect'))
  if (unreachable)
    return `Look at the \`base_url\`, the name and the certificate of provider ${providerOf(unreachable)}, and whether its server runs.`
  const unknown = failed.find(({ code }) => code === 'upstream_auth_error')
  return unknown && `Correct the \`api_key\` or the \`auth\` of provider ${providerOf(unknown)}.`
}

/** What to do, without advice to run this very command. */
function nextStep(code: ErrorCode): string | undefined {
  const plain = NEXT_STEPS[code].replace(/\[([^\]]+)\]\([^)]+\)/g, '$1')
  return plain.replace(/ ?Operators: `npx sluice trace REQUEST_ID`[^.]*\./, '') || undefined
}

const NOT_TIMED = 'the gateway has the times of sampled exchanges in memory, and in the log at level debug'

function reservedOf(line: Record<string, any>): { input: number; output: number; cost?: number } {
  return { input: line['reserved_input'], output: line['reserved_output'] }
}

/** A text for each backend that was tried, in order. */
function backends({ memory, log, ledger }: Found, line: Record<string, any>): string[] {
  const failed =
    memory?.failed.map(({ backend, code, status, told, why, ms }) => ({ backend, code, status, told, why, ms })) ??
    log
      .filter(({ msg }) => msg === 'attempt failed')
      .map(({ backend, code, upstream_status: status, upstream_error: told, upstream_why: why }) => ({
        backend,
        code,
        status,
        told,
        why,
        ms: 0,
      }))
  const texts = failed.map(({ backend, code, status, told, why, ms: took }) => {
    const { type, code: word, param, message } = (told ?? {}) as Record<string, string | undefined>
    const said = [status, type, word, param && `at ${param}`, message].filter(Boolean).join(', ')
    const happened = [said && `it answered ${said}`, why].filter(Boolean).join(', and ')
    return `${backend} failed${took > 0 ? ` after ${ms(took)}` : ''}: ${code}${happened && `; ${happened}`}`
  })
  const last = memory?.backend || line['backend'] || ledger?.provider
  if (last && failed.at(-1)?.backend !== last) texts.push(`${last} answered`)
  return texts
}

function tokens({ ledger, memory }: Found, line: Record<string, any>): string | undefined {
  if (ledger) {
    const { input, cached, cacheWrite, output, reasoning, searches, estimated } = ledger
    const part = (count: number, name: string) => (count > 0 ? [`${count} ${name}`] : [])
    const inside = (parts: string[]) => (parts.length > 0 ? ` (${parts.join(', ')})` : '')
    return (
      `${input} in${inside([...part(cached, 'cached'), ...part(cacheWrite, 'written to the cache')])}, ` +
      `${output} out${inside(part(reasoning, 'reasoning'))}` +
      `${searches > 0 ? `, ${searches} searches` : ''}${estimated ? ', estimated by the gateway' : ''}`
    )
  }
  const input = memory?.input ?? line['input_tokens']
  return input === undefined ? undefined : `${input} in, ${memory?.output ?? line['output_tokens']} out`
}

function timelineRows(timeline: readonly TimelineEntry[]): string[][] {
  return [...timeline]
    .sort((a, b) => a.at - b.at)
    .map(({ plugin, phase, at, ms: took, calls }) => [
      `at ${ms(at)}`,
      ms(took),
      plugin || 'gateway',
      calls > 1 ? `${phase}, ${calls} calls` : phase,
    ])
}

function otherLine({ time, level, msg, request_id: _, ...fields }: LogLine): string[] {
  return [time?.slice(11, 23) ?? '', level ?? '', `${msg} ${JSON.stringify(fields)}`]
}

function ms(value: number): string {
  return `${value < 10 ? Number(value.toFixed(2)) : Math.round(value)} ms`
}
