/** `sluice verify`: checks receipts and statements offline, and counts the bodies again that their customer has kept. */
import { createHash, type KeyObject } from 'node:crypto'
import { createReadStream, existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { parseArgs } from 'node:util'
import { formatUsd } from '../core/canon/money.ts'
import type { Receipt } from '../plugins/shared/receipt.ts'
import { keysOf } from '../plugins/shared/receipt.ts'
import { monthOf } from '../plugins/shared/statement.ts'
import { tokenCount } from './arguments.ts'
import type { Verb } from './main.ts'
import { type Checked, checkFile, type Fault, Known } from './statement-check.ts'
import { Failure, fold, type Terminal, UsageError } from './terminal.ts'

const HELP = `Usage: sluice verify FILE... [--keys KEYS] [--bodies FOLDER]

Checks receipts, and the statement of a month, without a gateway: that each
receipt is as it was signed, that none is missing, and that they add up. Several
files are held against each other: a receipt that you kept against a statement.

  --keys KEYS            the keys that the gateway publishes, as a file:
                         curl URL/v1/receipts/keys -o receipt-keys.json
                         (default: receipt-keys.json beside the first FILE)
  --bodies FOLDER        bodies of requests, each as it was sent, a file each:
                         finds their receipts, and counts their tokens again
  --image-tokens N       least tokens of an image at this gateway (default 85)
  --document-tokens N    least tokens of a document (default 1500)
  --rewritten            the gateway changes prompts before it counts them, such
                         as by masks of its own: differences are no fault
  --json                 for programs

The exit code is 1 when something is wrong.
`

/** A single receipt may be printed over several lines; a longer file is read line by line. */
const MOST_OF_ONE = 64 * 1024
/** Faults that are listed. */
const MOST_FAULTS = 20
const NEAR = 'receipt-keys.json'

/** What came of a body. `null` where nothing can be said. */
interface Counted {
  file: string
  receipts: string[]
  tokens: number | null
  agrees: boolean | null
  said: string
}

export const verify: Verb = {
  summary: 'Checks receipts and statements offline.',
  help: HELP,
  async run(args, terminal) {
    const { values, positionals } = parseArgs({
      args,
      options: {
        keys: { type: 'string' },
        bodies: { type: 'string' },
        'image-tokens': { type: 'string' },
        'document-tokens': { type: 'string' },
        rewritten: { type: 'boolean', default: false },
        json: { type: 'boolean', default: false },
      },
      allowPositionals: true,
    })
    const [file] = positionals
    if (file === undefined) throw new UsageError('name a file: a receipt, or a statement')
    const media = {
      image_tokens: tokenCount(values['image-tokens'], '--image-tokens') ?? 85,
      document_tokens: tokenCount(values['document-tokens'], '--document-tokens') ?? 1500,
    }
    for (const each of positionals) if (!existsSync(each)) throw new Failure(`there is no file ${each}`)
    const keys = readKeys(file, values.keys)
    const bodies = values.bodies === undefined ? null : readBodies(values.bodies)
    const byDigest = new Map<string, Receipt[]>()
    const keep = (receipt: Receipt): void => {
      const digest = receipt.body_sha256
      if (digest === null || !bodies?.has(digest)) return
      const known = byDigest.get(digest)
      if (known) known.push(receipt)
      else byDigest.set(digest, [receipt])
    }
    const known = new Known(positionals.length > 1)
    const all: (Checked & { file: string })[] = []
    for (const each of positionals)
      all.push({ file: each, ...(await checkFile(piecesOf(each), keys, keep, known, each)) })
    for (const { file: of, ...fault } of known.missing()) all.find(each => each.file === of)!.faults.push(fault)
    const counted = bodies && (await countAll(bodies, byDigest, media, values.rewritten))
    const well =
      all.every(({ faults }) => faults.length === 0) && (counted ?? []).every(({ agrees }) => agrees !== false)
    if (values.json) {
      const [{ file: _, ...only }, ...more] = all as [(typeof all)[0], ...typeof all]
      const found = more.length === 0 ? only : { files: all }
      terminal.out(JSON.stringify({ ok: well, ...found, ...(counted && { bodies: counted }) }, null, 2))
    } else {
      for (const checked of all) tell(checked, all.length > 1 ? `${checked.file}: ` : '', terminal)
      if (counted)
        tellCounted(
          counted,
          all.reduce((sum, { without_digest }) => sum + without_digest, 0),
          terminal,
        )
    }
    return well ? 0 : 1
  },
}

/** @throws Failure, which says how to get the keys */
function readKeys(file: string, named: string | undefined): Map<string, KeyObject> {
  const path = named ?? join(dirname(file), NEAR)
  let text: string
  try {
    text = readFileSync(path, 'utf8')
  } catch (error) {
    const why = (error as NodeJS.ErrnoException).code === 'ENOENT' ? 'is not there' : 'cannot be read'
    throw new Failure(
      `the published keys are needed, and ${path} ${why}: curl URL/v1/receipts/keys -o ${path}, or name the file with --keys`,
    )
  }
  try {
    return keysOf(JSON.parse(text))
  } catch (error) {
    throw new Failure(`${path} is no file of published keys: ${(error as Error).message}`)
  }
}

/** The file; a single receipt that was printed over several lines as one line. */
async function* piecesOf(file: string): AsyncGenerator<Uint8Array> {
  if (statSync(file).size > MOST_OF_ONE) return yield* createReadStream(file)
  const bytes = readFileSync(file)
  yield oneReceipt(bytes) ?? bytes
}

function oneReceipt(bytes: Buffer): Buffer | undefined {
  try {
    const value = JSON.parse(bytes.toString())
    return value?.object === 'receipt' ? Buffer.from(JSON.stringify(value)) : undefined
  } catch {
    return undefined
  }
}

/** The files of a folder, by the digests of what they hold. */
function readBodies(folder: string): Map<string, string[]> {
  const bodies = new Map<string, string[]>()
  let names: string[]
  try {
    names = readdirSync(folder, { withFileTypes: true })
      .filter(entry => entry.isFile())
      .map(({ name }) => name)
  } catch (error) {
    throw new Failure(`${folder} cannot be read: ${(error as NodeJS.ErrnoException).code}`)
  }
  for (const name of names.sort()) {
    const path = join(folder, name)
    const digest = createHash('sha256').update(readFileSync(path)).digest('hex')
    bodies.set(digest, [...(bodies.get(digest) ?? []), path])
  }
  return bodies
}

async function countAll(
  bodies: ReadonlyMap<string, string[]>,
  byDigest: ReadonlyMap<string, Receipt[]>,
  media: { image_tokens: number; document_tokens: number },
  rewritten: boolean,
): Promise<Counted[]> {
  const { recount } = await import('./recount.ts')
  const all: Counted[] = []
  for (const [digest, files] of bodies) {
    const receipts = byDigest.get(digest) ?? []
    const ids = receipts.map(({ request_id }) => request_id)
    const [file] = files
    const note = (tokens: number | null, agrees: boolean | null, said: string) =>
      void all.push({ file: file!, receipts: ids, tokens, agrees, said })
    if (receipts.length === 0) {
      note(null, false, 'no receipt is of this body')
      continue
    }
    const billed = receipts.filter(({ usage }) => usage.input_tokens > 0)
    if (billed.length === 0) {
      note(null, null, 'it was not billed')
      continue
    }
    const counted = await recount(billed[0]!.surface, readFileSync(file!), media, rewritten)
    if (counted.tokens === null) note(null, null, counted.why)
    else {
      const { tokens, unless, more } = counted
      const of = billed.map(({ usage, request_id }) => ({ tokens: usage.input_tokens, request_id }))
      // What is above all that the reasons explain comes first.
      const above = of.find(one => one.tokens > tokens + more)
      const other = above ?? of.find(one => one.tokens !== tokens)
      if (!other) note(tokens, true, `${tokens} tokens, as billed`)
      else {
        const said = `it has ${tokens} tokens, and ${other.tokens} were billed (${other.request_id})`
        if (unless === null) note(tokens, false, said)
        else if (above) note(tokens, false, `${said}, which is more than this explains: ${unless}`)
        else note(tokens, null, `${said}; ${unless}`)
      }
    }
  }
  return all
}

/** @param of what stands before each line */
function tell(
  { statement, receipts, cost_nano_usd, keys, faults, notes, whole_until }: Checked,
  of: string,
  terminal: Terminal,
) {
  const whose = statement
    ? `statement of ${statement.organization}${statement.key === null ? '' : `, key ${statement.key}`}, ${statement.month}, made ${statement.made_at}`
    : 'receipts'
  const say = (text: string) => terminal.out(`${of}${text}`)
  const folded = (text: string) => fold(`${of}${text}`, terminal.columns ?? 10_000)
  say(`${whose}: ${receipts} ${receipts === 1 ? 'receipt' : 'receipts'}, ${formatUsd(cost_nano_usd, 9)} USD`)
  for (const key of keys) say(`signed with the key ${key}`)
  for (const fault of faults.slice(0, MOST_FAULTS)) terminal.err(folded(told(fault)))
  if (faults.length > MOST_FAULTS) terminal.err(`${of}and ${faults.length - MOST_FAULTS} faults more`)
  for (const { note, receipts: some, line, request_id } of notes)
    terminal.out(
      folded(`Note: ${some === 1 ? '' : `${some} receipts, the first in `}line ${line}, ${request_id}: ${note}`),
    )
  if (faults.length > 0) return
  if (!statement) say('Each receipt is as it was signed. Whether others are missing, a statement alone can tell.')
  else if (whole_until === new Date(monthOf(statement.month)!.until).toISOString())
    say('Each receipt is as it was signed, none is missing, and they add up.')
  else {
    say('Each receipt is as it was signed, and they add up.')
    say(`None is missing of what had ended by ${whole_until}. The month was not over then: fetch it again later.`)
  }
}

/** @param without how many receipts are billed and have no digest */
function tellCounted(counted: readonly Counted[], without: number, terminal: Terminal): void {
  for (const { file, agrees, said } of counted) (agrees === false ? terminal.err : terminal.out)(`${file}: ${said}`)
  const agreeing = counted.filter(({ agrees }) => agrees).length
  terminal.out(`${agreeing} of ${counted.length} bodies were counted as they were billed.`)
  if (without > 0)
    terminal.out(
      without === 1
        ? 'One billed receipt has no digest: no body can be held against it.'
        : `${without} billed receipts have no digest: no body can be held against them.`,
    )
}

const told = ({ line, request_id, fault }: Fault) =>
  `line ${line}${request_id === undefined ? '' : `, ${request_id}`}: ${fault}`
