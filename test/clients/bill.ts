/** What a session of an agent costs: its rows, summed up by the agent within it, with the sum of all. */
import type { LedgerRow } from '../../core/ports/store.ts'

/** The names under which a session and its agents are in the tags of a row. */
export const TAGS = {
  session: { from: 'session' },
  agent: { from: 'header.x-claude-code-agent-id' },
}

export function tagsOf({ tags }: Pick<LedgerRow, 'tags'>): Partial<Record<keyof typeof TAGS, string>> {
  return tags ? JSON.parse(tags) : {}
}

interface Line {
  requests: number
  rounds: number
  input: number
  cached: number
  output: number
  /** nano-USD. */
  cost: number
}

/** A line for the main agent, one for each other in the order in which they began, and the sum. */
export function billOf(rows: readonly LedgerRow[]): string[] {
  const lines = new Map<string, Line>()
  for (const row of rows.toSorted((a, b) => a.time - b.time)) {
    const { agent } = tagsOf(row)
    for (const name of [agent === undefined ? 'main agent' : `sub-agent ${agent}`, 'sum']) {
      const line = lines.get(name) ?? { requests: 0, rounds: 0, input: 0, cached: 0, output: 0, cost: 0 }
      lines.set(name, line)
      line.requests += 1
      line.rounds += row.rounds ?? 1
      line.input += row.input
      line.cached += row.cached
      line.output += row.output
      line.cost += row.cost
    }
  }
  return [...lines]
    .sort(([a], [b]) => Number(a === 'sum') - Number(b === 'sum'))
    .map(
      ([name, { requests, rounds, input, cached, output, cost }]) =>
        `${name}: ${requests} requests in ${rounds} rounds, ${input} input (${cached} cached) and ${output} output tokens, $${(cost / 1e9).toFixed(9)}`,
    )
}
