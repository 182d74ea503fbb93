/** Usage as CSV, for billers that are not Stripe. */
import type { Answer } from '../web/visit.ts'

/** @param rows the first has the names of the columns */
export function csv(name: string, rows: readonly (readonly (string | number)[])[]): Answer {
  return {
    status: 200,
    headers: { 'content-type': 'text/csv; charset=utf-8', 'content-disposition': `attachment; filename="${name}"` },
    body: rows.map(row => `${row.map(cell).join(',')}\r\n`).join(''),
  }
}

/** A spreadsheet reads what begins with these as a formula. */
const FORMULA = /^[=+\-@\t\r]/

function cell(value: string | number): string {
  if (typeof value === 'number') return String(value)
  const text = FORMULA.test(value) ? `'${value}` : value
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text
}
