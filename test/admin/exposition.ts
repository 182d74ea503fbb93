/** Prometheus' text format, read back. */
import assert from 'node:assert/strict'
import type { TestGateway } from '../e2e/harness.ts'

export interface Family {
  name: string
  type: string
  help: string
  samples: { name: string; labels: Record<string, string>; value: number }[]
}

export async function scrape(g: TestGateway): Promise<Map<string, Family>> {
  return parse(await (await fetch(`${g.gateway.adminAddress}/metrics`)).text())
}

export function parse(text: string): Map<string, Family> {
  const families = new Map<string, Family>()
  const help = new Map<string, string>()
  for (const line of text.split('\n')) {
    if (line === '') continue
    const meta = /^# (HELP|TYPE) (\S+) (.*)$/.exec(line)
    if (meta) {
      const [, kind, name, rest] = meta as unknown as [string, string, string, string]
      if (kind === 'HELP') help.set(name, rest)
      else families.set(name, { name, type: rest, help: help.get(name) ?? '', samples: [] })
      continue
    }
    const sample = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)(?: \d+)?$/.exec(line)
    assert.ok(sample, `not the exposition format: ${line}`)
    const [, name, labels = '', value] = sample as unknown as [string, string, string | undefined, string]
    const family = families.get(name) ?? families.get(name.replace(/_(bucket|sum|count)$/, ''))
    assert.ok(family, `no TYPE before ${name}`)
    family.samples.push({
      name,
      labels: Object.fromEntries(
        [...labels.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map(found => [found[1]!, found[2]!]),
      ),
      value: Number(value),
    })
  }
  return families
}

/** The value of the one sample that has these labels; undefined when there is none. */
export function value(
  families: Map<string, Family>,
  name: string,
  labels: Record<string, string> = {},
): number | undefined {
  return families
    .get(name)
    ?.samples.find(sample => Object.entries(labels).every(([label, wanted]) => sample.labels[label] === wanted))?.value
}

export function series(families: Map<string, Family>): string[] {
  return [...families.values()]
    .flatMap(family => family.samples.map(sample => `${sample.name} ${JSON.stringify(sample.labels)}`))
    .sort()
}
