/** What the line of a reload says has changed: names, never values. */
import assert from 'node:assert/strict'
import { writeFile } from 'node:fs/promises'
import { test } from 'node:test'
import { changedNames } from '../../config/changes.ts'
import type { GatewayConfig } from '../../config/types.ts'
import { defaultYaml, startGateway } from '../e2e/harness.ts'

test('a reload says which sections, entries and keys differ, and no value', async () => {
  const g = await startGateway()
  try {
    const changes: [edit: (yaml: string) => string, names: string[]][] = [
      [yaml => `# a comment\n${yaml}`, []],
      [
        yaml => yaml.replace('model: sim-small }', 'model: sim-small, supports: [] }'),
        ['models.eb1-efficient-preview'],
      ],
      [yaml => yaml.replace('input: 1.25', 'input: 1.5'), ['models.eb1-preview']],
      [yaml => yaml.replace('api_key: k }', 'api_key: hush-hush }'), ['providers.responses']],
      [
        yaml => yaml.replace('id: key_test,', 'id: key_new,'),
        ['organizations.acme.keys.key_test', 'organizations.acme.keys.key_new'],
      ],
      [yaml => yaml.replace('    plan: custom', '    plan: custom\n    billing: free'), ['organizations.acme']],
      [yaml => yaml.replace('usage-capture, header-stamp', 'usage-capture'), ['pipelines.completions']],
      [yaml => `${yaml}secret: "${'hush'.repeat(10)}"\n`, ['secret']],
    ]
    const plain = defaultYaml(g.simulator.url)
    for (const [edit, names] of changes) {
      for (const [text, told] of [
        [edit(plain), names],
        [plain, names],
      ] as const) {
        await writeFile(g.file, text)
        assert.deepEqual((await g.gateway.reload()).errors, [])
        const line = g.log.filter(({ message }) => message === 'configuration reloaded').at(-1)!
        assert.deepEqual([...line.fields.changed].sort(), [...told].sort())
        assert.doesNotMatch(JSON.stringify(line), /hush/)
      }
    }
  } finally {
    await g.close()
  }
})

// The line of a reload named the model, and nothing said that its rows before and after have one price book.
test('a reload warns of prices that changed under the same price book, once', async () => {
  const g = await startGateway()
  try {
    const told = () =>
      g.log
        .filter(({ level, message }) => level === 'warn' && message.startsWith('prices changed under the same'))
        .map(({ fields }) => [fields.price_book, fields.prices])
    const plain = defaultYaml(g.simulator.url)
    const dearer = plain.replace('input: 0.25', 'input: 0.5')
    const planned = `${dearer}plans:\n  own: { prices: { eb1-preview: { input: 9, output: 9 } } }\n`
    for (const text of [
      dearer,
      dearer.replace('listed: false, ', ''),
      planned,
      planned.replace('input: 9', 'input: 8'),
      plain.replace('price_book: test-1', 'price_book: test-2'),
    ]) {
      await writeFile(g.file, text)
      assert.deepEqual((await g.gateway.reload()).errors, [])
    }
    assert.deepEqual(told(), [
      ['test-1', ['eb1-efficient-preview']],
      ['test-1', ['plan own']],
    ])
  } finally {
    await g.close()
  }
})

test('a line that would name thousands names fifty', () => {
  const organizations = (digest: string) =>
    Object.fromEntries(
      Array.from({ length: 3000 }, (_, i) => [`o${i}`, { id: `o${i}`, keys: [{ id: 'k', sha256: digest }] }]),
    )
  const config = (digest: string) => ({ organizations: organizations(digest) }) as unknown as GatewayConfig
  const names = changedNames(config('a'), config('b'))
  assert.equal(names.length, 51)
  assert.deepEqual([names[0], names[50]], ['organizations.o0.keys.k', 'and 2950 more'])
})
