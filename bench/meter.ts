/**
 * `npm run bench:meter [-- --quick]`: the meter beside js-tiktoken, gpt-tokenizer, tiktoken (WASM) and ai-tokenizer. Nobody counts a text twice, but where a line
 * says so. Figures are medians; run it on a quiet machine.
 */
import { cpus, loadavg } from 'node:os'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import type { Conversation, Turn } from '../core/conversation.ts'
import { countPrompt, countPromptAsync, countTokens, promptSize, SYNC_LIMIT, TokenCounter } from '../meter/index.ts'
import { tables } from '../meter/tables.ts'
import { adversarial, corpora, generator } from './meter-corpora.ts'
import { type Peer, peers } from './meter-peers.ts'

const quick = process.argv.includes('--quick')
const media = { image_tokens: 85, document_tokens: 1500 }

const median = (values: number[]) => values.toSorted((a, b) => a - b)[values.length >> 1]!

function time(work: () => void): number {
  const start = performance.now()
  work()
  return performance.now() - start
}

const row = (name: string, cells: (string | number)[]) =>
  console.log(
    name.padEnd(24) +
      cells.map(cell => (typeof cell === 'number' ? cell.toFixed(cell < 10 ? 2 : 1) : cell).padStart(14)).join(''),
  )

const heading = (text: string) => console.log(`\n${text}`)

const loading = time(tables)
countTokens('warm')
const us: Peer = { name: 'sluice', count: countTokens }
const others = await peers()
const everyone = [us, ...others]
/** One set for the whole run: all draw from it, so that no text comes twice. */
const all = corpora()
const [prose, source] = all

console.log(`Node ${process.version}, ${cpus()[0]?.model}, ${cpus().length} cores, load ${loadavg()[0]!.toFixed(1)}`)
console.log(`tables loaded in ${loading.toFixed(0)} ms`)

function naturalCorpora(): void {
  const rounds = quick ? 7 : 15
  const bytes = 32_000
  const warm = 12
  heading(`MB/s on natural text, median of ${rounds} rounds of ${bytes / 1000} KB (js-tiktoken: 3 of 6 KB)`)
  row('', [...everyone.map(p => p.name), 'best peer ×'])
  for (const corpus of all) {
    const texts = Array.from({ length: warm + rounds }, () => corpus.next(bytes))
    const rates = everyone.map(peer => {
      const slow = peer.name === 'js-tiktoken'
      const own = slow ? texts.slice(0, 6).map(text => text.slice(0, 6000)) : texts
      for (const text of own.slice(0, slow ? 3 : warm)) peer.count(text)
      return median(
        own.slice(slow ? 3 : warm).map(text => Buffer.byteLength(text) / 1000 / time(() => peer.count(text))),
      )
    })
    row(corpus.name, [...rates, rates[0]! / Math.max(...rates.slice(1))])
  }
}

function oneKilobyte(): void {
  heading('µs for a message of 1 KB of prose, each new')
  const messages = Array.from({ length: quick ? 200 : 300 }, () => prose!.next(1024).slice(0, 1024))
  const half = messages.length >> 1
  row(
    '',
    everyone.map(p => p.name),
  )
  row(
    'message',
    everyone.map(peer => {
      const own = peer.name === 'js-tiktoken' ? messages.slice(half - 20, half + 20) : messages
      for (const text of own.slice(0, own.length >> 1)) peer.count(text)
      return median(own.slice(own.length >> 1).map(text => 1000 * time(() => peer.count(text))))
    }),
  )
}

function deltas(): void {
  const text = source!.next(400_000)
  const parts = text.match(/[\s\S]{4}/g)!
  const pass = () => {
    const counter = new TokenCounter()
    for (const part of parts) counter.push(part)
    return counter.total
  }
  pass()
  heading(
    `TokenCounter: ${((1e6 * median(Array.from({ length: 7 }, () => time(pass)))) / parts.length).toFixed(0)} ns for a push of 4 characters, total at the end included`,
  )
}

function adversarialInputs(): void {
  const sizes = [1, 4, 16, 64, 256, 1024]
  const limit = quick ? 500 : 10_000
  heading(
    `ms on adversarial input by KB, growth per doubling from 16 KB on; peers as far as they get in ${limit / 1000} s`,
  )
  row('', [...sizes.map(size => `${size} KB`), 'MB/s at last', 'max growth'])
  let worstGrowth = 0
  let worstRate = Number.POSITIVE_INFINITY
  for (const { name, make, listed } of adversarial) {
    const inputs = sizes.map(size => make(size * 1024))
    // Long pieces are never cached; more repetitions for the short ones, the median of three runs of them.
    const times = inputs.map((text, i) => {
      const repeat = Math.max(1, Math.round(256 / sizes[i]!))
      countTokens(text)
      return (
        median(
          Array.from({ length: 5 }, () =>
            time(() => {
              for (let k = 0; k < repeat; k++) countTokens(text)
            }),
          ),
        ) / repeat
      )
    })
    const growth = Math.max(...times.slice(3).map((t, i) => Math.sqrt(t / times[i + 2]!)))
    const rate = Buffer.byteLength(inputs.at(-1)!) / 1000 / times.at(-1)!
    worstGrowth = Math.max(worstGrowth, growth)
    worstRate = Math.min(worstRate, rate)
    row(name, [...times, rate, growth])
    if (!listed) continue
    for (const peer of others) {
      const cells: (number | string)[] = []
      let factor = 16
      for (const [i, text] of inputs.entries()) {
        const last = cells.at(-1)
        // Quadratic ones are known after two sizes; what would surely pass the limit is not started.
        if (typeof last === 'number' && last * factor > limit) break
        const t = time(() => peer.count(text))
        if (typeof last === 'number' && i > 1) factor = Math.max(4, t / last)
        cells.push(t)
      }
      row(`  ${peer.name}`, cells)
    }
  }
  console.log(`slowest at 1 MB: ${worstRate.toFixed(1)} MB/s; largest growth per doubling: ${worstGrowth.toFixed(2)}`)
}

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

async function eventLoop(): Promise<void> {
  heading(
    '1.6 MB prompts in the pool: ms to count, the event loop’s longest delay, and the longest count of a small prompt meanwhile',
  )
  await countPromptAsync(conversation([user('warm '.repeat(50_000))]), media)
  const delay = monitorEventLoopDelay({ resolution: 1 })
  row('', ['count', 'max delay', 'small prompts', 'longest'])
  // What the machine itself does to a timer, with nothing to count.
  delay.enable()
  await new Promise(resolve => setTimeout(resolve, 300))
  delay.disable()
  row('(nothing)', ['', delay.max / 1e6])
  // Made and collected beforehand: making them leaves garbage whose collection would be measured. Parsed, as they come off the wire.
  const inputs = adversarial.map(({ name, make }) => ({
    name,
    text: JSON.parse(JSON.stringify(make(1_600_000))) as string,
  }))
  collectGarbage()
  for (const { name, text } of inputs) {
    const large = conversation([user(text)])
    await new Promise(resolve => setTimeout(resolve, 20))
    delay.reset()
    delay.enable()
    const start = performance.now()
    let done = false
    if (promptSize(large) <= SYNC_LIMIT) throw new Error('this should go to the pool')
    const counted = countPromptAsync(large, media).then(() => {
      done = true
    })
    let answered = 0
    let longest = 0
    while (!done) {
      const small = conversation([user(source!.next(1).slice(0, 1024))])
      longest = Math.max(
        longest,
        time(() => countPrompt(small, media)),
      )
      answered++
      await new Promise(resolve => setTimeout(resolve, 2))
    }
    await counted
    const total = performance.now() - start
    delay.disable()
    row(name, [total, delay.max / 1e6, String(answered), longest])
  }
}

function collectGarbage(): void {
  setFlagsFromString('--expose-gc')
  runInNewContext('gc')()
}

function history(): void {
  const rounds = quick ? 9 : 15
  const random = generator(3)
  const first: number[] = []
  const again: number[] = []
  for (let round = 0; round < rounds; round++) {
    const turns: Turn[] = []
    for (let bytes = 0; bytes < 200_000; ) {
      const text = source!.next(1200 + random(9000))
      turns.push({ role: turns.length % 2 ? 'assistant' : 'user', parts: [{ type: 'text', text }] })
      bytes += text.length
    }
    // Parsed anew each turn, as a request body is.
    const wire = JSON.stringify(turns)
    const one = conversation(JSON.parse(wire))
    const two = conversation([...JSON.parse(wire), user(source!.next(1).slice(0, 300))])
    first.push(time(() => countPrompt(one, media)))
    again.push(time(() => countPrompt(two, media)))
  }
  heading(
    `an agent's 200 KB history: first count ${median(first).toFixed(2)} ms, with one new turn ${median(again).toFixed(2)} ms, ${(median(first) / median(again)).toFixed(1)} times as fast`,
  )
}

// Everyone's code is compiled before anything is measured.
for (let i = 0; i < 40; i++) {
  const text = source!.next(32_000)
  for (const peer of everyone) peer.count(peer.name === 'js-tiktoken' ? text.slice(0, 2000) : text)
}
naturalCorpora()
oneKilobyte()
deltas()
adversarialInputs()
await eventLoop()
history()
