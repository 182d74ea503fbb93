/**
 * The gateway under soak, in a process of its own (`bench/soak.ts` forks it). Messages in: `measure`, `reload`, `close`; each is answered.
 *
 *   argv: FILE
 */
import { buildGateway } from '../cli/gateway.ts'
import type { Logger } from '../core/plugin.ts'

export interface Measure {
  rss: number
  heap: number
  /** Buffers outside the heap. */
  external: number
  running: number
  connections: number
  /** Active handles of the event loop, by kind. */
  resources: Record<string, number>
  /** Ledger: exchanges admitted, and rows by outcome. */
  admitted: number
  outcomes: Record<string, number>
  unhandled: number
  /** Log lines of level error. */
  errors: string[]
}

let unhandled = 0
process.on('unhandledRejection', error => {
  unhandled++
  console.error('unhandled rejection', error)
})
const errors: string[] = []
const nothing = () => {}
const log: Logger = {
  debug: nothing,
  info: nothing,
  warn: nothing,
  error: (fields, message) => {
    if (errors.length < 20) errors.push(`${message} ${String((fields as { err?: unknown }).err ?? '')}`)
  },
}

const gateway = await buildGateway(process.argv[2]!, { log, watch: false })
const { ledger } = gateway.store
let admitted = 0
const intent = ledger.intent.bind(ledger)
ledger.intent = row => {
  admitted++
  intent(row)
}

async function measure(): Promise<Measure> {
  await ledger.flush()
  const rows = await ledger.query({ limit: 10_000_000 })
  const outcomes: Record<string, number> = {}
  for (const row of rows) outcomes[row.outcome] = (outcomes[row.outcome] ?? 0) + 1
  rows.length = 0
  for (let i = 0; i < 3; i++) {
    globalThis.gc!()
    await new Promise(resolve => setTimeout(resolve, 20))
  }
  const resources: Record<string, number> = {}
  for (const kind of process.getActiveResourcesInfo()) resources[kind] = (resources[kind] ?? 0) + 1
  const { rss, heapUsed, external } = process.memoryUsage()
  return {
    rss,
    heap: heapUsed,
    external,
    running: gateway.ingress.running.size,
    connections: gateway.listener.connections,
    resources,
    admitted,
    outcomes,
    unhandled,
    errors,
  }
}

process.on('message', async (message: 'measure' | 'reload' | 'close') => {
  if (message === 'measure') process.send!(await measure())
  else if (message === 'reload') process.send!(await gateway.reload())
  else {
    await gateway.close()
    process.exit(0)
  }
})
process.send!({ url: gateway.address })
