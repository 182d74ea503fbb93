/** Text as CSV (RFC 4180). */

/**
 * A spreadsheet takes text that begins with one of `=+-@` for a formula, and some texts are those of clients: such text
 * gets an apostrophe in front, which spreadsheets show as text. What is a number as a whole stays one.
 */
function cell(value) {
  const plain = String(value ?? '')
  const text = /^[=+\-@\t\r]/.test(plain) && !/^-?\d+(\.\d+)?$/.test(plain) ? `'${plain}` : plain
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text
}

export function csv(heads, rows) {
  return [heads, ...rows].map(row => `${row.map(cell).join(',')}\r\n`).join('')
}
