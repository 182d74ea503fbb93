/** Arguments that several verbs share, and how to call this program again. */
import { existsSync } from 'node:fs'
import { dirname, join, relative, resolve, sep } from 'node:path'
import { UsageError } from './terminal.ts'

export const DEFAULT_CONFIG = 'gateway.yaml'

/**
 * The configuration file: `--config FILE`, or the only positional argument, or gateway.yaml.
 * @throws UsageError when there is more than one, or none
 */
export function configFile(option: string | undefined, positionals: readonly string[] = []): string {
  if (positionals.length > 1) throw new UsageError(`one file at a time, not ${positionals.join(' and ')}`)
  if (option !== undefined && positionals.length > 0) throw new UsageError('name the file once')
  const file = option ?? positionals[0] ?? DEFAULT_CONFIG
  if (option === undefined && positionals.length === 0 && !existsSync(file)) {
    throw new UsageError(`there is no ${DEFAULT_CONFIG} here; name a file`)
  }
  return file
}

/**
 * Reads an option that is a number of tokens.
 * @throws UsageError when it is none
 */
export function tokenCount(text: string | undefined, option: string): number | undefined {
  if (text === undefined) return undefined
  if (!/^[1-9]\d{0,9}$/.test(text)) throw new UsageError(`${option} is a number of tokens, not ${text}`)
  return Number(text)
}

const ROOT = resolve(import.meta.dirname, '..')

/** What to type in `folder` to call this program: `npx sluice` where npx finds it, else the path of its launcher. */
export function ownCommand(folder: string = process.cwd()): string {
  const inside = `${folder}${sep}`.startsWith(`${ROOT}${sep}`)
  if (inside || isInstalledAbove(folder)) return 'npx sluice'
  const launcher = join(ROOT, 'bin', 'sluice.mjs')
  const seen = relative(folder, launcher)
  return `node ${shellWord(seen.length < launcher.length ? seen : launcher)}`
}

function isInstalledAbove(folder: string): boolean {
  if (existsSync(join(folder, 'node_modules', '.bin', 'sluice'))) return true
  return dirname(folder) !== folder && isInstalledAbove(dirname(folder))
}

/** The text as one word of a shell command, in quotes where it needs them. */
export function shellWord(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`
}
