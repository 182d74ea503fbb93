/** Runs a book of command lines, and records the exit code, both outputs, and the files that each command writes. */
import { createHash } from 'node:crypto'
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir, userInfo } from 'node:os'
import { dirname, join, relative } from 'node:path'
import { type Book, type Case, marked } from './book.ts'
import { configuration, ROOT, sluice } from './gateway.ts'
import { Normaliser } from './normalise.ts'

/** A case of a book of command lines. Its input is `gateway.yaml`. */
interface Command extends Case {
  argv: string[]
  /** The file of gateways/ that is used as `gateway.yaml`. */
  base?: string
  /** Other files by name; and the text for standard input (`typed`). */
  files?: Record<string, string>
  typed?: string
}

const NOWHERE = '127.0.0.1:9'
/** This many commands run at the same time. */
const HANDS = 2

export async function runCommands(book: Book): Promise<string[][]> {
  const recordings: string[][] = []
  const waiting = book.entries.entries()
  await Promise.all(
    Array.from({ length: HANDS }, async () => {
      for (const [i, entry] of waiting) recordings[i] = await run(entry.case as Command)
    }),
  )
  return recordings
}

async function run({ argv, base, input, files = {}, typed = '' }: Command): Promise<string[]> {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-golden-'))
  try {
    const before: Record<string, string> = { ...files }
    if (base !== undefined) before['gateway.yaml'] = configuration(base, '.', NOWHERE)
    else if (input !== '') before['gateway.yaml'] = `${input}\n`
    for (const [name, text] of Object.entries(before)) {
      mkdirSync(dirname(join(folder, name)), { recursive: true })
      writeFileSync(join(folder, name), text)
    }
    const { code, out, err } = await sluice(argv, folder, typed)
    // Seen from these folders the project is somewhere else on each machine; the longest way up is looked for first.
    const ways = [relative(join(folder, 'my-plugins'), ROOT), relative(folder, ROOT), ROOT]
    const normaliser = new Normaliser([
      ...secrets(out),
      [folder, '‹folder›'],
      [`cli:${userInfo().username}`, 'cli:‹user›'],
      ...ways.map((way): [string, string] => [way, '‹root›']),
    ])
    const lines = [`exit ${code}`]
    if (out !== '') lines.push(...marked('|', normaliser.text(out)))
    if (err !== '') lines.push(...marked('error |', normaliser.text(err)))
    for (const name of filesIn(folder)) {
      const text = readFileSync(join(folder, name), 'utf8')
      if (text !== before[name]) lines.push(`wrote ${name}`, ...marked('+', normaliser.text(text)))
    }
    return lines
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

/** Secrets that a command has made and printed, and the digests of keys, with their placeholders. */
function secrets(out: string): [string, string][] {
  const own = Array.from(out.matchAll(/SLUICE_SECRET=([0-9a-f]{64})/g), ([, secret]): [string, string] => [
    secret!,
    '‹secret of the gateway›',
  ])
  const keys = [...new Set(out.match(/\bsk-[A-Za-z0-9_-]{43}/g) ?? [])].flatMap((secret, i): [string, string][] => [
    [secret, `sk-‹secret ${i + 1}›`],
    [createHash('sha256').update(secret).digest('hex'), `‹sha256 of secret ${i + 1}›`],
    // In quotes where YAML would read another thing than text.
    ...['', '"'].map((quote): [string, string] => [
      `hint: ${quote}${secret.slice(-4)}${quote}`,
      `hint: ‹end of secret ${i + 1}›`,
    ]),
  ])
  return [...own, ...keys]
}

function filesIn(folder: string): string[] {
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter(name => statSync(join(folder, name)).isFile())
    .sort()
}
