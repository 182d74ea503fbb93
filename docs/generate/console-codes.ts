/** console/requests/codes.json: what a customer does about each code, for the console's page of requests. */
import { NEXT_STEPS } from '../../cli/next-steps.ts'
import { ERRORS, type ErrorCode, type ErrorSpec } from '../../core/canon/errors.ts'

/** The console shows text: links and code are words, and what is for operators alone is left out. */
const plain = (markdown: string): string =>
  markdown
    .replace(/\[([^\]]+)\]\([^)]+\)/g, '$1')
    .replaceAll('`', '')
    .replace(/ ?Operators: [^.]*(\.(?! [A-Z])[^.]*)*\./g, '')
    .trim()

export function consoleCodes(): Record<string, { meaning: string; next: string }> {
  const all = Object.entries(ERRORS) as [ErrorCode, ErrorSpec][]
  return Object.fromEntries(
    all.map(([code, { docs }]) => [code, { meaning: plain(docs), next: plain(NEXT_STEPS[code]) }]),
  )
}
