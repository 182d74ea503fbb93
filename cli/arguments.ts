/** Arguments that several verbs share. */
import { existsSync } from 'node:fs'
import { UsageError } from './terminal.ts'

export const DEFAULT_CONFIG = 'gateway.yaml'

/** The configuration file: `--config FILE`, or the one argument that is left, or gateway.yaml. */
export function configFile(option: string | undefined, positionals: readonly string[] = []): string {
  if (positionals.length > 1) throw new UsageError(`one file at a time, not ${positionals.join(' and ')}`)
  if (option !== undefined && positionals.length > 0) throw new UsageError('name the file once')
  const file = option ?? positionals[0] ?? DEFAULT_CONFIG
  if (option === undefined && positionals.length === 0 && !existsSync(file)) {
    throw new UsageError(`there is no ${DEFAULT_CONFIG} here; name a file`)
  }
  return file
}
