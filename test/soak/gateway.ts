/**
 * The gateway of the soak, in its own process, which `test/soak/index.ts` forks. It takes the messages `weigh`, `measure`,
 * `reload` and `close`, and answers each.
 *
 *   argv: FILE
 */
import { Session } from 'node:inspector'
import v8 from 'node:v8'
import { buildGateway } from '../../cli/gateway.ts'
import { RunningExchange } from '../../core/engine/exchange/index.ts'
import type { Logger } from '../../core/plugin.ts'
import type { Cell } from '../../core/ports/store.ts'
import { DenseSet, IdMap } from '../../core/tools/collections.ts'
import { Attempt } from '../../plugins/translation/attempt.ts'

/** What can be measured quickly, with any number of open streams. */
export interface Weight {
  rss: number
  heap: number
  /** Bytes of buffers outside the heap. */
  buffers: number
  running: number
  connections: number
  /** Number of active handles of the event loop, by kind. */
  resources: Record<string, number>
}

/**
 * Everything that must not be left at the end. Measuring it walks the heap, which takes seconds when the heap is full.
 */
export interface Measure extends Weight {
  /** Number of objects in the heap: timers (also unreferenced ones), exchanges and attempts. */
  alive: Record<'timers' | 'exchanges' | 'attempts', number>
  /** Number of entries of all maps and sets together; and the largest of them, each with one key as a hint. */
  entries: number
  largest: string[]
  /** From the ledger: number of admitted exchanges, and of rows by outcome. */
  admitted: number
  outcomes: Record<string, number>
  /** The sum of the rows' costs, and the spend in the limit engine, in nano-USD. */
  billed: number
  spent: number
  /** How many concurrency slots are taken in the limit engine. */
  slots: number
  unhandled: number
  /** The log lines of level error. */
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

// On a machine with other work, overload shedding would refuse requests that the soak expects to succeed. So it is off
// here; bench/overload.ts measures it.
const lag = { lagMs: () => 0, close() {} }
const gateway = await buildGateway(process.argv[2]!, { log, watch: false, lag })
const { ledger } = gateway.store
let admitted = 0
const intent = ledger.intent.bind(ledger)
ledger.intent = row => {
  admitted++
  intent(row)
}

/** The limits that test/soak/index.ts gives the organization. */
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

/**
 * The entries of all live collections of a kind, found over the inspector. So leaks are found also in unexpected maps.
 */
function entriesOf(of: { prototype: unknown }): { size: number; largest: [size: number, key: string][] } {
  const session = new Session()
  session.connect()
  // A session in the same process answers a command before `post` returns.
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
