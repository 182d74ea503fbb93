/** Helpers with which the benchmarks of one part measure times and print them. */

export function time(work: () => void): number {
  const start = performance.now()
  work()
  return performance.now() - start
}

/** The CPU time of the calling thread so far, in ms. Other work on the machine does not add to it. */
export function cpuTime(): number {
  const { user, system } = process.threadCpuUsage()
  return (user + system) / 1000
}

export function row(name: string, cells: (string | number)[]): void {
  const shown = cells.map(cell => (typeof cell === 'number' ? cell.toFixed(cell < 10 ? 2 : 1) : cell).padStart(14))
  console.log(name.padEnd(24) + shown.join(''))
}

export function heading(text: string): void {
  console.log(`\n${text}`)
}
