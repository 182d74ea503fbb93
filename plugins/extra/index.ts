/**
 * The plugins that ship with the gateway and that it loads only for a configuration whose pipelines name them. Each is
 * a file, with a folder of its name where it is long, on the public plugin API alone: a stranger may copy it, with what
 * it takes from `shared/`.
 */
import { extname, join } from 'node:path'

const NAMES = [
  'canary',
  'cors',
  'ip-access',
  'jwt-auth',
  'mirror',
  'moderation-webhook',
  'pii-mask',
  'response-cache',
  'runaway',
]

/** Absolute paths of their files, by the name that a pipeline uses. */
export const extras: ReadonlyMap<string, string> = new Map(
  NAMES.map(name => [name, join(import.meta.dirname, name + extname(import.meta.filename))]),
)
