/** The table of clients: what came out, what is expected, and the Markdown of docs/compatibility.md. */
import type { Result } from './client.ts'

/** The models that clients ask for, one for each dialect, by the letter of their column. */
export const MODELS = {
  C: 'on-openai-chat',
  R: 'on-openai-responses',
  M: 'on-anthropic-messages',
  G: 'on-gemini',
} as const
const COLUMNS = Object.keys(MODELS) as (keyof typeof MODELS)[]

/** What `expected.json` has of a client: the version and the day of its last run, and what came out. */
export interface Tried {
  version: string
  /** YYYY-MM-DD, UTC. */
  day: string
  features: Record<string, string>
}

/** Outcomes by client and feature: one word where all models agree, else one for each column. */
export type Outcomes = Record<string, Record<string, string>>

/** @returns the outcomes of a client, by feature. A model without an outcome has `missing`. */
export function outcomesOf(results: readonly Result[]): Record<string, string> {
  const features: Record<string, string[]> = {}
  for (const { feature, model, outcome } of results) {
    const cells = (features[feature] ??= COLUMNS.map(() => 'missing'))
    cells[COLUMNS.findIndex(column => MODELS[column] === model)] = outcome
  }
  return Object.fromEntries(
    Object.entries(features).map(([feature, cells]) => [
      feature,
      cells.every(c => c === cells[0]) ? cells[0]! : cells.join(' '),
    ]),
  )
}

function cellsOf(outcome: string): string[] {
  const cells = outcome.split(' ')
  return cells.length === 1 ? COLUMNS.map(() => cells[0]!) : cells
}

/**
 * What differs from the expected outcomes, of the clients that ran. A feature of which some cells became `ok` and no
 * other changed is no regression; a feature that is not in the list yet, and not `ok`, is one.
 */
export function compare(expected: Outcomes, found: Outcomes): { regressions: string[]; gains: string[] } {
  const regressions: string[] = []
  const gains: string[] = []
  for (const [client, features] of Object.entries(found)) {
    const before = expected[client] ?? {}
    for (const feature of new Set([...Object.keys(before), ...Object.keys(features)])) {
      const was = before[feature]
      const is = features[feature] ?? 'missing'
      if (was === is) continue
      const wanted = cellsOf(was ?? 'nothing')
      const worse = cellsOf(is).some((outcome, at) => outcome !== wanted[at] && outcome !== 'ok')
      ;(worse ? regressions : gains).push(`${client}, ${feature}: ${is}; expected ${was ?? 'nothing'}`)
    }
  }
  return { regressions, gains }
}

/** The table as Markdown: a row for each set of features of a client that have the same outcomes. */
export function markdown(clients: Readonly<Record<string, Tried>>, what = 'client'): string {
  const lines = [
    `| ${what} | version, day | feature | ${COLUMNS.join(' | ')} |`,
    `| --- | --- | --- |${' --- |'.repeat(COLUMNS.length)}`,
  ]
  for (const [client, { version, day, features }] of Object.entries(clients)) {
    const rows = new Map<string, string[]>()
    for (const [feature, outcome] of Object.entries(features)) {
      const same = rows.get(outcome)
      if (same) same.push(feature)
      else rows.set(outcome, [feature])
    }
    for (const [outcome, same] of rows)
      lines.push(`| ${client} | ${version}, ${day} | ${same.join('; ')} | ${cellsOf(outcome).join(' | ')} |`)
  }
  return lines.join('\n') + '\n'
}
