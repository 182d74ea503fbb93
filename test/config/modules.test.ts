import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { loadOwnFile, loadPluginFile } from '../../config/modules.ts'
import { deny, slot } from '../../core/plugin.ts'

/** A folder outside the clone: no package.json, no node_modules above it. */
function folder(t: TestContext): (name: string, text: string) => string {
  const dir = mkdtempSync(join(tmpdir(), 'sluice-plugin-'))
  t.after(() => rmSync(dir, { recursive: true, force: true }))
  return (name, text) => {
    writeFileSync(join(dir, name), text)
    return join(dir, name)
  }
}

const plugin = (name: string, more = '') => `
import { definePlugin, deny, slot } from 'sluice'
export const tag = slot<string>('tag')
export ${more || 'default'} definePlugin({ name: '${name}', summary: 'A plugin.', provides: [tag], create: () => ({ onRequest: () => deny('bad_request', { message: 'no' }) }) })
`

test('a plugin outside the clone imports the very same core', async t => {
  const write = folder(t)
  const loaded = await loadPluginFile(write('outside.ts', plugin('outside')), 1)
  assert.equal(loaded.name, 'outside')
  assert.equal(loaded.provides![0]!.index, slot('tag').index)
  const reply = await (await loaded.create({}, {} as never)).onRequest!({} as never)
  const own = deny('bad_request', { message: 'no' })
  assert.ok(reply?.kind === 'error' && own.kind === 'error')
  assert.equal(reply.error.constructor, own.error.constructor)
})

test('default export, export named plugin, and the only plugin exported', async t => {
  const write = folder(t)
  for (const [name, more] of [
    ['a', 'default'],
    ['b', 'const plugin ='],
    ['c', 'const anything ='],
  ] as const) {
    assert.equal((await loadPluginFile(write(`${name}.ts`, plugin(name, more)), 1)).name, name)
  }
  const script = write(
    'd.mjs',
    "import { definePlugin } from 'sluice'\nexport default definePlugin({ name: 'd', summary: '', create: () => ({}) })\n",
  )
  assert.equal((await loadPluginFile(script, 1)).name, 'd')
})

// Once a file's own imports kept their first version for ever: an edit of a helper showed only after a restart.
test("a new generation brings the file and its own imports; the same one doesn't", async t => {
  const write = folder(t)
  const helper = (n: number) => write('helper.ts', `export const summary: string = 'version ${n}'\n`)
  const main = (name: string) =>
    write(
      'live.ts',
      `import { definePlugin } from 'sluice'\nimport { summary } from './helper.ts'\nexport default definePlugin({ name: '${name}', summary, create: () => ({}) })\n`,
    )
  helper(1)
  const file = main('live')
  const first = await loadPluginFile(file, 1)
  assert.equal(first.summary, 'version 1')
  helper(2)
  assert.equal(await loadPluginFile(file, 1), first)
  assert.equal((await loadPluginFile(file, 2)).summary, 'version 2')
})

test('what is wrong with a file is said in terms of the file', async t => {
  const write = folder(t)
  const fails = (path: string, expected: RegExp) => assert.rejects(loadPluginFile(path, 1), expected)
  await fails(
    write('none.ts', 'export const x = 1\n'),
    /exports no plugin and no dialect; write `export default definePlugin/,
  )
  const dialect =
    "import { defineDialect, openaiChat } from 'sluice/dialect'\nexport default defineDialect({ ...openaiChat, name: 'mine' })\n"
  await fails(write('mine.ts', dialect), /exports the dialect 'mine', and no plugin/)
  assert.equal((await loadOwnFile(write('mine.ts', dialect), 2)).name, 'mine')
  await fails(write('other.ts', plugin('another')), /named 'another' and its file or package 'other'/)
  await fails(
    write('two.ts', plugin('a', 'const a =') + plugin('b', 'const b =').replace(/import.*|export const tag.*/g, '')),
    /exports 2 plugins \(a, b\)/,
  )
  await fails(write('syntax.ts', 'export default definePlugin({\n'), /./)
  await fails(write('throws.ts', "\nthrow new Error('boom')\n"), /boom \(throws\.ts:2\)/)
  await fails(write('missing.ts', "import './nothing.ts'\n"), /nothing\.ts/)
  await fails(write('file.txt', ''), /ends in \.ts, \.mts, \.js, \.mjs/)
  await fails(join(tmpdir(), 'sluice-no-such-plugin.ts'), /no such file/)
  await fails('/tmp/node_modules/x/plugin.ts', /inside node_modules/)
})
