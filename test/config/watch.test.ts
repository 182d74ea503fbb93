import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, renameSync, rmSync, symlinkSync, unlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { watchFiles } from '../../config/watch.ts'

function folder(t: TestContext): string {
  const dir = mkdtempSync(join(tmpdir(), 'sluice-watch-'))
  t.after(() => rmSync(dir, { recursive: true, force: true }))
  return dir
}

/** Watches, and gives the next change as a promise. */
function watcher(t: TestContext, files: string[]) {
  let wake: (changed: string[]) => void = () => {}
  const seen: string[][] = []
  const watching = watchFiles(
    files,
    changed => {
      seen.push(changed)
      wake(changed)
    },
    { debounceMs: 5, pollMs: 50 },
  )
  t.after(() => watching.close())
  // The watch itself keeps no process alive; a test that waits for it must.
  const alive = setInterval(() => {}, 1000)
  t.after(() => clearInterval(alive))
  return { watching, seen, next: () => new Promise<string[]>(resolve => (wake = resolve)) }
}

test('a file written in place, replaced by an editor, removed and made again', async t => {
  const dir = folder(t)
  const file = join(dir, 'gateway.yaml')
  writeFileSync(file, 'version: 1\n')
  const { next } = watcher(t, [file])

  let change = next()
  writeFileSync(file, 'version: 1 # changed\n')
  assert.deepEqual(await change, [file])

  change = next()
  writeFileSync(join(dir, '.gateway.yaml.swp'), 'version: 2\n')
  renameSync(join(dir, '.gateway.yaml.swp'), file)
  assert.deepEqual(await change, [file])

  // The watch must have survived the replacement.
  change = next()
  writeFileSync(file, 'version: 1 # again\n')
  assert.deepEqual(await change, [file])

  change = next()
  unlinkSync(file)
  assert.deepEqual(await change, [file])
  change = next()
  writeFileSync(file, 'version: 1 # back\n')
  assert.deepEqual(await change, [file])
})

test('a symbolic link swapped above the file, as container platforms do', async t => {
  const dir = folder(t)
  for (const version of ['a', 'b']) {
    mkdirSync(join(dir, version))
    writeFileSync(join(dir, version, 'gateway.yaml'), `${version}\n`)
  }
  symlinkSync('a', join(dir, '..data'))
  const file = join(dir, 'gateway.yaml')
  symlinkSync('..data/gateway.yaml', file)
  const { next } = watcher(t, [file])
  const change = next()
  symlinkSync('b', join(dir, '..new'))
  renameSync(join(dir, '..new'), join(dir, '..data'))
  assert.deepEqual(await change, [file])
})

test('a folder replaced, removed and made again, and a link swapped above it', async t => {
  const dir = folder(t)
  const write = (where: string, text: string) => {
    mkdirSync(join(dir, where), { recursive: true })
    writeFileSync(join(dir, where, 'gateway.yaml'), text)
  }
  write('conf', 'a\n')
  const file = join(dir, 'conf/gateway.yaml')
  const { next } = watcher(t, [file])
  let change = next()
  renameSync(join(dir, 'conf'), join(dir, 'old'))
  assert.deepEqual(await change, [file])
  for (const text of ['b, new\n', 'c, edited\n']) {
    change = next()
    write('conf', text)
    assert.deepEqual(await change, [file])
  }

  write('release-1', 'a\n')
  write('release-2', 'b\n')
  symlinkSync('release-1', join(dir, 'current'))
  const linked = watcher(t, [join(dir, 'current/gateway.yaml')])
  change = linked.next()
  symlinkSync('release-2', join(dir, 'next'))
  renameSync(join(dir, 'next'), join(dir, 'current'))
  assert.deepEqual(await change, [join(dir, 'current/gateway.yaml')])
})

test('included files are followed after update, other files in the folder are not', async t => {
  const dir = folder(t)
  const [main, accounts] = [join(dir, 'gateway.yaml'), join(dir, 'sub/accounts.yaml')]
  mkdirSync(join(dir, 'sub'))
  for (const file of [main, accounts]) writeFileSync(file, 'a\n')
  const { watching, next, seen } = watcher(t, [main])
  watching.update([main, accounts])
  const change = next()
  writeFileSync(join(dir, 'gateway.db'), 'noise')
  writeFileSync(accounts, 'b, and longer\n')
  assert.deepEqual(await change, [accounts])
  watching.update([main])
  const last = next()
  writeFileSync(accounts, 'unseen, and longer still\n')
  writeFileSync(main, 'seen\n')
  assert.deepEqual(await last, [main])
  assert.equal(seen.length, 2)
})

test('a directory that is not there is told, and does not stop the others', t => {
  const dir = folder(t)
  const errors: Error[] = []
  const watching = watchFiles([join(dir, 'none/x.yaml'), join(dir, 'gateway.yaml')], () => {}, {
    onError: e => errors.push(e),
  })
  watching.close()
  watching.update([join(dir, 'gateway.yaml')])
  assert.equal(errors.length, 1)
})
