/** The result of a profile: its type, medians and ratios, the table, and the file. */
import { mkdirSync, renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Samples } from './lanes.ts'
import { median } from './load/percentile.ts'
import { machine } from './machine.ts'

/** The median figures of one lane, by their names. */
export type Figures = Record<string, number>

export interface Goal {
  text: string
  value: number
  /** The goal: the value is at least `least`, or at most `most`. */
  least?: number
  most?: number
}

export interface Result {
  profile: string
  /** The medians over all rounds, by lane. */
  lanes: Record<string, Figures>
  /** The medians of each round's ratios, by name. */
  ratios: Record<string, number>
  goals: Goal[]
}

export interface RunOptions {
  rounds: number
  /** The duration of one measurement. Each profile has its own default. */
  seconds?: number
  /** These contenders instead of the profile's own. */
  contenders?: string[]
  /** Whether to measure only what the regression guard compares. */
  quick?: boolean
}

export interface Profile {
  name: string
  /** One line that the help and the report show. */
  title: string
  run(options: RunOptions): Promise<Result>
}

/** The medians over the rounds that are not void. A lane with only void rounds is left out. */
export function medians(samples: Samples<Figures>): Record<string, Figures> {
  const lanes: Record<string, Figures> = {}
  for (const [name, rounds] of samples) {
    const good = rounds.filter(round => round !== undefined)
    if (good.length === 0) continue
    lanes[name] = Object.fromEntries(
      Object.keys(good[0]!).map(figure => [
        figure,
        median(good.map(round => round[figure]!).filter(value => !Number.isNaN(value))),
      ]),
    )
  }
  return lanes
}

/** The figure of one lane divided by that of another, for each round that has both. */
export function paired(samples: Samples<Figures>, figure: string, of: string, to: string): number[] {
  const over = samples.get(to) ?? []
  return (samples.get(of) ?? []).flatMap((round, i) => {
    const other = over[i]
    return round && other ? [round[figure]! / other[figure]!] : []
  })
}

/** The median of `paired` over all rounds; undefined when no round has both lanes. */
export function ratio(samples: Samples<Figures>, figure: string, of: string, to: string): number | undefined {
  const ratios = paired(samples, figure, of, to)
  return ratios.length > 0 ? median(ratios) : undefined
}

/** The ratios that could be measured, by names of the form `FIGURE: a / b`. */
export function ratios(samples: Samples<Figures>, figure: string, pairs: [string, string][]): Record<string, number> {
  return Object.fromEntries(
    pairs.flatMap(([of, to]) => {
      const value = ratio(samples, figure, of, to)
      return value === undefined ? [] : [[`${figure}: ${of} / ${to}`, value]]
    }),
  )
}

/** The pairs in reverse order. Less CPU time is better, but a higher ratio must always be better. */
export const inverse = (pairs: [string, string][]): [string, string][] => pairs.map(([of, to]) => [to, of])

/** The goals whose value was measured. */
export function goals(...all: (Omit<Goal, 'value'> & { value: number | undefined })[]): Goal[] {
  return all.filter((goal): goal is Goal => goal.value !== undefined && !Number.isNaN(goal.value))
}

export function reached({ value, least, most }: Goal): boolean {
  return (least === undefined || value >= least) && (most === undefined || value <= most)
}

/** A number in three significant digits or as an integer: 17,432 · 12.3 · 0.456. */
export function show(value: number): string {
  if (Number.isNaN(value)) return '–'
  if (value < 0) return `-${show(-value)}`
  if (value >= 1000) return Math.round(value).toLocaleString('en')
  return value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(value >= 1 ? 2 : 3)
}

/** An aligned Markdown table, readable in a terminal and in README.md. */
export function table(header: string[], rows: string[][]): string {
  const widths = header.map((title, i) => Math.max(2, title.length, ...rows.map(row => row[i]!.length)))
  const line = (cells: string[]) =>
    `| ${cells.map((cell, i) => (i === 0 ? cell.padEnd(widths[i]!) : cell.padStart(widths[i]!))).join(' | ')} |`
  const rule = `| ${widths.map((width, i) => (i === 0 ? '-'.repeat(width) : `${'-'.repeat(width - 1)}:`)).join(' | ')} |`
  return [line(header), rule, ...rows.map(line)].join('\n')
}

export function report({ lanes, ratios, goals }: Result): string {
  const parts: string[] = []
  const columns = [...new Set(Object.values(lanes).flatMap(figures => Object.keys(figures)))]
  const rows = Object.entries(lanes).map(([name, figures]) => [
    name,
    ...columns.map(column => (figures[column] === undefined ? '' : show(figures[column]))),
  ])
  if (rows.length > 0) parts.push(table(['', ...columns], rows))
  const pairs = Object.entries(ratios).map(([pair, value]) => [pair, show(value)])
  if (pairs.length > 0) parts.push(table(['ratio', 'median'], pairs))
  const aims = goals.map(goal => [
    goal.text,
    goal.least === undefined ? `≤ ${goal.most}` : `≥ ${goal.least}`,
    show(goal.value),
    reached(goal) ? 'reached' : 'missed',
  ])
  if (aims.length > 0) parts.push(table(['goal', 'is', 'measured', ''], aims))
  return parts.join('\n\n')
}

export const RESULTS = join(import.meta.dirname, 'results')

/** Writes `NAME.json` in one step, so that there is never half a file. */
export function write(folder: string, result: Result, options: RunOptions & { machine?: string }): void {
  const rounded = (_key: string, value: unknown) => (typeof value === 'number' ? Number(value.toPrecision(4)) : value)
  const file = {
    profile: result.profile,
    machine: options.machine ?? machine,
    node: process.version,
    rounds: options.rounds,
    ...(options.seconds !== undefined && { seconds: options.seconds }),
    lanes: result.lanes,
    ratios: result.ratios,
    goals: result.goals.map(goal => ({ ...goal, reached: reached(goal) })),
  }
  mkdirSync(folder, { recursive: true })
  const path = join(folder, `${result.profile}.json`)
  writeFileSync(`${path}.tmp`, `${JSON.stringify(file, rounded, 2)}\n`)
  renameSync(`${path}.tmp`, path)
}
