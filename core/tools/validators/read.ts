/**
 * Functions that check data against a schema. ajv takes more than half a second to make those that every start needs,
 * so their source text is made once and kept on disk. The first process that needs it writes it beside the launcher's
 * other caches (`node_modules/.cache/sluice`, or NODE_COMPILE_CACHE); `npm run validators` writes it into the folder
 * that the image and the package contain. ajv is loaded only to make such a text.
 *
 * The file name is a hash of everything that the text is made from, so that an edited schema or another version of
 * ajv never finds an old text. Where the cache cannot be written, nothing is kept and everything still works.
 */
import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { runInThisContext } from 'node:vm'
import { threadId } from 'node:worker_threads'

/** An error that a check found: the members of ajv's `ErrorObject` (verbose) that messages are made from. */
export interface Fault {
  /** JSON pointer to the value. */
  instancePath: string
  keyword: string
  params: Record<string, any>
  /** The schema node that contains the keyword. */
  parentSchema?: any
  /** The value. */
  data?: unknown
  /** Set when `propertyNames` refuses a name; `data` is then the name. */
  propertyName?: string
  message?: string
}

export interface Validator {
  (data: unknown): boolean
  errors?: Fault[] | null
}

/** Schemas whose validators are made together: code that they share is written once. */
export interface ValidatorSet {
  schemas: readonly object[]
  /** The module that writes the text: it exports `validatorsText`, of type `ValidatorsText`. */
  writer: URL
  /** The values that the text refers to by name. */
  scope: Record<string, unknown>
}

/**
 * What a writer exports.
 * @returns an expression: a function that takes `require` and the scope, and returns the validators in the order of
 * the schemas
 */
export type ValidatorsText = (schemas: readonly object[]) => string
type Factory = (require: NodeJS.Require, scope: Record<string, unknown>) => Validator[]

const require = createRequire(import.meta.url)
/** The folder of texts in the image and in the package. It does not exist in a checkout. */
export const BROUGHT_ALONG = fileURLToPath(new URL('written', import.meta.url))
const CACHE = fileURLToPath(new URL('../../../node_modules/.cache/sluice', import.meta.url))

/**
 * The validators of a set, in the order of its schemas.
 * @throws Error what ajv throws for a schema that is not valid JSON Schema
 */
export function validatorsOf(set: ValidatorSet): Validator[] {
  const name = fileName(set)
  const cache = cacheFolder()
  const folders = cache === undefined ? [BROUGHT_ALONG] : [BROUGHT_ALONG, cache]
  let factory: Factory | undefined
  for (const folder of folders) factory ??= load(join(folder, name))
  factory ??= make(set, name, cache)
  return factory(require, set.scope)
}

/** Writes the texts of these sets to a folder. A start finds them when the folder is `BROUGHT_ALONG`. */
export function writeValidators(sets: readonly ValidatorSet[], folder: string): void {
  for (const set of sets) write(join(folder, fileName(set)), textOf(set))
}

function make(set: ValidatorSet, name: string, cache: string | undefined): Factory {
  const text = textOf(set)
  try {
    if (cache) write(join(cache, name), text)
  } catch {
    // The folder does not exist or cannot be written: the next start makes the text again.
  }
  return runInThisContext(text)
}

function textOf({ schemas, writer }: ValidatorSet): string {
  const { validatorsText } = require(fileURLToPath(writer)) as { validatorsText: ValidatorsText }
  return validatorsText(schemas)
}

function load(path: string): Factory | undefined {
  try {
    const factory = existsSync(path) ? require(path) : undefined
    return typeof factory === 'function' ? factory : undefined
  } catch {
    // The file is incomplete, for example after a power failure.
    return undefined
  }
}

/** Writes a file whole or not at all, since other processes may read it at any time. */
function write(path: string, text: string): void {
  const own = `${path}.${process.pid}.${threadId}`
  mkdirSync(dirname(path), { recursive: true })
  try {
    // V8 compiles a function in parentheses together with its file, so that Node's compile cache keeps its code.
    writeFileSync(own, `module.exports = ${text}\n`)
    renameSync(own, path)
  } catch (error) {
    rmSync(own, { force: true })
    throw error
  }
}

/** The folder where bin/stripped.mjs and Node keep their compile caches; undefined where these are turned off. */
function cacheFolder(): string | undefined {
  const { NODE_COMPILE_CACHE: named = CACHE, NODE_DISABLE_COMPILE_CACHE: off } = process.env
  return off || !named ? undefined : resolve(named, 'validators')
}

function fileName({ schemas, writer }: ValidatorSet): string {
  const hash = createHash('sha256').update(makerOf(writer))
  for (const schema of schemas) hash.update(`${JSON.stringify(schema)}\n`)
  return `${hash.digest('hex').slice(0, 32)}.cjs`
}

const makers = new Map<string, Buffer>()
/** Digest of what turns schemas into text: the writer, write.ts and ajv's version. */
function makerOf(writer: URL): Buffer {
  let maker = makers.get(writer.href)
  if (!maker) {
    const hash = createHash('sha256')
    const parts = [writer, new URL('write.ts', import.meta.url), require.resolve('ajv/package.json')]
    for (const part of parts) hash.update(readFileSync(part))
    makers.set(writer.href, (maker = hash.digest()))
  }
  return maker
}
