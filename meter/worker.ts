/** The code of a thread of pool.ts. It handles one request at a time. */
import { constants, setPriority } from 'node:os'
import { parentPort, workerData } from 'node:worker_threads'
import { TokenCounter, tokenizer, useTokenizer } from './counter.ts'
import { exactTexts, movable, normalText, parseJson } from './json.ts'
import type { CountRequest, Request, Response, WorkerData } from './pool.ts'
import { PADDING } from './splitter.ts'
import { useTables } from './tables.ts'
import { createTokenizer } from './tokenizer.ts'

const { tables, memory } = workerData as WorkerData
useTables(tables)
useTokenizer(createTokenizer(tables))

// The main thread goes first when there are not enough cores. On Linux the priority is of the calling thread. On other
// systems it would be of the whole process.
if (process.platform === 'linux') setPriority(constants.priority.PRIORITY_BELOW_NORMAL)

const port = parentPort!
/** The counters of texts that do not fit into the memory, by job. */
const counters = new Map<number, TokenCounter>()

function count({ lengths, continued, open, job }: CountRequest): number[] {
  const counts: number[] = []
  let at = 0
  for (let i = 0; i < lengths.length; i++) {
    const length = lengths[i]!
    const goesOn = open && i === lengths.length - 1
    if (goesOn || (continued && i === 0)) {
      let counter = counters.get(job)
      if (!counter) counters.set(job, (counter = new TokenCounter()))
      counter.push(Buffer.from(memory.buffer, at, length).toString('utf8'))
      if (!goesOn) {
        counts.push(counter.total)
        counters.delete(job)
      }
    } else counts.push(tokenizer().countBytes(memory, length, at))
    at += length + PADDING
  }
  return counts
}

function answer(request: Exclude<Request, { forget: number }>): Response {
  if ('lengths' in request) return { counts: count(request) }
  if ('json' in request) return { normal: request.json.map(normalText) }
  try {
    const { body, exactAt } = request
    return { value: parseJson(body), body, exact: exactAt && exactTexts(body, exactAt) }
  } catch (error) {
    return { syntax: (error as Error).message }
  }
}

port.on('message', (request: Request) => {
  if ('forget' in request) return void counters.delete(request.forget)
  const response = answer(request)
  port.postMessage(response, moved(response))
})

/** The memory that goes to the other thread without a copy. */
function moved(response: Response): ArrayBuffer[] {
  if ('body' in response) return movable(response.body)
  if (!('normal' in response)) return []
  return response.normal.flatMap(({ quoted }) => (quoted ? movable(quoted) : []))
}
