/** CSV (RFC 4180), line by line. */

/** A line of these values. */
export function csvLine(values: readonly string[]): string {
  // A spreadsheet would run a value with a leading =, +, - or @ as a formula.
  return (
    values
      .map(value => (/^[=+@-][^\d]/.test(value) ? `'${value}` : value))
      .map(value => (/[",\n\r]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value))
      .join(',') + '\n'
  )
}

/** The cells of a line of CSV (RFC 4180, without line breaks in cells); null when a quote is not closed. */
export function cellsOf(line: string): string[] | null {
  const cells: string[] = []
  const cell = /\s*"((?:[^"]|"")*)"\s*(?:,|$)|([^,]*)(?:,|$)/y
  for (;;) {
    const match = cell.exec(line)
    if (!match || match[2]?.trimStart().startsWith('"')) return null
    cells.push(match[1] === undefined ? match[2]!.trim() : match[1].replaceAll('""', '"'))
    if (!match[0].endsWith(',')) return cells
  }
}
