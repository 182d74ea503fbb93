/**
 * Reports a run briefly: a line for each file, failures within one screen each, skips with their reason, and the
 * runner's closing summary.
 */
import { relative } from 'node:path'
import { inspect } from 'node:util'

/** How much of a failure's message is shown: it and its place fit on one screen. */
const LINES = 30
const COLUMNS = 200

/**
 * uWebSockets.js writes this for each WebSocket handshake that a plugin made wait. The gateway answers those outside of
 * any cork on purpose (docs/listeners.md: inside one the build may close the new socket), so the line tells nothing; it
 * is counted instead of shown.
 */
const CORK_WARNING = /^Warning: uWS\.HttpResponse writes must be made from within a corked callback\..*\n?/gm

export default async function* report(source: AsyncIterable<{ type: string; data: any }>): AsyncGenerator<string> {
  const skips = new Map<string, string[]>()
  const failures: string[] = []
  let corkWarnings = 0
  for await (const { type, data } of source) {
    if (type === 'test:pass' && data.skip !== undefined) {
      const reason = typeof data.skip === 'string' && data.skip ? `${data.name}: ${data.skip}` : data.name
      skips.set(data.file, [...(skips.get(data.file) ?? []), reason])
    } else if (type === 'test:fail' && data.details?.error?.failureType !== 'subtestsFailed') {
      failures.push(`✖ ${data.name}\n  ${placeOf(data)}\n${failure(data.details?.error)}`)
    } else if (type === 'test:stderr') {
      corkWarnings += data.message.match(CORK_WARNING)?.length ?? 0
      const message = data.message.replace(CORK_WARNING, '')
      if (message.trim() !== '') yield message.replace(/\n?$/, '\n')
    } else if (type === 'test:summary' && data.file) {
      const { passed, failed, cancelled, skipped } = data.counts
      const parts = [`${passed} passed`]
      if (failed + cancelled > 0) parts.push(`${failed + cancelled} FAILED`)
      if (skipped > 0) parts.push(`${skipped} SKIPPED`)
      yield `${data.success ? '✔' : '✖'} ${shown(data.file)}  ${parts.join(', ')} (${Math.round(data.duration_ms)} ms)\n`
      for (const reason of skips.get(data.file) ?? []) yield `    skipped: ${reason}\n`
    } else if (type === 'test:diagnostic' && data.nesting === 0 && !data.file) {
      if (failures.length > 0) yield `\n${failures.splice(0).join('\n\n')}\n\n`
      yield `${data.message}\n`
    }
  }
  if (failures.length > 0) yield `\n${failures.join('\n\n')}\n`
  if (corkWarnings > 0)
    yield `${corkWarnings} WebSocket handshakes outside of a cork, as they are meant to be (docs/listeners.md)\n`
}

const shown = (file: string) => relative(process.cwd(), file)
const placeOf = (data: any) => (data.file ? `${shown(data.file)}:${data.line ?? 1}` : '')

/** What was expected and what was there, then the first places of the project that the error passed through. */
function failure(error: any): string {
  const cause = error?.cause ?? error
  if (!(cause instanceof Error)) return clip(inspect(cause))
  const frames = (cause.stack ?? '')
    .slice((cause.stack ?? '').indexOf('\n    at '))
    .split('\n')
    .filter(line => line.startsWith('    at ') && !/node:|node_modules/.test(line))
  return [clip(cause.message || cause.name), ...frames.slice(0, 4)].join('\n')
}

function clip(text: string): string {
  const lines = text.split('\n')
  const kept = lines.slice(0, LINES).map(line => `  ${line.length > COLUMNS ? `${line.slice(0, COLUMNS)} …` : line}`)
  if (lines.length > LINES) kept.push(`  … ${lines.length - LINES} more lines`)
  return kept.join('\n')
}
