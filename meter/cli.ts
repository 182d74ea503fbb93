/** `sluice tokens`: counts the tokens of a file or of standard input. */
import { readFileSync } from 'node:fs'
import { parseArgs } from 'node:util'
import { countTokens, encode } from './counter.ts'
import { tokenBytes } from './vocabulary.ts'

const help = `Usage: sluice tokens [FILE] [--pieces]

Counts the o200k_base tokens of a file, or of standard input.

  --pieces   one line per token: its id and its text as JSON (bytes that are no text on their own as hex)
  --help     this text
`

/** Runs the command. Resolves with the exit code: 0, 1 when the file cannot be read, or 2 for wrong arguments. */
export async function runTokens(args: string[]): Promise<number> {
  let parsed: ReturnType<typeof parse>
  try {
    parsed = parse(args)
  } catch (error) {
    process.stderr.write(`sluice tokens: ${(error as Error).message}\n\n${help}`)
    return 2
  }
  const { values, positionals } = parsed
  if (values.help) {
    process.stdout.write(help)
    return 0
  }
  if (positionals.length > 1) {
    process.stderr.write(`sluice tokens: one file at a time\n\n${help}`)
    return 2
  }
  const [file] = positionals
  let text: string
  try {
    text = file === undefined || file === '-' ? await readInput() : readFileSync(file, 'utf8')
  } catch (error) {
    process.stderr.write(`sluice tokens: ${(error as Error).message}\n`)
    return 1
  }
  if (values.pieces) for (const id of encode(text)) process.stdout.write(`${id}\t${show(tokenBytes(id))}\n`)
  else process.stdout.write(`${countTokens(text)}\n`)
  return 0
}

function parse(args: string[]) {
  return parseArgs({
    args,
    allowPositionals: true,
    options: { pieces: { type: 'boolean' }, help: { type: 'boolean', short: 'h' } },
  })
}

async function readInput(): Promise<string> {
  const chunks: Buffer[] = []
  for await (const chunk of process.stdin) chunks.push(chunk as Buffer)
  return Buffer.concat(chunks).toString('utf8')
}

/** The text of a token as JSON, or its bytes as hex when they are not valid UTF-8. */
function show(bytes: Uint8Array): string {
  try {
    return JSON.stringify(new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes))
  } catch {
    return Buffer.from(bytes).toString('hex')
  }
}
