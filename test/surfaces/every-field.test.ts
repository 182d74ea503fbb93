/**
 * Every member of the chat surface's schema with a value of another type, and an unknown member at every depth: each is
 * refused by name.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { surfaces } from '../../surfaces/index.ts'
import { refusal } from './request-kit.ts'

type Schema = Record<string, any>
type Put = (value: unknown) => unknown

/** A minimal value that a schema takes. */
function sample(schema: Schema): unknown {
  if ('const' in schema) return schema['const']
  if (schema['enum']) return schema['enum'].find((value: unknown) => value !== null) ?? null
  if (schema['oneOf']) return sample(schema['oneOf'][0])
  if (schema['anyOf']) return sample(schema['anyOf'][0])
  switch (schema['type']) {
    case 'string':
      return 'x'
    case 'integer':
    case 'number':
      return schema['minimum'] ?? 1
    case 'boolean':
      return true
    case 'array':
      return schema['items'] ? [sample(schema['items'])] : []
    case 'object':
      return Object.fromEntries(
        (schema['required'] ?? []).map((name: string) => [name, sample(schema['properties'][name])]),
      )
    default:
      return null
  }
}

/** JSON types that a schema takes; null when it takes any. */
function types(schema: Schema): Set<string> | null {
  if ('const' in schema) return new Set([typeOf(schema['const'])])
  if (schema['enum']) return new Set(schema['enum'].map(typeOf))
  const union = schema['oneOf'] ?? schema['anyOf']
  if (union) {
    const all = new Set<string>()
    for (const each of union) {
      const some = types(each)
      if (!some) return null
      for (const type of some) all.add(type)
    }
    return all
  }
  return schema['type'] ? new Set([schema['type'] === 'integer' ? 'number' : schema['type']].flat()) : null
}

const typeOf = (value: unknown): string => (value === null ? 'null' : Array.isArray(value) ? 'array' : typeof value)
const VALUES: unknown[] = [true, 7, 'text', [], {}]

interface Case {
  body: unknown
  param: string
  kind: 'type' | 'unknown'
}

function* cases(schema: Schema, put: Put, path: string): Generator<Case> {
  const taken = types(schema)
  if (!taken) return
  for (const value of VALUES) if (!taken.has(typeOf(value))) yield { body: put(value), param: path, kind: 'type' }
  for (const each of schema['oneOf'] ?? schema['anyOf'] ?? []) yield* inside(each, put, path)
  yield* inside(schema, put, path)
}

function* inside(schema: Schema, put: Put, path: string): Generator<Case> {
  if (schema['oneOf'] ?? schema['anyOf']) {
    for (const each of schema['oneOf'] ?? schema['anyOf']) yield* inside(each, put, path)
    return
  }
  if (schema['type'] === 'array' && schema['items']) yield* cases(schema['items'], value => put([value]), `${path}[0]`)
  if (schema['type'] !== 'object' || !schema['properties']) return
  const base = sample(schema) as object
  yield { body: put({ ...base, zzz: 1 }), param: `${path}${path && '.'}zzz`, kind: 'unknown' }
  for (const [name, member] of Object.entries(schema['properties'] as Record<string, Schema>)) {
    if ('const' in member) continue
    yield* cases(member, value => put({ ...base, [name]: value }), `${path}${path && '.'}${name}`)
  }
}

const CODES = new Set([
  'invalid_type',
  'invalid_value',
  'unsupported_value',
  'unsupported_parameter',
  'unknown_parameter',
])
const good = { model: 'm', messages: [{ role: 'user', content: 'hi' }] }

test('[GEN-2] [CHAT-1] wrong types in every field and unknown fields at every depth of the chat table are refused by name', () => {
  const chat = surfaces.chat!
  const made = inside(chat.requestSchema, value => ({ ...good, ...(value as object) }), '')
  const all = [...new Map([...made].map(each => [JSON.stringify(each.body), each])).values()]
  assert.ok(all.filter(each => each.kind === 'type').length > 300, String(all.length))
  assert.ok(all.filter(each => each.kind === 'unknown').length > 20)
  for (const { body, param, kind } of all) {
    const error = refusal(chat, body, true)
    const what = `${param} ${JSON.stringify(body)} → ${error.code} ${error.param} ${error.message}`
    assert.ok(CODES.has(error.code), what)
    if (kind === 'unknown') assert.equal(error.code, 'unknown_parameter', what)
    assert.equal(error.param, param, what)
    assert.ok(error.message.includes(param), what)
  }
})
