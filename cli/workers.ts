/**
 * Runs several processes on one port, for `server.workers` above 1. They are processes and not threads, because a
 * thread that runs a uWebSockets.js app aborts the whole process when it exits. The parent only starts the workers,
 * passes signals on, and restarts workers that have died.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { join } from 'node:path'
import type { Terminal } from './terminal.ts'

const VARIABLE = 'SLUICE_WORKER'
const SERVING = 'serving'
/**
 * In milliseconds. A worker that ends sooner than this after its start is restarted with a delay that doubles each
 * time.
 */
const SETTLED_MS = 10_000
const FIRST_WAIT_MS = 500
const LONGEST_WAIT_MS = 30_000

/** This process's number as a worker, from 1; undefined when it is not a worker. */
export function workerNumber(env: Record<string, string | undefined> = process.env): number | undefined {
  const number = Number(env[VARIABLE])
  return Number.isInteger(number) && number > 0 ? number : undefined
}

/** Notifies the supervisor, if there is one, that this process serves. */
export function tellServing(): void {
  if (workerNumber() !== undefined) process.send?.(SERVING)
}

/**
 * Calls `gone` when the launcher or supervisor that started this process has ended. One that was killed by SIGKILL
 * could not pass a signal on. The channel to a supervisor closes with it; a launcher has none, so the id of the parent
 * process is looked at.
 */
export function watchParent(gone: () => void, env: Record<string, string | undefined> = process.env): void {
  if (workerNumber(env) !== undefined) {
    process.once('disconnect', gone)
    // The listener alone must not keep a closed gateway alive.
    process.channel?.unref()
    if (!process.connected) gone()
    return
  }
  const parent = Number(env['SLUICE_PARENT'])
  if (process.ppid !== parent) return
  const timer = setInterval(() => {
    if (process.ppid === parent) return
    clearInterval(timer)
    gone()
  }, 1000)
  timer.unref()
}

/**
 * Runs `count` workers until a signal ends them. If a worker fails to start and none has ever served, a restart would
 * not help: all are ended.
 * @returns the first exit code of a worker that is not 0, else 0
 */
export function supervise(count: number, args: readonly string[], terminal: Terminal): Promise<number> {
  const { promise, resolve } = Promise.withResolvers<number>()
  const workers = new Map<number, ChildProcess>()
  const timers = new Set<NodeJS.Timeout>()
  let served = false
  let stopping = false
  let code = 0

  function startWorker(number: number, wait = FIRST_WAIT_MS): void {
    const started = performance.now()
    const worker = spawn(
      process.execPath,
      [...process.execArgv, join(import.meta.dirname, 'main.ts'), 'start', ...args],
      {
        stdio: ['inherit', 'inherit', 'inherit', 'ipc'],
        env: { ...process.env, [VARIABLE]: String(number) },
      },
    )
    let up = false
    workers.set(number, worker)
    worker.on('error', error => terminal.err(`worker ${number}: ${error.message}`))
    worker.on('message', message => {
      if (message === SERVING) up = served = true
    })
    worker.on('exit', (exitCode, signal) => {
      workers.delete(number)
      if (stopping || (!served && exitCode)) {
        // The exit code of a worker that was stopped before it served means nothing.
        if (up || !stopping) code ||= exitCode ?? 1
        if (!stopping) stop('SIGTERM')
        if (workers.size === 0) resolve(code)
        return
      }
      const young = performance.now() - started < SETTLED_MS
      const delay = young ? Math.min(wait * 2, LONGEST_WAIT_MS) : FIRST_WAIT_MS
      terminal.err(`worker ${number} ended (${signal ?? `code ${exitCode}`}); starting it again in ${delay} ms`)
      const timer = setTimeout(() => {
        timers.delete(timer)
        startWorker(number, delay)
      }, delay)
      timers.add(timer)
    })
  }

  function stop(signal: NodeJS.Signals): void {
    stopping = true
    for (const timer of timers) clearTimeout(timer)
    for (const worker of workers.values()) worker.kill(signal)
    if (workers.size === 0) resolve(code)
  }

  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, stop)
  process.on('SIGHUP', () => {
    for (const worker of workers.values()) worker.kill('SIGHUP')
  })
  watchParent(() => process.kill(process.pid, 'SIGTERM'))
  for (let number = 1; number <= count; number++) startWorker(number)
  return promise
}
