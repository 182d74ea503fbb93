/** What the benchmarks ask of the machine: cores, CPU time and memory of a process. Linux only (/proc, taskset). */
import { readdirSync, readFileSync } from 'node:fs'
import { findProgram } from '../test/ensure-deps.ts'

/** Cores this process may use, from `Cpus_allowed_list` (`0-1`, `0,2-3`). */
function allowedCores(): number[] {
  const list = /Cpus_allowed_list:\s*(\S+)/.exec(readFileSync('/proc/self/status', 'utf8'))?.[1] ?? '0'
  return list.split(',').flatMap(range => {
    const [from, to = from] = range.split('-').map(Number) as [number, number?]
    return Array.from({ length: to! - from + 1 }, (_, i) => from + i)
  })
}

// Read once at start: the run pins itself later, and its own list then names one core.
const cores = allowedCores()
const canPin = cores.length > 1 && findProgram(['taskset']) !== undefined

/** Who runs where: the contender has a core of its own, load and upstream share the other. */
export const CONTENDER = cores[0]!
export const LOAD = cores[1] ?? cores[0]!

export const pinning = canPin
  ? `contender on core ${CONTENDER}, load and upstream on core ${LOAD}`
  : 'not pinned: this machine has one core or no taskset, so compare nothing with pinned runs'

/** A command line that keeps a program on one core. It becomes the program by exec: the process id is the program's. */
export function pinned(core: number, command: string, args: string[]): [command: string, args: string[]] {
  return canPin ? ['taskset', ['-c', String(core), command, ...args]] : [command, args]
}

/** How many others want a core, on the average of the last minute. */
export const busyWith = (): number => Number(readFileSync('/proc/loadavg', 'utf8').split(' ')[0])

export const machine = `${cores.length} cores`

/** /proc counts CPU time in ticks of 10 ms on every Linux port that Node 22 has binaries for. */
const MICROS_PER_TICK = 10_000

function ticks(file: string): number {
  const stat = readFileSync(file, 'latin1')
  // The name may hold spaces and parentheses: fields are counted after its end. 14 and 15 are utime and stime (proc_pid_stat(5)).
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  return Number(fields[11]) + Number(fields[12])
}

/** CPU time of a process with all its threads, user and system, in microseconds (resolution 10 ms). */
export function cpuMicros(pid: number): number {
  return ticks(`/proc/${pid}/stat`) * MICROS_PER_TICK
}

/**
 * Waits until a process rests, five seconds at most: what it put off during a load is its own cost, and must not fall into the next one's time.
 * @returns CPU time until then, as `cpuMicros`
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

/** CPU time of each thread by id, in microseconds, with the thread's name. */
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

/** Resident memory in bytes. */
export function residentBytes(pid: number): number {
  return Number(/VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) * 1024
}
