/** Loading a configuration for people: faults and warnings as text, edits checked before they are written. */
import { chmodSync, chownSync, readFileSync, realpathSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { type ConfigError, formatError, type LoadResult, loadConfig } from '../config/load.ts'
import { Failure, fold, type Terminal } from './terminal.ts'

export type Loaded = Extract<LoadResult, { errors?: undefined }>

/**
 * Loads with the built-in plugins. Throws a Failure with every fault.
 * @param placeholders a variable that is not set is a warning: for what calls no provider
 */
export async function loadOrFail(file: string, placeholders = false): Promise<Loaded> {
  const { load } = await import('./gateway.ts')
  const loaded = await load(file, { placeholders })
  if (!loaded.errors) return loaded
  throw new Failure(listing(file, loaded.errors))
}

/** For keys and bills: of the warnings, those of variables that are not set are told. Throws as `loadOrFail`. */
export async function loadWithoutSecrets(file: string, terminal: Terminal): Promise<Loaded> {
  const loaded = await loadOrFail(file, true)
  tellWarnings(loaded.unset, terminal)
  return loaded
}

/** Loads `file` as it would be with `text` in the file `path`, itself or an included one; unset variables are no fault. */
export async function loadEdited(file: string, path: string, text: string): Promise<LoadResult> {
  const { catalog } = await import('../plugins/index.ts')
  const { dialects } = await import('../providers/index.ts')
  const { surfaces } = await import('../surfaces/index.ts')
  return loadConfig(file, {
    plugins: catalog,
    dialects,
    surfaces: Object.keys(surfaces),
    placeholders: true,
    readFile: async asked => (asked === resolve(path) ? text : readFileSync(asked, 'utf8')),
  })
}

/**
 * Written beside and renamed, so that a running gateway never reads half a file. A link stays a link, and owner and mode stay: what root edits must still be
 * the gateway's to read.
 */
export function replaceFile(path: string, text: string): void {
  const file = realpathSync(path)
  const { mode, uid, gid } = statSync(file)
  const beside = `${file}.${process.pid}.tmp`
  try {
    writeFileSync(beside, text, { mode: 0o600 })
    const own = statSync(beside)
    if (own.uid !== uid || own.gid !== gid) chownSync(beside, uid, gid)
    chmodSync(beside, mode)
    renameSync(beside, file)
  } catch (error) {
    rmSync(beside, { force: true })
    const { code, message } = error as NodeJS.ErrnoException
    throw new Failure(
      code === 'EPERM'
        ? `${path} belongs to another user (${uid}:${gid}); run this as that one`
        : `cannot write: ${message}`,
    )
  }
}

export function listing(file: string, errors: readonly ConfigError[]): string {
  const total = errors.length === 1 ? '1 fault' : `${errors.length} faults`
  return [...errors.map(formatError), `${file} has ${total}.`].join('\n')
}

export function tellWarnings(warnings: readonly ConfigError[], terminal: Terminal): void {
  for (const warning of warnings) {
    const line = `warning: ${formatError(warning)}`
    terminal.err(terminal.columns === undefined ? line : fold(line, terminal.columns))
  }
}
