/**
 * Functions that check data against a schema, written ahead: ajv takes half a second to make those that every start needs. `npm run generate` writes them to
 * core/validators/generated/, with the digest of the schema that each was made from. A schema that is not there (a plugin of one's own, one that was just edited)
 * is compiled when it is first used, and only then is ajv loaded.
 */
import { createHash } from 'node:crypto'
import { existsSync } from 'node:fs'
import { createRequire } from 'node:module'
import { fileURLToPath } from 'node:url'

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

/** Files of core/validators/generated/. */
export type ValidatorFile = 'chat' | 'messages' | 'responses' | 'config'
/** What such a file exports: takes what its code refers to by name, gives each validator by the digest of its schema. */
type Factory = (scope: Record<string, unknown>) => Record<string, Validator>

const require = createRequire(import.meta.url)

/** @param scope what the file's code refers to by name: the same that compiling the schema would get */
export function writtenAhead(file: ValidatorFile, scope: Record<string, unknown>): Record<string, Validator> {
  const path = fileURLToPath(new URL(`generated/${file}.cjs`, import.meta.url))
  // A new file is not there before it is generated for the first time.
  return existsSync(path) ? (require(path) as Factory)({ ...scope, fault: faultOf }) : {}
}

/** Names a schema by its content: an edited one is not found among the written. */
export function digest(schema: object): string {
  return createHash('sha256').update(JSON.stringify(schema)).digest('base64url').slice(0, 22)
}

function faultOf(
  instancePath: string,
  keyword: string,
  parentSchema: unknown,
  data: unknown,
  params: Record<string, unknown> = NO_PARAMS,
  propertyName?: string,
): Fault {
  return { instancePath, keyword, params, parentSchema, data, propertyName }
}
const NO_PARAMS = {}
