/**
 * The part of `bench:meter` that needs a process like the gateway's, without the hundreds of megabytes of heap of the
 * peers. It counts the growing history of an agent, and measures how long the event loop is blocked while the pool
 * counts a large prompt. meter.ts starts it.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import type { Conversation, Turn } from '../core/canon/conversation.ts'
import { countTokens, PromptCount, SYNC_LIMIT } from '../meter/index.ts'
import { generator } from '../test/random.ts'
import { median } from './load/percentile.ts'
import { adversarial, corpora } from './meter-corpora.ts'
import { cpuTime, heading, row, time } from './meter-print.ts'

const quick = process.argv.includes('--quick')
const media = { image_tokens: 85, document_tokens: 1500 }
const source = corpora().find(corpus => corpus.name === 'source code')!

function conversation(turns: Turn[]): Conversation {
  return {
    surface: 'chat',
    requestedModel: 'm',
    model: 'm',
    stream: false,
    system: [],
    turns,
    tools: [],
    toolChoice: { type: 'auto' },
    parallelToolCalls: true,
    sampling: { stop: [], logprobs: false },
    reasoning: {},
  }
}

const user = (text: string): Turn => ({ role: 'user', parts: [{ type: 'text', text }] })

function history(): void {
  const warm = 5
  const rounds = quick ? 15 : 31
  const random = generator(3)
  const first: number[] = []
  const again: number[] = []
  for (let round = 0; round < warm + rounds; round++) {
    const turns: Turn[] = []
    for (let bytes = 0; bytes < 200_000; ) {
      const text = source.next(1200 + random(9000))
      turns.push({ role: turns.length % 2 ? 'assistant' : 'user', parts: [{ type: 'text', text }] })
      bytes += text.length
    }
    // The history is parsed again for each turn, like the body of a request.
    const wire = JSON.stringify(turns)
    const one = conversation(JSON.parse(wire))
    const two = conversation(JSON.parse(JSON.stringify([...turns, user(source.next(1).slice(0, 300))])))
    first.push(time(() => new PromptCount(one).now(media)))
    again.push(time(() => new PromptCount(two).now(media)))
  }
  const factor = median(first.map((t, i) => t / again[i]!).slice(warm))
  heading(
    `an agent's 200 KB history, ${rounds} of them: first count ${median(first.slice(warm)).toFixed(2)} ms, with one new turn ${median(again.slice(warm)).toFixed(2)} ms, ${factor.toFixed(1)} times as fast`,
  )
}

interface Watched {
  took: number
  delay: number
  own: number
  smallPrompts: number
  longest: number
}

const delay = monitorEventLoopDelay({ resolution: 1 })

/** Runs a job while a loop counts a small prompt every 2 ms. */
async function watch(small: () => string, job: () => Promise<unknown>): Promise<Watched> {
  collectGarbage()
  await new Promise(resolve => setTimeout(resolve, 20))
  delay.reset()
  delay.enable()
  const seen: Watched = { took: 0, delay: 0, own: 0, smallPrompts: 0, longest: 0 }
  const start = performance.now()
  let before = cpuTime()
  let done = false
  const finished = job().then(() => {
    seen.took = performance.now() - start
    done = true
  })
  while (!done) {
    const prompt = conversation([user(small())])
    seen.longest = Math.max(
      seen.longest,
      time(() => new PromptCount(prompt).now(media)),
    )
    seen.smallPrompts++
    await new Promise(resolve => setTimeout(resolve, 2))
    const now = cpuTime()
    seen.own = Math.max(seen.own, now - before)
    before = now
  }
  await finished
  delay.disable()
  seen.delay = delay.max / 1e6
  return seen
}

async function eventLoop(): Promise<void> {
  const rounds = quick ? 3 : 7
  heading(`1.6 MB prompts in the pool, ${rounds} of each kind: ms to count (median), the event loop's longest delay (median and most of the runs), the main
thread's own work within 2 ms (most), and small prompts counted meanwhile with the longest such count. The delay of the first two rows is the machine's.`)
  const text = source.next(4_000_000)
  let at = 0
  const small = () => text.slice((at = at + 2048 < text.length ? at + 1024 : 0), at + 1024)
  await new PromptCount(conversation([user('warm '.repeat(50_000))])).inPool(media)

  // Uses a whole core like a thread of the pool, but in another process.
  const burner = spawn(
    process.execPath,
    [
      '-e',
      `os.setPriority(os.constants.priority.PRIORITY_BELOW_NORMAL)
       process.stdin.on('data', ms => { for (const end = Date.now() + Number(ms); Date.now() < end; ); process.stdout.write('.') })`,
    ],
    { stdio: ['pipe', 'pipe', 'inherit'] },
  )
  const burn = async (ms: number) => {
    burner.stdin.write(String(ms))
    await once(burner.stdout, 'data')
  }
  await burn(1)

  const kinds: { name: string; run: (round: number) => Promise<Watched> }[] = [
    { name: '(nothing)', run: () => watch(small, () => new Promise(resolve => setTimeout(resolve, 80))) },
    { name: '(another process)', run: () => watch(small, () => burn(80)) },
    ...adversarial.map(({ name, make }) => ({
      name,
      run: (round: number) => {
        // Each round has another text; the cache would know a repeated one. It is parsed from JSON, like a request
        // body.
        const large = JSON.parse(JSON.stringify(`${round}\n${make(1_600_000, round)}`)) as string
        const prompt = new PromptCount(conversation([user(large)]))
        if (prompt.size <= SYNC_LIMIT) throw new Error('this should go to the pool')
        return watch(small, () => prompt.inPool(media))
      },
    })),
  ]
  const results = kinds.map(() => [] as Watched[])
  for (let round = 0; round < rounds; round++)
    for (const [i, kind] of kinds.entries()) results[i]!.push(await kind.run(round))
  burner.stdin.end()

  row('', ['count', 'delay', 'most', 'own work', 'small prompts', 'longest'])
  const most = (runs: Watched[], figure: keyof Watched) => Math.max(...runs.map(run => run[figure]))
  for (const [i, { name }] of kinds.entries()) {
    const runs = results[i]!
    row(name, [
      median(runs.map(run => run.took)),
      median(runs.map(run => run.delay)),
      most(runs, 'delay'),
      most(runs, 'own'),
      String(runs.reduce((n, run) => n + run.smallPrompts, 0)),
      most(runs, 'longest'),
    ])
  }
  const [nothing, other, ...prompts] = results
  console.log(
    `longest delay while a prompt is counted: ${Math.max(...prompts.map(runs => median(runs.map(run => run.delay)))).toFixed(1)} ms as the median of a kind, ${Math.max(...prompts.map(runs => most(runs, 'delay'))).toFixed(1)} ms of all runs, ${Math.max(...prompts.map(runs => most(runs, 'own'))).toFixed(1)} ms of it the main thread's work; with nothing to count ${most(nothing!, 'delay').toFixed(1)} ms, beside another process ${most(other!, 'delay').toFixed(1)} ms`,
  )
}

function collectGarbage(): void {
  setFlagsFromString('--expose-gc')
  runInNewContext('gc')()
}

for (let i = 0; i < 40; i++) countTokens(source.next(32_000))
history()
await eventLoop()
