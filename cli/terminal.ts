/** Text for a terminal of 80 columns, and for pipes, where lines are not folded. */

export interface Terminal {
  /** Results, on standard output. */
  out(text: string): void
  /** Faults and remarks, on standard error. */
  err(text: string): void
  /** Columns to fold at; undefined: do not fold. */
  readonly columns: number | undefined
}

export const terminal: Terminal = {
  out: text => void process.stdout.write(`${text}\n`),
  err: text => void process.stderr.write(`${text}\n`),
  columns: process.stderr.isTTY ? Math.max(40, process.stderr.columns ?? 80) : undefined,
}

/** Folds one line at spaces. The lines after the first are indented. A word longer than the line stays whole. */
export function fold(text: string, width: number, indent = 4): string {
  return foldAfter('', text, width, indent)
}

function foldAfter(head: string, text: string, width: number, indent: number): string {
  const lines: string[] = []
  let line = head
  let empty = true
  for (const word of text.split(' ')) {
    if (!empty && line.length + 1 + word.length > width) {
      lines.push(line)
      line = ' '.repeat(indent)
      empty = true
    }
    line += empty ? word : ` ${word}`
    empty = false
  }
  return [...lines, line].join('\n')
}

/** Rows in columns, two spaces apart; the last cell of each row is folded under itself. */
export function columns(rows: readonly (readonly string[])[], width = 80, indent = 2): string {
  const widths: number[] = []
  for (const row of rows) {
    for (const [i, cell] of row.slice(0, -1).entries()) widths[i] = Math.max(widths[i] ?? 0, cell.length)
  }
  return rows
    .map(row => {
      const cells = row.slice(0, -1).map((cell, i) => cell.padEnd(widths[i]! + 2))
      const head = ' '.repeat(indent) + cells.join('')
      return foldAfter(head, row.at(-1) ?? '', width, head.length).trimEnd()
    })
    .join('\n')
}

/** A command was called with wrong arguments: exit code 2. */
export class UsageError extends Error {}

/** A command failed, and the message says all about it (no stack trace): exit code 1. */
export class Failure extends Error {}
