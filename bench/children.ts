/** The child processes of a run. Each is pinned to a core, and is ended when the run ends, whatever ends it. */

import { type ChildProcess, type SpawnOptions, spawn } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { FLAGS } from '../bin/flags.mjs'
import { pinned } from './machine.ts'

const running = new Set<ChildProcess>()
let folder: string | undefined

/** The temporary folder of the run. It is removed when the run ends. */
export function temporaryFolder(): string {
  folder ??= mkdtempSync(join(tmpdir(), 'sluice-bench-'))
  return folder
}

let watching = false
function endWithUs(): void {
  if (watching) return
  watching = true
  process.on('exit', () => {
    for (const child of running) child.kill('SIGKILL')
    if (folder) rmSync(folder, { recursive: true, force: true, maxRetries: 5, retryDelay: 50 })
  })
  // A signal alone does not run 'exit' handlers; process.exit does.
  process.on('SIGINT', () => process.exit(130))
  process.on('SIGTERM', () => process.exit(143))
  process.on('SIGHUP', () => process.exit(129))
}

/** Starts a program on a core, or on any when `core` is undefined. */
export function start(
  core: number | undefined,
  command: string,
  args: string[],
  options: SpawnOptions = {},
): ChildProcess {
  endWithUs()
  const [program, all] = core === undefined ? [command, args] : pinned(core, command, args)
  const child = spawn(program, all, options)
  running.add(child)
  child.once('exit', () => running.delete(child))
  child.once('error', () => running.delete(child))
  return child
}

/** Starts a TypeScript program of this project on a core (or any), with the Node of this process. */
export function startProgram(
  core: number | undefined,
  file: string,
  args: string[],
  options: SpawnOptions = {},
): ChildProcess {
  return start(core, process.execPath, [...FLAGS, file, ...args], options)
}

/**
 * Waits until a program has printed what `pattern` matches. Its stdout must be a pipe. Rejects when the program ends
 * before that, or after `timeoutMs`.
 */
export function printed(child: ChildProcess, pattern: RegExp, timeoutMs = 15_000): Promise<RegExpExecArray> {
  return new Promise((resolve, reject) => {
    let text = ''
    const timer = setTimeout(() => done(new Error(`did not start within ${timeoutMs} ms: ${text}`)), timeoutMs)
    const done = (result: Error | RegExpExecArray) => {
      clearTimeout(timer)
      child.off('exit', ended)
      child.off('error', done)
      if (result instanceof Error) reject(result)
      else resolve(result)
    }
    const ended = (code: number | null) => done(new Error(`ended with ${code} before it was ready: ${text}`))
    child.once('exit', ended)
    child.once('error', done)
    child.stdout!.setEncoding('utf8').on('data', (piece: string) => {
      if (text.length > 100_000) return
      text += piece
      const match = pattern.exec(text)
      if (match) done(match)
    })
  })
}

/** Waits for the end of a program. Rejects when its status is not 0, or after `timeoutMs`. @returns what it printed */
export function output(child: ChildProcess, timeoutMs: number): Promise<string> {
  return new Promise((resolve, reject) => {
    let out = ''
    let problems = ''
    child.stdout!.setEncoding('utf8').on('data', (piece: string) => (out += piece))
    child.stderr?.setEncoding('utf8').on('data', (piece: string) => (problems += piece))
    const timer = setTimeout(() => child.kill('SIGKILL'), timeoutMs)
    child.once('error', reject)
    child.once('close', (code, signal) => {
      clearTimeout(timer)
      if (code === 0) resolve(out)
      else reject(new Error(`${child.spawnargs.join(' ')} ended with ${signal ?? code}: ${problems || out}`))
    })
  })
}

/** Ends a program with SIGTERM, and after `patienceMs` with SIGKILL. */
export function stop(child: ChildProcess, patienceMs = 2000): Promise<void> {
  return new Promise(resolve => {
    if (child.exitCode !== null || child.signalCode !== null || child.pid === undefined) return resolve()
    const timer = setTimeout(() => child.kill('SIGKILL'), patienceMs)
    child.once('exit', () => {
      clearTimeout(timer)
      resolve()
    })
    child.kill('SIGTERM')
  })
}
