import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import type { Tool } from '../../core/canon/conversation.ts'
import { ANTHROPIC_NAMES, aliasTools, GEMINI_NAMES, OPENAI_NAMES } from '../../providers/tool-names.ts'

const fn = (name: string, namespace?: string): Tool => ({
  type: 'function',
  name,
  namespace,
  parameters: { type: 'object' },
  path: 'tools[0]',
})
const RULES = [OPENAI_NAMES, ANTHROPIC_NAMES, GEMINI_NAMES]

test('[TOOL-3] names that fit go as they are', () => {
  const names = aliasTools([fn('get_weather'), fn('a-b'), fn('x'.repeat(64))], OPENAI_NAMES)
  for (const name of ['get_weather', 'a-b', 'x'.repeat(64)]) {
    assert.equal(names.toUpstream(name), name)
    assert.deepEqual(names.fromUpstream(name), { name, namespace: undefined, kind: 'function' })
  }
  assert.equal(aliasTools([fn('a.b:c')], GEMINI_NAMES).toUpstream('a.b:c'), 'a.b:c')
  assert.equal(aliasTools([fn('y'.repeat(128))], ANTHROPIC_NAMES).toUpstream('y'.repeat(128)), 'y'.repeat(128))
})

test('[TOOL-3] long, dotted and Unicode names get an alias that is the same on every turn, and come back as declared', () => {
  const declared = [
    'get.weather',
    'x'.repeat(65),
    'x'.repeat(1024),
    'погода',
    '1',
    ' ',
    '\ud800',
    'a b',
    '9lives.x',
    '\u{1f600}',
  ]
  for (const rule of RULES) {
    const names = aliasTools(
      declared.map(name => fn(name)),
      rule,
    )
    const again = aliasTools(
      [...declared].reverse().map(name => fn(name)),
      rule,
    )
    for (const name of declared) {
      const alias = names.toUpstream(name)
      assert.match(alias, rule.pattern)
      assert.equal(again.toUpstream(name), alias, 'the order of tools does not matter')
      assert.equal(names.fromUpstream(alias).name, name)
    }
  }
  // Pinned: an alias that changed between versions would cost every running conversation its prompt cache.
  assert.equal(aliasTools([fn('get.weather')], OPENAI_NAMES).toUpstream('get.weather'), 'get_weather_c06e4174bf')
})

test('[TOOL-3] namespaces are flattened, and taken apart again', () => {
  const names = aliasTools([fn('read', 'fs'), { ...fn('run', 'sh'), type: 'custom' } as Tool], OPENAI_NAMES)
  assert.equal(names.toUpstream('read', 'fs'), 'fs__read')
  assert.deepEqual(names.fromUpstream('fs__read'), { name: 'read', namespace: 'fs', kind: 'function' })
  assert.deepEqual(names.fromUpstream('sh__run'), { name: 'run', namespace: 'sh', kind: 'custom' })
})

test('[TOOL-3] whoever wants a name first does not matter: a plain name keeps it, a flattened one gives way', () => {
  for (const tools of [
    [fn('b', 'a'), fn('a__b')],
    [fn('a__b'), fn('b', 'a')],
  ]) {
    const names = aliasTools(tools, OPENAI_NAMES)
    assert.equal(names.toUpstream('a__b'), 'a__b')
    assert.match(names.toUpstream('b', 'a'), /^a__b_[0-9a-f]{10}$/)
  }
  const both = aliasTools([fn('c', 'a__b'), fn('b__c', 'a')], OPENAI_NAMES)
  assert.notEqual(both.toUpstream('c', 'a__b'), both.toUpstream('b__c', 'a'))
})

test('[TOOL-3] a tool that is called like another one’s alias does not take it over', () => {
  const alias = aliasTools([fn('get.weather')], OPENAI_NAMES).toUpstream('get.weather')
  const names = aliasTools([fn('get.weather'), fn(alias)], OPENAI_NAMES)
  assert.equal(names.toUpstream(alias), alias)
  assert.notEqual(names.toUpstream('get.weather'), alias)
  assert.equal(names.fromUpstream(names.toUpstream('get.weather')).name, 'get.weather')
})

test('[TOOL-3] history may name tools that are gone; a name nobody sent comes back as it is', () => {
  const names = aliasTools([fn('kept')], OPENAI_NAMES)
  const gone = names.toUpstream('no longer here', 'ns')
  assert.match(gone, OPENAI_NAMES.pattern)
  assert.deepEqual(names.fromUpstream(gone), { name: 'no longer here', namespace: 'ns', kind: 'function' })
  assert.equal(gone, aliasTools([fn('no longer here', 'ns')], OPENAI_NAMES).toUpstream('no longer here', 'ns'))
  assert.deepEqual(names.fromUpstream('invented'), { name: 'invented', kind: 'function' })
})

test('[TOOL-3] reserved names are not given away', () => {
  const names = aliasTools([fn('web_search')], ANTHROPIC_NAMES, ['web_search'])
  assert.match(names.toUpstream('web_search'), /^web_search_[0-9a-f]{10}$/)
})

test('[TOOL-3] no two tools share an upstream name, and each comes back (property)', () => {
  const name = fc.oneof(
    fc.string({ minLength: 1, maxLength: 4, unit: fc.constantFrom('a', 'b', '_', '.', '__', 'é', '1') }),
    fc.string({ minLength: 1, maxLength: 200, unit: 'binary' }),
  )
  const tool = fc.record({ name, namespace: fc.option(name, { nil: undefined }) })
  const key = (t: { name: string; namespace?: string }) => JSON.stringify([t.namespace ?? null, t.name])
  fc.assert(
    fc.property(
      fc.uniqueArray(tool, { selector: key, maxLength: 60 }),
      fc.uniqueArray(tool, { selector: key, maxLength: 10 }),
      fc.constantFrom(...RULES),
      (tools, history, rule) => {
        const names = aliasTools(
          tools.map(t => fn(t.name, t.namespace)),
          rule,
        )
        const all = new Map([...tools, ...history].map(t => [key(t), t]))
        const upstream = new Set<string>()
        for (const t of all.values()) {
          const alias = names.toUpstream(t.name, t.namespace)
          assert.match(alias, rule.pattern)
          assert.equal(names.toUpstream(t.name, t.namespace), alias)
          upstream.add(alias)
          const back = names.fromUpstream(alias)
          assert.equal(key(back), key(t))
        }
        assert.equal(upstream.size, all.size)
      },
    ),
    { numRuns: 300, seed: 11 },
  )
})
