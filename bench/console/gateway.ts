/** The gateway beside the console: a process of its own, as `sluice start` makes it. */
import type { ChildProcess } from 'node:child_process'
import { join } from 'node:path'
import { printed, startProgram } from '../children.ts'

export const MAIN = join(import.meta.dirname, '../../cli/main.ts')
export const stdio: ['ignore', 'pipe', 'inherit'] = ['ignore', 'pipe', 'inherit']

/** @param file its configuration */
export async function startGateway(file: string): Promise<ChildProcess> {
  const child = startProgram(undefined, MAIN, ['start', '--config', file], { stdio })
  // A busy machine takes its time.
  await printed(child, /Sluice listens on/, 120_000)
  return child
}
