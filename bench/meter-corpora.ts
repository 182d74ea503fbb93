/**
 * The texts for the meter's benchmark: natural corpora, which give new text at each call, and the adversarial list. All
 * texts come from packages that the lockfile installs, or from a seeded generator, so that two runs on one checkout use
 * the same texts.
 */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { tables } from '../meter/tables.ts'
import { tokenBytes } from '../meter/vocabulary.ts'
import { generator } from '../test/random.ts'

export interface Corpus {
  name: string
  /** The next text of about `bytes` bytes. No text is returned twice. */
  next(bytes: number): string
}

const modules = new URL('../node_modules', import.meta.url).pathname

function* files(directory: string, wanted: RegExp): Generator<string> {
  for (const entry of readdirSync(directory, { withFileTypes: true }).sort((a, b) => (a.name < b.name ? -1 : 1))) {
    const path = join(directory, entry.name)
    if (entry.isDirectory()) yield* files(path, wanted)
    else if (entry.isFile() && wanted.test(entry.name)) yield path
  }
}

/** A corpus of the chunks of a generator. */
class Chunks implements Corpus {
  readonly name: string
  readonly #source: Iterator<string>

  constructor(name: string, source: Iterator<string>) {
    this.name = name
    this.#source = source
  }

  next(bytes: number): string {
    const parts: string[] = []
    for (let size = 0; size < bytes; ) {
      const { value, done } = this.#source.next()
      if (done) throw new Error(`${this.name}: no distinct text left`)
      parts.push(value)
      size += Buffer.byteLength(value)
    }
    return parts.join('')
  }
}

/** Gives each fourth text to the chat requests and the others to the prose, so that no text is in both. */
const share = (forChat: boolean) => {
  let n = 0
  return () => (n++ % 4 === 0) === forChat
}

/** Sentences of READMEs and of doc comments, each only once. */
function* prose(forChat: boolean): Generator<string> {
  const mine = share(forChat)
  const seen = new Set<string>()
  for (const path of files(modules, /\.(md|d\.ts)$/)) {
    if (/CHANGELOG/.test(path)) continue
    for (const raw of readFileSync(path, 'utf8').split('\n')) {
      const line = raw.replace(/^[\s*/>-]+/, '').trim()
      if (
        line.length < 40 ||
        seen.has(line) ||
        !/^[A-Za-z][a-z]*( [\w'`",.:()-]+){5,}/.test(line) ||
        /[{}=<>|;]/.test(line)
      )
        continue
      seen.add(line)
      if (mine()) yield line + (line.endsWith('.') ? '\n\n' : ' ')
    }
  }
}

/** Whole source files, each text only once. */
function* source(forChat: boolean): Generator<string> {
  const mine = share(forChat)
  const seen = new Set<string>()
  for (const path of files(modules, /\.(js|ts|mts|cts)$/)) {
    if (/\.min\.|ranks|tiktoken|token/.test(path)) continue
    const text = readFileSync(path, 'utf8')
    if (text.length > 200_000 || /.{2000}/.test(text)) continue
    const half = text.slice(0, 20_000)
    if (seen.has(half)) continue
    seen.add(half)
    if (mine()) yield half
  }
}

/** Sentences of Chinese words from the vocabulary. Their frequency follows the order of the vocabulary. */
function* chinese(seed: number): Generator<string> {
  const random = generator(seed)
  const words: string[] = []
  for (let id = 256; id < tables().length.length; id++) {
    const text = Buffer.from(tokenBytes(id)).toString()
    if (/^[\u4e00-\u9fff]{1,4}$/.test(text)) words.push(text)
  }
  const single: string[] = []
  for (let c = 0x4e00; c < 0x9fa5; c++) single.push(String.fromCharCode(c))
  const zipf = (n: number) => Math.floor(n ** (random(1_000_000) / 1_000_000)) - 1
  for (;;) {
    let sentence = ''
    for (let n = 3 + random(12); n > 0; n--)
      sentence += random(40) === 0 ? single[random(single.length)]! : words[Math.max(0, zipf(words.length))]!
    yield sentence + ['，', '，', '。', '。\n', '、', '？', '：'][random(7)]!
  }
}

/** Chat requests as JSON, with prose, code and Chinese in messages, tool calls and results. */
function* chat(): Generator<string> {
  const random = generator(11)
  const takes = [prose(true), source(true), chinese(17)]
  const take = (n: number) => {
    let text = ''
    while (text.length < n) text += takes[[0, 0, 1, 2][random(4)]!]!.next().value?.slice(0, 600) ?? ''
    return text
  }
  for (;;) {
    const id = `call_eba1_${random(2 ** 31).toString(36)}${random(2 ** 31).toString(36)}`
    yield `${JSON.stringify({
      role: 'assistant',
      content: take(120),
      tool_calls: [
        {
          id,
          type: 'function',
          function: {
            name: 'read_file',
            arguments: JSON.stringify({ path: `src/${random(10_000)}.ts`, limit: random(500) }),
          },
        },
      ],
    })},\n${JSON.stringify({ role: 'tool', tool_call_id: id, content: take(400) })},\n${JSON.stringify({ role: 'user', content: take(80) })},\n`
  }
}

function* base64(): Generator<string> {
  const random = generator(13)
  for (;;) yield `${Buffer.from(Array.from({ length: 57 * 20 }, () => random(256))).toString('base64')}\n`
}

export function corpora(): Corpus[] {
  return [
    new Chunks('English prose', prose(false)),
    new Chunks('source code', source(false)),
    new Chunks('Chinese', chinese(7)),
    new Chunks('chat JSON', chat()),
    new Chunks('base64', base64()),
  ]
}

/**
 * The adversarial list. `make` returns a text of about `bytes` bytes of UTF-8. `listed` texts are counted with the
 * peers too. Random texts differ in each round. If they did not, their short pieces would come from the meter's cache,
 * as far as they fit there.
 */
export const adversarial: { name: string; listed: boolean; make(bytes: number, round?: number): string }[] = [
  { name: 'letter a', listed: true, make: n => 'a'.repeat(n) },
  { name: 'digit 7', listed: true, make: n => '7'.repeat(n) },
  { name: 'spaces', listed: true, make: n => ' '.repeat(n) },
  { name: 'newlines', listed: true, make: n => '\n'.repeat(n) },
  { name: '!', listed: true, make: n => '!'.repeat(n) },
  { name: '的', listed: true, make: n => '的'.repeat(n / 3) },
  { name: 'emoji', listed: true, make: n => '😀'.repeat(n / 4) },
  { name: 'combining mark', listed: true, make: n => '\u0301'.repeat(n / 2) },
  {
    name: 'base64, one line',
    listed: true,
    make(n, round = 0) {
      const random = generator(n + round * 1_000_003)
      return Buffer.from(Array.from({ length: (n * 3) / 4 }, () => random(256))).toString('base64')
    },
  },
  {
    name: 'random Latin-1',
    listed: true,
    make(n, round = 0) {
      const random = generator(n + 1 + round * 1_000_003)
      return Buffer.from(Array.from({ length: n / 1.5 }, () => random(256))).toString('latin1')
    },
  },
  { name: 'abc…xyz', listed: true, make: n => 'abcdefghijklmnopqrstuvwxyz'.repeat(n / 26 + 1).slice(0, n) },
  { name: 'aBaB', listed: true, make: n => 'aB'.repeat(n / 2) },
  { name: 'spaces, then a letter', listed: true, make: n => `${' '.repeat(n - 1)}a` },
  {
    name: 'random lower case',
    listed: false,
    make(n, round = 0) {
      const random = generator(n + 2 + round * 1_000_003)
      return Buffer.from(Array.from({ length: n }, () => 97 + random(26))).toString('latin1')
    },
  },
  {
    name: 'random CJK',
    listed: false,
    make(n, round = 0) {
      const random = generator(n + 3 + round * 1_000_003)
      return Array.from({ length: n / 3 }, () => String.fromCharCode(0x4e00 + random(20_000))).join('')
    },
  },
  { name: 'あ then capitals', listed: false, make: n => `あ${'A'.repeat(n - 3)}` },
  { name: 'tabs and newlines', listed: false, make: n => '\t\n'.repeat(n / 2) },
  { name: '=-', listed: false, make: n => '=-'.repeat(n / 2) },
  { name: '-', listed: false, make: n => '-'.repeat(n) },
  { name: '-- runs', listed: false, make: n => `${'-'.repeat(113)}+`.repeat(n / 114) },
]
