/**
 * Runs tests under Node's runner, each file in its own process.
 *
 *   npm test                         the tests for every change: all files except the long ones
 *   npm run test:long                the long ones (*.long.test.ts: soaks, crashes, failovers, commands of docs/,
 *                                    browsers), then the files that drive a chain, with hooks forced asynchronous
 *   npm test -- test/config          files and folders, long or not
 *   npm test -- --test-name-pattern=AUTH   flags of Node's runner
 */
import { spawn } from 'node:child_process'
import { globSync, readFileSync, statSync } from 'node:fs'
import { join, relative } from 'node:path'
import { pathToFileURL } from 'node:url'
import { installPackages } from '../console/install.ts'
import { ensureDependencies } from './ensure-deps.ts'

const ROOT = join(import.meta.dirname, '..')
const STRIPPED = pathToFileURL(join(ROOT, 'bin/stripped.mjs')).href
const isLong = (file: string) => file.endsWith('.long.test.ts')
/**
 * Whether a file drives a chain: with a harness that can force hooks. Such files run twice: with hooks that answer at
 * once, and with hooks that return a promise.
 */
const drivesChain = (file: string) =>
  /^test\/(chain|e2e)\//.test(file) && !isLong(file) && !OTHER.test(file) && HARNESS.test(readFileSync(file, 'utf8'))
/** What files import that use such a harness. */
const HARNESS = /\/(harness|conversations|socket-client|faults\/table)\.ts'/
/**
 * Files in those folders whose subject is outside of a chain, so that the way in which hooks answer does not matter:
 * accounts and files, what is sent to providers, and how SDKs read what other files look at as bytes.
 */
const OTHER =
  /\/(admin|keys|own-usage|private-files|reload-accounts|rights|ship|presets|provider-auth|upstream-clients|upstream-connections|ai-sdk|\w+-sdk|sdk-\w+)\.test\.ts$/

/**
 * It waits for real clocks, three minutes and more. The runner sorts its files, and this one would be left alone at the
 * end: it runs beside the others.
 */
const WAITS = 'test/spec/specification.long.test.ts'

/** Four files run at a time: twice two cores, because many tests wait for timers and other processes. */
const CONCURRENCY = '--test-concurrency=4'
/**
 * The timeout of each test and each file, ms. It is far above the time that any takes on a busy machine, so that only a
 * test that hangs reaches it.
 */
const TIMEOUT = (long: boolean) => `--test-timeout=${long ? 900_000 : 300_000}`

const args = process.argv.slice(2)
const long = args.includes('--long')
const flags = args.filter(arg => arg.startsWith('-') && arg !== '--long')
const named = args.filter(arg => !arg.startsWith('-'))
const every = (named.length > 0 ? named : ['test', 'console/test'])
  .flatMap(path =>
    statSync(path, { throwIfNoEntry: false })?.isDirectory()
      ? globSync(`${path.replace(/\/$/, '')}/**/*.test.ts`)
      : [path],
  )
  .map(file => relative(ROOT, file))
  .sort()
const chosen = named.length > 0 ? every : every.filter(file => isLong(file) === long)
const again = long ? every.filter(drivesChain) : []

if (chosen.length + again.length === 0) {
  console.error('no test files')
  process.exit(1)
}
// Tests of docs/ and config/ look at them, too.
installPackages(true)
ensureDependencies([...chosen, ...again].map(file => join(ROOT, file)))

const whole = named.length === 0 && !long ? ' (four to five minutes on two idle cores)' : ''
const waits: string[] = named.length > 0 ? [] : chosen.filter(file => file === WAITS)
const others = chosen.filter(file => !waits.includes(file))
const runs = [run(long ? 'the long tests' : `tests${whole}`, others, {})]
if (waits.length > 0) runs.push(run('beside them, what waits', waits, {}))
let code = Math.max(...(await Promise.all(runs)))
if (again.length > 0)
  code = (await run('chains again, request hooks forced asynchronous', again, { SLUICE_FORCE_ASYNC: '1' })) || code
process.exit(code)

/** Runs Node's test runner once. @returns its exit code */
function run(title: string, files: readonly string[], env: Record<string, string>): Promise<number> {
  console.log(`\n=== ${title}: ${files.length} file${files.length === 1 ? '' : 's'}`)
  const { NODE_TEST_CONTEXT: _, ...inherited } = process.env
  const reporter = [`--test-reporter=${join(import.meta.dirname, 'reporter.ts')}`, '--test-reporter-destination=stdout']
  const child = spawn(
    process.execPath,
    ['--disable-warning=ExperimentalWarning', '--test', CONCURRENCY, TIMEOUT(long), ...reporter, ...flags, ...files],
    // Each file runs in its own process, which takes its flags from NODE_OPTIONS. Modules whose types are stripped
    // already save each of them a quarter of a second and more: all tests take an eighth less.
    {
      cwd: ROOT,
      stdio: 'inherit',
      env: { ...inherited, NODE_OPTIONS: `--disable-warning=ExperimentalWarning --import=${STRIPPED}`, ...env },
    },
  )
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.once(signal, () => child.kill(signal))
  const { promise, resolve } = Promise.withResolvers<number>()
  child.on('exit', exitCode => resolve(exitCode ?? 1))
  return promise
}
