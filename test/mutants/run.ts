/**
 * Changes the code at random places, one at a time, and looks whether the tests notice: those of the folders that
 * CONTRIBUTING.md names for the room, less test/e2e and the long ones.
 *
 *   npm run mutants                              20 mutants
 *   npm run mutants -- --seed 7 --count 5        those of another seed, which is printed
 *   npm run mutants -- --only stores/limits      of this folder or file alone; may come several times
 *   npm run mutants -- --list                    draws them and runs nothing
 *
 * It works on a copy of the tree in a temporary folder and never on the checkout. Tests that fail without a mutant are
 * named and left out. A survivor is a place for a test, or code that makes no difference: read it. The exit code is 0
 * also when there are some.
 */
import { execFileSync, spawn } from 'node:child_process'
import { cpSync, existsSync, globSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { draw, type Mutant, mutantsOf, withMutant } from './mutations.ts'

const ROOT = join(import.meta.dirname, '../..')
/** What mutants are drawn from, unless `--only` says otherwise. */
const PLACES = ['core', 'stores/limits', 'plugins/upstream', 'providers']
/** A run that takes longer is ended, and its mutant counts as noticed: it made something wait for ever. */
const MOST_MS = 600_000

const { values } = parseArgs({
  options: {
    seed: { type: 'string', default: String(Date.now() % 100_000) },
    count: { type: 'string', default: '20' },
    only: { type: 'string', multiple: true, default: PLACES },
    list: { type: 'boolean', default: false },
  },
})
const count = Math.min(1000, Number(values.count))

/** The files that a change in a folder of the root should be noticed by. */
function testsFor(room: string): string[] {
  const row = readFileSync(join(ROOT, 'CONTRIBUTING.md'), 'utf8')
    .split('\n')
    .find(line => line.startsWith(`| \`${room}/\` |`))
  if (!row) throw new Error(`CONTRIBUTING.md names no tests for ${room}/`)
  const folders = [...row.matchAll(/`(test\/[\w-]+|console\/test)`/g)].map(([, folder]) => folder!)
  return folders
    .filter(folder => folder !== 'test/e2e')
    .flatMap(folder => globSync(`${folder}/**/*.test.ts`, { cwd: ROOT }))
    .filter(file => !file.endsWith('.long.test.ts'))
    .sort()
}

const sources = values.only.flatMap(place =>
  place.endsWith('.ts') ? [place] : globSync(`${place}/**/*.ts`, { cwd: ROOT }).sort(),
)
const all = mutantsOf(ROOT, sources)
const drawn = draw(all, Number(values.seed), count)
console.log(`seed ${values.seed}: ${drawn.length} of ${all.length} mutants of ${values.only.join(', ')}`)

const words = ({ file, line, was, text }: Mutant) => `${file}:${line}  ${short(was)}  →  ${short(text)}`
const short = (text: string) => {
  const line = text.replace(/\s+/g, ' ')
  return line.length <= 60 ? line : `${line.slice(0, 57)}…`
}

if (values.list) {
  for (const mutant of drawn) console.log(words(mutant))
} else {
  const copy = mkdtempSync(join(tmpdir(), 'sluice-mutants-'))
  process.once('exit', () => rmSync(copy, { recursive: true, force: true, maxRetries: 5 }))
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(1))
  await tryAll(copy)
}

async function tryAll(copy: string): Promise<void> {
  const files = execFileSync('git', ['ls-files', '-co', '--exclude-standard'], { cwd: ROOT, encoding: 'utf8' })
  for (const file of files.split('\n'))
    if (file !== '' && existsSync(join(ROOT, file))) cpSync(join(ROOT, file), join(copy, file))
  for (const folder of ['node_modules', 'console/node_modules']) symlinkSync(join(ROOT, folder), join(copy, folder))

  const sound = new Map<string, string[]>()
  const survivors: Mutant[] = []
  for (const [i, mutant] of drawn.entries()) {
    const room = mutant.file.split('/')[0]!
    let tests = sound.get(room)
    if (!tests) {
      tests = testsFor(room)
      const { failed } = await run(copy, tests)
      if (failed.length > 0) console.log(`left out, since they fail without a mutant: ${failed.join(', ')}`)
      tests = tests.filter(test => !failed.includes(test))
      sound.set(room, tests)
    }
    const path = join(copy, mutant.file)
    const text = readFileSync(path, 'utf8')
    let result: Result
    try {
      writeFileSync(path, withMutant(text, mutant))
      result = await run(copy, tests)
    } finally {
      writeFileSync(path, text)
    }
    if (result.passed) survivors.push(mutant)
    const by = result.failed[0] ?? (result.passed ? '' : 'a run that did not end well')
    console.log(`${i + 1}/${drawn.length} ${result.passed ? 'SURVIVED' : 'noticed '}  ${words(mutant)}  ${by}`)
  }
  console.log(`\n${survivors.length} of ${drawn.length} survived, with seed ${values.seed}`)
  for (const mutant of survivors) console.log(words(mutant))
}

interface Result {
  passed: boolean
  failed: string[]
}

/** Runs tests in the copy. All that they started is ended with them. */
async function run(copy: string, tests: readonly string[]): Promise<Result> {
  const { NODE_TEST_CONTEXT: _, NODE_OPTIONS: __, ...env } = process.env
  const args = ['bin/sluice.mjs', '--run', 'test/run.ts', ...tests]
  const child = spawn(process.execPath, args, { cwd: copy, env, detached: true, stdio: ['ignore', 'pipe', 'ignore'] })
  const end = () => {
    try {
      process.kill(-child.pid!, 'SIGKILL')
    } catch {
      // It has ended.
    }
  }
  const timer = setTimeout(end, MOST_MS)
  // Before the copy is removed, which the tests may still write to.
  process.prependOnceListener('exit', end)
  let printed = ''
  for await (const piece of child.stdout.setEncoding('utf8')) printed += piece
  const code = child.exitCode ?? (await new Promise<number | null>(resolve => child.once('exit', resolve)))
  clearTimeout(timer)
  process.removeListener('exit', end)
  end()
  const failed = [...new Set([...printed.matchAll(/^✖ (test\/\S+\.test\.ts)/gm)].map(([, file]) => file!))]
  return { passed: code === 0, failed }
}
