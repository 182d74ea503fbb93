/**
 * Runs several processes on one port, for `server.workers` above 1. They are processes and not threads, because a
 * thread that runs a uWebSockets.js app aborts the whole process when it exits. The parent only starts the workers,
 * passes signals on, restarts workers that have died, and has the admin listener of all of them.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { join } from 'node:path'
import { answering, Peer, type Send } from '../admin/peer.ts'
import type { GatewayFacts } from '../admin/view.ts'
import type { WorkerApi } from '../admin/worker-api.ts'
import type { Names } from '../config/retired.ts'
import type { NameUsers } from '../core/ports/accounts.ts'
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

/** Sends to the supervisor. When it has ended, `watchParent` reports it. */
const tell: Send = message => void process.send?.(message, undefined, undefined, () => {})

/** Takes the supervisor's messages. Waiting for them does not keep this process alive. */
function hear(take: (message: unknown) => void): void {
  process.on('message', take)
  process.channel?.unref()
}

/** Notifies the supervisor that this process listens, and answers its questions from now on. */
export function tellListening(api: WorkerApi, facts: GatewayFacts): void {
  hear(answering(api, tell))
  tell({ listening: facts })
}

/** What a worker asks the primary process. */
type Primary = { usersOf(names: Names): Promise<NameUsers[]> }

/** Asks the primary process which names accounts of the store use, so that all workers get one answer. */
export function usersByPrimary(): Primary['usersOf'] {
  const peer = new Peer<Primary>(tell)
  hear(message => peer.receive(message))
  return names => peer.call('usersOf', names)
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

/** Who wants to know which workers there are. */
export interface Watcher {
  started(number: number): void
  joined(number: number, peer: Peer<WorkerApi>, facts: GatewayFacts): void
  left(number: number): void
  /** Which of the names accounts of the store use, for the worker with this number. */
  usersOf(number: number, names: Names): Promise<NameUsers[]>
  draining(): void
}

export interface SuperviseOptions {
  count: number
  /** Of `sluice start`, for each worker. */
  args: readonly string[]
  terminal: Terminal
  watcher: Watcher
  /** Called when the first worker serves. */
  onServing(facts: GatewayFacts): void
}

/**
 * Runs `count` workers until a signal ends them. If a worker fails to start and none has ever served, a restart would
 * not help: all are ended.
 * @returns the first exit code of a worker that is not 0, else 0
 */
export function supervise({ count, args, terminal, watcher, onServing }: SuperviseOptions): Promise<number> {
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
    let facts: GatewayFacts | undefined
    const send = (message: unknown) => void worker.send(message as object, () => {})
    const peer = new Peer<WorkerApi>(send)
    const primary: Primary = { usersOf: names => watcher.usersOf(number, names) }
    const answer = answering(primary, send)
    workers.set(number, worker)
    watcher.started(number)
    worker.on('error', error => terminal.err(`worker ${number}: ${error.message}`))
    worker.on('message', message => {
      const { listening } = message as { listening?: GatewayFacts }
      if (listening) {
        facts = listening
        watcher.joined(number, peer, facts)
      } else if (message === SERVING) {
        up = true
        if (!served && facts) onServing(facts)
        served = true
      } else {
        peer.receive(message)
        answer(message)
      }
    })
    worker.on('exit', (exitCode, signal) => {
      workers.delete(number)
      peer.close()
      watcher.left(number)
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
    watcher.draining()
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
