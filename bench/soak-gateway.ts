/**
 * The gateway under soak, in a process of its own (`bench/soak.ts` forks it). Messages in: `weigh`, `measure`, `reload`,
 * `close`; each is answered.
 *
 *   argv: FILE
 */
import { Session } from 'node:inspector'
import v8 from 'node:v8'
import { buildGateway } from '../cli/gateway.ts'
import { DenseSet, IdMap } from '../core/collections.ts'
import { RunningExchange } from '../core/exchange/index.ts'
import type { Logger } from '../core/plugin.ts'
import type { Cell } from '../core/store.ts'
import { Attempt } from '../plugins/upstream/attempt.ts'

/** What is quick to know, with any number of streams open. */
export interface Weight {
  rss: number
  heap: number
  /** Bytes of buffers, outside the heap. */
  buffers: number
  running: number
  connections: number
  /** Active handles of the event loop, by kind. */
  resources: Record<string, number>
}

/** All that may not be left behind. It walks the heap, for seconds when that is full. */
export interface Measure extends Weight {
  /** What lives in the heap: timers (those that keep no process alive, too), exchanges, attempts. */
  alive: Record<'timers' | 'exchanges' | 'attempts', number>
  /** Entries of all maps and sets together, and the largest of them with a key as a hint. */
  entries: number
  largest: string[]
  /** Ledger: exchanges admitted, and rows by outcome. */
  admitted: number
  outcomes: Record<string, number>
  /** Sum of the rows, and what the limiter holds as spent, nano-USD. */
  billed: number
  spent: number
  /** Concurrency slots that the limiter holds as taken. */
  slots: number
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

// A machine that is busy with others must not shed what the soak counts on; bench/overload.ts is for that.
const lag = { lagMs: () => 0, close() {} }
const gateway = await buildGateway(process.argv[2]!, { log, watch: false, lag })
const { ledger } = gateway.store
let admitted = 0
const intent = ledger.intent.bind(ledger)
ledger.intent = row => {
  admitted++
  intent(row)
}

/** The limits that bench/soak.ts gives the organization. */
const SLOTS = 1_000_000
const SPEND = 1e15
const CELLS: Cell[] = [
  { id: 'o:conc', scope: 'org', dimension: 'concurrency', kind: 'slots', capacity: SLOTS },
  { id: 'o:month', scope: 'org', dimension: 'spend', kind: 'spend', period: 'month', capacity: SPEND },
]

const aTimer = setTimeout(() => {}, 0)
clearTimeout(aTimer)
const count = (of: { prototype: unknown }): number =>
  (v8 as unknown as { queryObjects(of: unknown, options: { format: 'count' }): number }).queryObjects(of, {
    format: 'count',
  })

/** Entries of every live collection of a kind, over the inspector: leaks are found in maps that nobody thought of. */
function entriesOf(of: { prototype: unknown }): { size: number; largest: [size: number, key: string][] } {
  const session = new Session()
  session.connect()
  // Commands of a session in its own process are answered before `post` returns.
  const ask = (method: string, params: object): any => {
    let answer: any
    session.post(method, params, (error, result) => {
      if (error) throw error
      answer = result
    })
    return answer
  }
  try {
    Object.assign(globalThis, { soaked: of.prototype })
    const { result } = ask('Runtime.evaluate', { expression: 'soaked' })
    const { objects } = ask('Runtime.queryObjects', { prototypeObjectId: result.objectId })
    const look = `function () {
      const all = []
      for (const one of this) try { all.push([one.size, String(one.keys?.().next().value ?? '').slice(0, 60)]) } catch {}
      return { size: all.reduce((sum, [size]) => sum + size, 0), largest: all.sort((a, b) => b[0] - a[0]).slice(0, 3) }
    }`
    return ask('Runtime.callFunctionOn', {
      objectId: objects.objectId,
      functionDeclaration: look,
      returnByValue: true,
    }).result.value
  } finally {
    session.disconnect()
  }
}

async function weigh(): Promise<Weight> {
  for (let i = 0; i < 3; i++) {
    globalThis.gc!()
    await new Promise(resolve => setTimeout(resolve, 20))
  }
  const resources: Record<string, number> = {}
  for (const kind of process.getActiveResourcesInfo()) resources[kind] = (resources[kind] ?? 0) + 1
  const { rss, heapUsed, arrayBuffers } = process.memoryUsage()
  return {
    rss,
    heap: heapUsed,
    buffers: arrayBuffers,
    running: gateway.ingress.running.size,
    connections: gateway.listener.connections,
    resources,
  }
}

async function measure(): Promise<Measure> {
  await ledger.flush()
  const outcomes: Record<string, number> = {}
  let billed = 0
  for (const row of await ledger.query({ limit: 10_000_000 })) {
    outcomes[row.outcome] = (outcomes[row.outcome] ?? 0) + 1
    billed += row.cost
  }
  const [slots, spend] = await gateway.store.limits.peek('demo', CELLS, Date.now())
  const collections = [Map, Set, DenseSet, IdMap].map(entriesOf)
  const alive = {
    timers: count(aTimer.constructor as never),
    exchanges: count(RunningExchange),
    attempts: count(Attempt),
  }
  return {
    ...(await weigh()),
    alive,
    entries: collections.reduce((sum, { size }) => sum + size, 0),
    largest: collections
      .flatMap(({ largest }) => largest)
      .sort((a, b) => b[0] - a[0])
      .slice(0, 4)
      .map(([size, key]) => `${size} (${key})`),
    admitted,
    outcomes,
    billed,
    spent: SPEND - spend!.remaining!,
    slots: SLOTS - slots!.remaining!,
    unhandled,
    errors,
  }
}

process.on('message', async (message: 'weigh' | 'measure' | 'reload' | 'close') => {
  if (message === 'weigh') process.send!(await weigh())
  else if (message === 'measure') process.send!(await measure())
  else if (message === 'reload') process.send!(await gateway.reload())
  else {
    await gateway.close()
    process.exit(0)
  }
})
process.send!({ url: gateway.address })
