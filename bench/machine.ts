/** Cores of the machine, and CPU time and memory of processes. For Linux only (/proc, taskset). */
import { execFileSync } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { findProgram } from '../test/ensure-deps.ts'

/** The cores that this process may use, from `Cpus_allowed_list` (e.g. `0-1` or `0,2-3`). */
function allowedCores(): number[] {
  const list = /Cpus_allowed_list:\s*(\S+)/.exec(readFileSync('/proc/self/status', 'utf8'))?.[1] ?? '0'
  return list.split(',').flatMap(range => {
    const [from, to = from] = range.split('-').map(Number) as [number, number?]
    return Array.from({ length: to! - from + 1 }, (_, i) => from + i)
  })
}

// This is read once at the start, because the run pins itself to one core later.
const cores = allowedCores()
const canPin = cores.length > 1 && findProgram(['taskset']) !== undefined

/** The core of the contender. Load and upstream share another one, LOAD. */
export const CONTENDER = cores[0]!
export const LOAD = cores[1] ?? cores[0]!

export const pinning = canPin
  ? `contender on core ${CONTENDER}, load and upstream on core ${LOAD}`
  : 'not pinned: this machine has one core or no taskset, so compare nothing with pinned runs'

/**
 * A command line that keeps a program on one core. taskset replaces itself by the program, so the process id is its
 * own.
 */
export function pinned(core: number, command: string, args: string[]): [command: string, args: string[]] {
  return canPin ? ['taskset', ['-c', String(core), command, ...args]] : [command, args]
}

/** Keeps a process and its threads on one core from now on. */
export function pin(core: number, pid: number): void {
  if (canPin) execFileSync('taskset', ['-a', '-c', '-p', String(core), String(pid)], { stdio: 'ignore' })
}

/** The load average of the last minute: how many processes used or waited for a core. */
export const busyWith = (): number => Number(readFileSync('/proc/loadavg', 'utf8').split(' ')[0])

export const machine = `${cores.length} cores`

/** /proc counts CPU time in ticks of 10 ms, on every Linux platform for which Node 22 has binaries. */
const MICROS_PER_TICK = 10_000

/** The user and system time of a process or thread, in ticks. */
function ticks(file: string): number {
  const stat = readFileSync(file, 'latin1')
  // The process's name may contain spaces and parentheses, so fields are counted after its end. Fields 14 and 15 are
  // utime and stime (proc_pid_stat(5)).
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  return Number(fields[11]) + Number(fields[12])
}

/** The user and system time of a process with all its threads, in microseconds. The resolution is 10 ms. */
export function cpuMicros(pid: number): number {
  return ticks(`/proc/${pid}/stat`) * MICROS_PER_TICK
}

/**
 * Waits until a process uses no CPU time, at most five seconds. Work that it postponed during a load must count for
 * this load, and not fall into the next measurement.
 * @returns the process's CPU time at the end, as `cpuMicros`
 */
export async function settled(pid: number): Promise<number> {
  let before = cpuMicros(pid)
  for (let i = 0; i < 50; i++) {
    await new Promise(resolve => setTimeout(resolve, 100))
    const now = cpuMicros(pid)
    if (now - before <= MICROS_PER_TICK) return now
    before = now
  }
  return before
}

/** The CPU time in microseconds and the name of each thread, by thread id. */
export function threadMicros(pid: number): Map<number, { name: string; micros: number }> {
  const threads = new Map<number, { name: string; micros: number }>()
  for (const tid of readdirSync(`/proc/${pid}/task`)) {
    const folder = `/proc/${pid}/task/${tid}`
    threads.set(Number(tid), {
      name: readFileSync(`${folder}/comm`, 'utf8').trim(),
      micros: ticks(`${folder}/stat`) * MICROS_PER_TICK,
    })
  }
  return threads
}

/** The resident memory of a process in bytes. */
export function residentBytes(pid: number): number {
  return Number(/VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) * 1024
}
