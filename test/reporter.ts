/** Reports a run briefly: one line for each file, failures whole, skips with their reason, and the runner's closing summary. */
import { relative } from 'node:path'
import { inspect } from 'node:util'

interface Counted {
  passed: number
  failed: number
  skipped: string[]
  ms: number
}

export default async function* report(source: AsyncIterable<{ type: string; data: any }>): AsyncGenerator<string> {
  const files = new Map<string, Counted>()
  const failures: string[] = []
  const count = (data: any): Counted => {
    const file = data.file ? relative(process.cwd(), data.file) : ''
    let counted = files.get(file)
    if (!counted) files.set(file, (counted = { passed: 0, failed: 0, skipped: [], ms: 0 }))
    return counted
  }
  for await (const { type, data } of source) {
    if (type === 'test:pass' && data.details?.type !== 'suite') {
      const counted = count(data)
      if (data.skip !== undefined)
        counted.skipped.push(typeof data.skip === 'string' && data.skip ? `${data.name}: ${data.skip}` : data.name)
      else counted.passed++
    } else if (type === 'test:fail' && data.details?.type !== 'suite') {
      count(data).failed++
      const error = data.details?.error
      const cause = error?.cause ?? error
      const place = data.file ? `${relative(process.cwd(), data.file)}:${data.line ?? 1}` : ''
      failures.push(
        `✖ ${data.name}\n  ${place}\n${indent(cause instanceof Error ? (cause.stack ?? cause.message) : inspect(cause))}`,
      )
    } else if (type === 'test:stderr' && data.message.trim() !== '') {
      yield `${data.message.replace(/\n?$/, '\n')}`
    } else if (type === 'test:summary' && data.file) {
      const file = relative(process.cwd(), data.file)
      const { passed, failed, skipped } = files.get(file) ?? { passed: 0, failed: 0, skipped: [] }
      const parts = [
        `${passed} passed`,
        failed > 0 ? `${failed} FAILED` : '',
        skipped.length > 0 ? `${skipped.length} SKIPPED` : '',
      ]
      yield `${failed > 0 || !data.success ? '✖' : '✔'} ${file}  ${parts.filter(Boolean).join(', ')} (${Math.round(data.duration_ms)} ms)\n`
      for (const reason of skipped) yield `    skipped: ${reason}\n`
    } else if (type === 'test:diagnostic' && data.nesting === 0 && !data.file) {
      if (failures.length > 0) yield `\n${failures.splice(0).join('\n\n')}\n\n`
      yield `${data.message}\n`
    }
  }
  if (failures.length > 0) yield `\n${failures.join('\n\n')}\n`
}

const indent = (text: string) =>
  text
    .split('\n')
    .slice(0, 60)
    .map(line => `  ${line}`)
    .join('\n')
