/**
 * Values for a schema: mostly what it takes, here and there something else. Property tests compare validators with
 * them.
 */
import type { GeneratorValue } from 'fast-check'
import fc from 'fast-check'

type Schema = Record<string, any>

/** Text that formats take, and some that look like it. */
const TEXTS = [
  '',
  'a',
  'auto',
  '60s',
  '5m',
  '64KiB',
  '12.50',
  '1.25',
  '127.0.0.1:8080',
  '10.0.0.0/8',
  'é😀',
  '/v1/x',
  '__proto__',
]
const ODD = fc.constantFrom<unknown>(null, true, 0, -1, 1.5, 1e21, '', 'x', 'é'.repeat(300), [], [null], {}, { x: 1 }, [
  [],
])

/** @param slips one in this many values is not what the schema says */
export function sample(schema: Schema, g: GeneratorValue, slips: number, depth = 0): unknown {
  const one = (of: number) => g(fc.nat, { max: of - 1 }) === 0
  if (one(slips)) return g(() => ODD)
  const variants: Schema[] | undefined = schema['oneOf'] ?? schema['anyOf']
  if (variants) return sample(variants[g(fc.nat, { max: variants.length - 1 })]!, g, slips, depth)
  if ('const' in schema) return schema['const']
  if (schema['enum']) return g(fc.constantFrom, ...schema['enum'])
  const types = [schema['type'] ?? 'string'].flat()
  switch (g(fc.constantFrom, ...types)) {
    case 'object':
      return object(schema, g, slips, depth)
    case 'array':
      return Array.from({ length: g(fc.nat, { max: depth > 6 ? 0 : 2 }) }, () =>
        sample(schema['items'] ?? {}, g, slips, depth + 1),
      )
    case 'string':
      return g(fc.constantFrom, ...(schema['examples'] ?? []), ...TEXTS)
    case 'integer':
    case 'number':
      return g(fc.constantFrom, schema['minimum'] ?? 0, schema['maximum'] ?? 7, 1, 100, 0.5)
    case 'boolean':
      return g(fc.boolean)
    default:
      return null
  }
}

function object(schema: Schema, g: GeneratorValue, slips: number, depth: number): object {
  const out: [string, unknown][] = []
  const required = new Set<string>(schema['required'] ?? [])
  for (const [name, member] of Object.entries<Schema>(schema['properties'] ?? {})) {
    // A tag is not required where one variant goes without; unions would hardly ever be met without it.
    const wanted = required.has(name) || 'const' in member ? slips : depth > 4 ? 1 : 3
    const absent = g(fc.nat, { max: wanted - 1 }) === 0
    if (wanted === slips ? !absent : absent && depth <= 6) out.push([name, sample(member, g, slips, depth + 1)])
  }
  const rest = schema['additionalProperties']
  if (typeof rest === 'object') out.push(['a', sample(rest, g, slips, depth + 1)])
  if (g(fc.nat, { max: 2 * slips - 1 }) === 0)
    out.push([g(fc.constantFrom, 'unheard_of', '__proto__', '', 'constructor'), 1])
  // Unlike a literal's, a `__proto__` of these is a member.
  return Object.fromEntries(out)
}
