/**
 * Functions that check data against a schema. ajv takes more than half a second to make those that every start needs, so their source text is made
 * once and kept: by the first process that needs it beside the launcher's other caches (`node_modules/.cache/sluice`, or NODE_COMPILE_CACHE), and by
 * `npm run validators` in the folder that the image and the package bring along. ajv is loaded only when a text is made.
 *
 * A text's file is named for all that it is made of, so that an edited schema or another version of ajv never finds an old one.
 * Where the cache can't be written, nothing is kept and all works.
 */
import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { runInThisContext } from 'node:vm'
import { threadId } from 'node:worker_threads'

/** What a check found: an ajv `ErrorObject` (verbose), as far as messages are made from it. */
export interface Fault {
  /** JSON pointer of the value. */
  instancePath: string
  keyword: string
  params: Record<string, any>
  /** The schema node that has the keyword. */
  parentSchema?: any
  /** The value. */
  data?: unknown
  /** Where `propertyNames` refuses one, and `data` is the name. */
  propertyName?: string
  message?: string
}

export interface Validator {
  (data: unknown): boolean
  errors?: Fault[] | null
}

/** Schemas whose validators are made together: what they have in common is written once. */
export interface ValidatorSet {
  schemas: readonly object[]
  /** The module that writes them: exports `validatorsText` of write.ts's shape. */
  writer: URL
  /** What the text refers to by name. */
  scope: Record<string, unknown>
}

/** What a writer exports. @returns an expression: a function that takes `require` and the scope, and gives the validators in the schemas' order */
export type ValidatorsText = (schemas: readonly object[]) => string
type Factory = (require: NodeJS.Require, scope: Record<string, unknown>) => Validator[]

const require = createRequire(import.meta.url)
/** Of the image and the package. Not there in a checkout. */
export const BROUGHT_ALONG = fileURLToPath(new URL('written', import.meta.url))
const CACHE = fileURLToPath(new URL('../../node_modules/.cache/sluice', import.meta.url))

/**
 * The validators of a set, in the order of its schemas.
 * Throws what ajv says of a schema that is not valid JSON Schema.
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

/** Writes the validators of these sets to a folder, where they are found when it is `BROUGHT_ALONG`. */
export function writeValidators(sets: readonly ValidatorSet[], folder: string): void {
  for (const set of sets) write(join(folder, fileName(set)), textOf(set))
}

function make(set: ValidatorSet, name: string, cache: string | undefined): Factory {
  const text = textOf(set)
  try {
    if (cache) write(join(cache, name), text)
  } catch {
    // No such folder, or one that can't be written: the next start makes them again.
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
    // Cut short, by a machine that lost power, say.
    return undefined
  }
}

/** Whole or not at all: other processes look for it at any time. */
function write(path: string, text: string): void {
  const own = `${path}.${process.pid}.${threadId}`
  mkdirSync(dirname(path), { recursive: true })
  try {
    // In parentheses V8 compiles it with the file, and Node's compile cache keeps it.
    writeFileSync(own, `module.exports = ${text}\n`)
    renameSync(own, path)
  } catch (error) {
    rmSync(own, { force: true })
    throw error
  }
}

/** Where bin/stripped.mjs and Node's compile cache keep theirs; undefined where they are turned off. */
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
/** Digest of what turns schemas into text: the writer, write.ts, ajv. */
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
