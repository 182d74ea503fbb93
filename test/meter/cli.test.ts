import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { countTokens } from '../../meter/index.ts'

const script = `import { runTokens } from '${new URL('../../meter/cli.ts', import.meta.url).href}'
process.exitCode = await runTokens(process.argv.slice(1))`

function run(args: string[], input = '') {
  return spawnSync(process.execPath, [...process.execArgv, '--input-type=module', '-e', script, '--', ...args], {
    encoding: 'utf8',
    input,
    timeout: 120_000,
  })
}

test('sluice tokens counts standard input and files, and shows pieces', t => {
  const directory = mkdtempSync(join(tmpdir(), 'meter-'))
  t.after(() => rmSync(directory, { recursive: true }))
  const file = join(directory, 'text')
  const text = 'héllo 的 world 🫠\n'
  writeFileSync(file, text)

  const counted = run([file])
  assert.equal(counted.stdout, `${countTokens(text)}\n`)
  assert.equal(counted.status, 0)
  assert.equal(run([], text).stdout, counted.stdout)
  assert.equal(run(['-'], '').stdout, '0\n')

  const lines = run([file, '--pieces']).stdout.trimEnd().split('\n')
  assert.equal(lines.length, countTokens(text))
  assert.deepEqual(lines.slice(0, 2), ['79163\t"hé"', '72807\t"llo"'])
  assert.match(lines.at(-2)!, /^\d+\t[0-9a-f]{2,}$/)
})

test('sluice tokens explains itself, and what went wrong', () => {
  const help = run(['--help'])
  assert.match(help.stdout, /^Usage: sluice tokens/)
  assert.equal(help.status, 0)
  const wrong = run(['--piece'])
  assert.match(wrong.stderr, /--piece/)
  assert.equal(wrong.status, 2)
  const missing = run(['no-such-file'])
  assert.match(missing.stderr, /no-such-file/)
  assert.equal(missing.status, 1)
  assert.equal(run(['a', 'b']).status, 2)
})
