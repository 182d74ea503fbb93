/**
 * `npm run bench:meter [-- --quick]`: compares the meter with js-tiktoken, gpt-tokenizer, tiktoken (WASM) and
 * ai-tokenizer. No tokenizer counts a text twice. All take turns, text by text, so that other work on the machine
 * affects all alike. Figures are medians, and ratios are of one run. Run it on a quiet machine.
 */
import { spawnSync } from 'node:child_process'
import { cpus, loadavg } from 'node:os'
import { countTokens, TokenCounter } from '../meter/index.ts'
import { tables } from '../meter/tables.ts'
import { median } from './load/percentile.ts'
import { adversarial, corpora } from './meter-corpora.ts'
import { type Peer, peers } from './meter-peers.ts'
import { cpuTime, heading, row, time } from './meter-print.ts'

const quick = process.argv.includes('--quick')

const loading = time(tables)
countTokens('warm')
const us: Peer = { name: 'sluice', count: countTokens }
const others = await peers()
const everyone = [us, ...others]
const names = everyone.map(peer => peer.name)
/** Whether a peer is so slow that it gets fewer texts. */
const isSlow = (peer: Peer) => peer.name === 'js-tiktoken'
/** The corpora. All parts of the run take their texts from this one set, so that no text is used twice. */
const all = corpora()
const [prose, source] = all

console.log(`Node ${process.version}, ${cpus()[0]?.model}, ${cpus().length} cores, load ${loadavg()[0]!.toFixed(1)}`)
console.log(`tables loaded in ${loading.toFixed(0)} ms`)

/**
 * Measures each of `everyone` in each round; another one is first each time. @returns the figures of each, in the same
 * order
 */
function inTurns(rounds: number, measure: (peer: Peer, round: number) => number | undefined): number[][] {
  const figures: number[][] = everyone.map(() => [])
  for (let round = 0; round < rounds; round++) {
    for (let k = 0; k < everyone.length; k++) {
      const i = (round + k) % everyone.length
      const figure = measure(everyone[i]!, round)
      if (figure !== undefined) figures[i]!.push(figure)
    }
  }
  return figures
}

function naturalCorpora(): void {
  const warm = 8
  const rounds = quick ? 9 : 19
  const bytes = 32_000
  heading(`MB/s on natural text, median of ${rounds} rounds of ${bytes / 1000} KB (js-tiktoken: 3 of 6 KB)`)
  row('', [...names, 'best peer ×'])
  for (const corpus of all) {
    const texts = Array.from({ length: warm + rounds }, () => corpus.next(bytes))
    const rates = inTurns(warm + rounds, (peer, round) => {
      if (isSlow(peer) && (round < warm - 1 || round >= warm + 3)) return undefined
      const text = isSlow(peer) ? texts[round]!.slice(0, 6000) : texts[round]!
      const rate = Buffer.byteLength(text) / 1000 / time(() => peer.count(text))
      return round < warm ? undefined : rate
    }).map(median)
    row(corpus.name, [...rates, rates[0]! / Math.max(...rates.slice(1))])
  }
}

const MESSAGE = 1024
/** A tokenizer counts this many messages in a turn. After the first few, its data is in the processor's caches. */
const BATCH = 25

/** Memory larger than a core's caches. Writing it stands for the worst that a gateway does between two prompts. */
const elsewhere = new Int32Array(2 << 20).fill(1)
function goElsewhere(): void {
  for (let i = 0; i < elsewhere.length; i += 16) elsewhere[i]!++
}

function oneKilobyte(): void {
  heading('µs for a message of 1 KB of prose, each new; cold: 8 MB of other memory are written before each')
  row('', [...names, '× ai'])
  const line = (name: string, rounds: number, between: (() => void) | undefined) => {
    const times = inTurns(rounds, peer => {
      const size = isSlow(peer) ? 2 : BATCH
      const messages = batches.get(peer)!.splice(0, size)
      return median(
        messages.map(text => {
          between?.()
          return 1000 * time(() => peer.count(text))
        }),
      )
    }).map(median)
    row(name, [...times, times.at(-1)! / times[0]!])
  }
  const rounds = quick ? 5 : 11
  const message = () => prose!.next(MESSAGE).slice(0, MESSAGE)
  // The corpora before this one left words of other texts in the tokenizers' caches.
  for (let i = 0; i < 150; i++) {
    const text = message()
    for (const peer of everyone) if (!isSlow(peer)) peer.count(text)
  }
  const messages = Array.from({ length: 2 * rounds * BATCH }, message)
  const batches = new Map(everyone.map(peer => [peer, [...messages]]))
  line('message', rounds, undefined)
  line('message, cold', rounds, goElsewhere)
}

function deltas(): void {
  const passes = Array.from({ length: 9 }, () => {
    const parts = source!.next(100_000).match(/[\s\S]{4}/g)!
    const took = time(() => {
      const counter = new TokenCounter()
      for (const part of parts) counter.push(part)
      return counter.total
    })
    return (1e6 * took) / parts.length
  })
  heading(
    `TokenCounter: ${median(passes.slice(2)).toFixed(0)} ns for a push of 4 characters, total at the end included`,
  )
}

/** A copy of a text as V8 makes it when it parses JSON: one flat string, without concatenated parts. */
const flat = (text: string) => JSON.parse(JSON.stringify(text)) as string

function adversarialInputs(): void {
  const sizes = [1, 4, 16, 64, 256, 1024]
  const largest = sizes.at(-1)!
  const rounds = quick ? 5 : 9
  const limit = quick ? 500 : 10_000
  heading(
    `ms on adversarial input by KB, growth of CPU time per doubling from 16 KB on (sizes take turns in ${rounds} rounds); peers as far as they get in ${limit / 1000} s`,
  )
  row('', [...sizes.map(size => `${size} KB`), 'MB/s at last', 'max growth'])
  let worstGrowth = 0
  let worstRate = Number.POSITIVE_INFINITY
  for (const { name, make, listed } of adversarial) {
    // Each size gets the same number of bytes, and every text is counted once.
    let serial = 0
    const measure = (size: number) => {
      const repeat = largest / size
      const texts = Array.from({ length: repeat }, () => flat(make(size * 1024, serial++)))
      const before = cpuTime()
      const took = time(() => {
        for (const text of texts) countTokens(text)
      })
      return { ms: took / repeat, cpu: (cpuTime() - before) / repeat }
    }
    measure(largest)
    const samples = Array.from({ length: rounds }, () => sizes.map(measure))
    const times = sizes.map((_, i) => median(samples.map(round => round[i]!.ms)))
    // Each size is four times the one before. Growth is computed from CPU time, and from neighbouring sizes of one
    // round, because other work on the machine interrupts only the longer ones.
    const growth = Math.max(
      ...sizes.slice(3).map((_, i) => Math.sqrt(median(samples.map(round => round[i + 3]!.cpu / round[i + 2]!.cpu)))),
    )
    const rate = (largest * 1.024) / times.at(-1)!
    worstGrowth = Math.max(worstGrowth, growth)
    worstRate = Math.min(worstRate, rate)
    row(name, [...times, rate, growth])
    if (!listed) continue
    for (const peer of others) {
      const cells: (number | string)[] = []
      let factor = 16
      for (const [i, size] of sizes.entries()) {
        const last = cells.at(-1)
        // Two sizes show whether a peer is quadratic. A size that would certainly exceed the limit is not started.
        if (typeof last === 'number' && last * factor > limit) break
        const text = flat(make(size * 1024, serial++))
        const t = time(() => peer.count(text))
        if (typeof last === 'number' && i > 1) factor = Math.max(4, t / last)
        cells.push(t)
      }
      row(`  ${peer.name}`, cells)
    }
  }
  console.log(`slowest at 1 MB: ${worstRate.toFixed(1)} MB/s; largest growth per doubling: ${worstGrowth.toFixed(2)}`)
}

// The code of all tokenizers is compiled before anything is measured.
for (let i = 0; i < 40; i++) {
  const text = source!.next(32_000)
  for (const peer of everyone) peer.count(isSlow(peer) ? text.slice(0, 2000) : text)
}
naturalCorpora()
oneKilobyte()
deltas()
adversarialInputs()
const loop = spawnSync(
  process.execPath,
  [...process.execArgv, new URL('meter-loop.ts', import.meta.url).pathname, ...process.argv.slice(2)],
  { stdio: 'inherit' },
)
process.exitCode = loop.status ?? 1
