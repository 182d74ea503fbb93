/**
 * The plugins that ship with the gateway and that it loads only for a configuration whose pipelines name them. Each is
 * one file on the public plugin API alone, which a stranger may copy.
 */
import { extname, join } from 'node:path'

const NAMES = ['cors', 'jwt-auth', 'moderation-webhook', 'pii-mask']

/** Absolute paths of their files, by the name that a pipeline uses. */
export const extras: ReadonlyMap<string, string> = new Map(
  NAMES.map(name => [name, join(import.meta.dirname, name + extname(import.meta.filename))]),
)
