/** The thread side of pool.ts. One job at a time. */
import { constants, setPriority } from 'node:os'
import { parentPort, workerData } from 'node:worker_threads'
import { countTokens, TokenCounter } from './counter.ts'
import { parseJson } from './json.ts'
import type { Request, Response } from './pool.ts'
import { type Tables, useTables } from './tables.ts'

useTables(workerData as Tables)

// Where cores are scarce the event loop goes first. On Linux this concerns the calling thread alone; elsewhere it would the whole process.
if (process.platform === 'linux') setPriority(constants.priority.PRIORITY_BELOW_NORMAL)

const port = parentPort!
let counts: number[] = []
/** Of a text that came in parts. */
let counter: TokenCounter | undefined

function answer(response: Response): void {
  counts = []
  counter = undefined
  port.postMessage(response)
}

port.on('message', (request: Request) => {
  if ('drop' in request) answer({ dropped: true })
  else if ('body' in request) {
    try {
      answer({ value: parseJson(request.body) })
    } catch (error) {
      answer({ syntax: (error as Error).message })
    }
  } else {
    const { texts, open, last } = request
    for (let i = 0; i < texts.length; i++) {
      if (open && i === texts.length - 1) (counter ??= new TokenCounter()).push(texts[i]!)
      else if (counter) {
        counter.push(texts[i]!)
        counts.push(counter.total)
        counter = undefined
      } else counts.push(countTokens(texts[i]!))
    }
    if (last) answer({ counts })
  }
})
