/** Loads configurations for commands: faults and warnings as text, edits checked before they are written. */
import { chmodSync, chownSync, readFileSync, realpathSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { type ConfigError, formatError, type LoadResult } from '../config/load.ts'
import { StoreUnavailable } from '../core/canon/errors.ts'
import { Failure, fold, type Terminal } from './terminal.ts'

/** A configuration that was loaded and has no fault. */
export type Loaded = Extract<LoadResult, { errors?: undefined }>

/**
 * What a command throws for an error: a Failure when the store did not answer or cannot be used, else the error itself.
 * @param before is written before the store's message
 */
export function storeFailure(error: unknown, before = ''): unknown {
  return error instanceof StoreUnavailable ? new Failure(`${before}${error.message}`) : error
}

/**
 * Loads a configuration with the built-in plugins.
 * @param placeholders a variable that is not set is only a warning: for commands that call no provider
 * @throws Failure with every fault
 */
export async function loadOrFail(file: string, placeholders = false): Promise<Loaded> {
  const { load } = await import('./load.ts')
  const loaded = await load(file, { placeholders })
  if (!loaded.errors) return loaded
  throw new Failure(listing(file, loaded.errors))
}

/**
 * Loads a configuration for commands about keys and bills. Of the warnings, only those about variables that are not set
 * are printed.
 * @throws Failure with every fault
 */
export async function loadWithoutSecrets(file: string, terminal: Terminal): Promise<Loaded> {
  const loaded = await loadOrFail(file, true)
  tellWarnings(loaded.unset, terminal)
  return loaded
}

/**
 * Loads `file` as if the file `path`, the same or an included one, had the content `text`. Unset variables are no
 * fault.
 */
export async function loadEdited(file: string, path: string, text: string): Promise<LoadResult> {
  const { load } = await import('./load.ts')
  return load(file, {
    placeholders: true,
    readFile: async file => (file === resolve(path) ? text : readFileSync(file, 'utf8')),
  })
}

/**
 * Writes a new file beside the old one and renames it, so that a running gateway never reads half a file. A symbolic
 * link stays a link, and owner and mode stay, because the gateway must be able to read what root has edited.
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
