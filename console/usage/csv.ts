/** Text as CSV (RFC 4180). */

/**
 * A spreadsheet takes text that begins with one of `=+-@` for a formula, and tags are text of clients: such text gets
 * an apostrophe in front, which spreadsheets show as text.
 */
function cell(value: string | number): string {
  const text = typeof value === 'string' && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value)
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text
}

export function csv(heads: readonly string[], rows: readonly (readonly (string | number)[])[]): string {
  return [heads, ...rows].map(row => `${row.map(cell).join(',')}\r\n`).join('')
}
