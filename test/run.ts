/**
 * Runs every test: `npm test`. The suites that drive a chain run a second time with every request hook answering through a promise, so that both ways through a
 * chain are one suite's (SLUICE_FORCE_ASYNC).
 *
 *   npm test                         everything
 *   npm test -- test/config          files and folders
 *   npm test -- --test-name-pattern=AUTH   flags of Node's runner
 */
import { spawn } from 'node:child_process'
import { globSync, statSync } from 'node:fs'
import { join, relative } from 'node:path'
import { ensureDependencies } from '../scripts/ensure-deps.ts'

const ROOT = join(import.meta.dirname, '..')
/** Folders whose tests run both ways. */
const TWICE = ['test/chain/', 'test/e2e/']
/** But these: what they test lies around a chain, and how its hooks answer is nothing to them. */
const ONCE = ['admin', 'crash', 'dead-peer', 'keys', 'shared-store', 'store-failures', 'workers'].map(
  name => `test/e2e/${name}.test.ts`,
)

/** Files at a time: one more than two cores, since many wait for clocks and other processes. */
const CONCURRENCY = '--test-concurrency=3'

const flags = process.argv.slice(2).filter(arg => arg.startsWith('-'))
const named = process.argv.slice(2).filter(arg => !arg.startsWith('-'))
const files = (named.length > 0 ? named : ['test']).flatMap(path => {
  const stat = statSync(path, { throwIfNoEntry: false })
  return stat?.isDirectory() ? globSync(`${path.replace(/\/$/, '')}/**/*.test.ts`) : [path]
})
const sorted = files.map(file => relative(ROOT, file)).sort()
if (sorted.length === 0) {
  console.error('no test files')
  process.exit(1)
}

ensureDependencies(sorted.map(file => join(ROOT, file)))

let code = await run('every test', sorted, {})
const twice = sorted.filter(file => TWICE.some(folder => file.startsWith(folder)) && !ONCE.includes(file))
if (twice.length > 0)
  code =
    (await run('chain suites again, request hooks forced asynchronous', twice, { SLUICE_FORCE_ASYNC: '1' })) || code
process.exit(code)

/** One run of Node's test runner. @returns its exit code */
function run(title: string, these: readonly string[], env: Record<string, string>): Promise<number> {
  console.log(`\n=== ${title}: ${these.length} file${these.length === 1 ? '' : 's'}`)
  const { NODE_TEST_CONTEXT: _, ...inherited } = process.env
  const reporter = [
    '--test-reporter',
    join(import.meta.dirname, 'reporter.ts'),
    '--test-reporter-destination',
    'stdout',
  ]
  const child = spawn(
    process.execPath,
    ['--disable-warning=ExperimentalWarning', '--test', CONCURRENCY, ...reporter, ...flags, ...these],
    // Each file is a process of its own, and takes its flags from here.
    {
      cwd: ROOT,
      stdio: 'inherit',
      env: { ...inherited, NODE_OPTIONS: '--disable-warning=ExperimentalWarning', ...env },
    },
  )
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.once(signal, () => child.kill(signal))
  const { promise, resolve } = Promise.withResolvers<number>()
  child.on('exit', exitCode => resolve(exitCode ?? 1))
  return promise
}
