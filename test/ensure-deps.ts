/**
 * Installs the Debian packages that tests need and that are missing: a real redis-server, a real browser, the proxies
 * of deploy/, what pages of docs/ use. Only those that a given test file names, or a helper that it imports. Where they
 * can't be installed it says what to do; tests that need them are then skipped, and say so. With
 * SLUICE_REQUIRE_PACKAGES=1, as for a release, nothing is skipped for them: the run fails.
 */
import { spawnSync } from 'node:child_process'
import { accessSync, constants, existsSync, readFileSync } from 'node:fs'
import { delimiter, dirname, join, sep } from 'node:path'

/** Debian package, and the programs of which one is enough. */
export const PACKAGES: Record<string, readonly string[]> = {
  'redis-server': ['redis-server'],
  // Without a window, which nobody would see: tests of pages take a quarter less time, and a third less CPU time.
  'chromium-headless-shell': ['chromium-headless-shell', 'chromium', 'chromium-browser', 'google-chrome'],
  haproxy: ['haproxy'],
  'nginx-light': ['nginx'],
  // Debian keeps the server itself in a folder of its version; this program comes with it.
  postgresql: ['postgres', 'pg_ctlcluster'],
  curl: ['curl'],
  python3: ['python3'],
  sqlite3: ['sqlite3'],
  // For its linter of metrics and its tester of rules.
  prometheus: ['promtool'],
}

/** The path of a program, or undefined. */
export function findProgram(names: readonly string[], path = process.env['PATH'] ?? ''): string | undefined {
  // Debian keeps servers where the PATH of a plain user does not look.
  for (const directory of [...path.split(delimiter), '/usr/bin', '/usr/sbin', '/usr/local/bin']) {
    for (const name of names) {
      const file = join(directory, name)
      try {
        accessSync(file, constants.X_OK)
        return file
      } catch {
        // Not this one.
      }
    }
  }
  return undefined
}

/** The text of a test file and of the helpers it brings along: what starts a browser or a server is often theirs. */
function textsOf(file: string, seen: Set<string>): string[] {
  // What looks like an import may stand in a text that the test writes somewhere.
  if (seen.has(file) || file === import.meta.filename || !existsSync(file)) return []
  seen.add(file)
  const text = readFileSync(file, 'utf8')
  const helpers = [...text.matchAll(/ from '(\.{1,2}\/[^']+\.ts)'/g)].map(([, path]) => join(dirname(file), path!))
  return [
    text,
    ...helpers.filter(helper => helper.includes(`${sep}test${sep}`)).flatMap(helper => textsOf(helper, seen)),
  ]
}

/** Packages that these test files, or their helpers, name. */
export function neededPackages(files: readonly string[]): string[] {
  const seen = new Set<string>()
  const texts = files.flatMap(file => textsOf(file, seen))
  return Object.keys(PACKAGES).filter(name => texts.some(text => text.includes(name)))
}

/**
 * Says what is missing.
 * @throws where all packages are required
 */
export function lack(text: string, required = process.env['SLUICE_REQUIRE_PACKAGES'] === '1'): void {
  if (required) throw new Error(`${text}; SLUICE_REQUIRE_PACKAGES=1 lets none be skipped`)
  console.error(`! ${text}`)
}

/**
 * Installs what is missing, where it can.
 * @throws where that fails and all packages are required
 */
export function ensureDependencies(files: readonly string[]): void {
  const missing = neededPackages(files).filter(name => !findProgram(PACKAGES[name]!))
  if (missing.length === 0) return
  const command = `apt-get install -y --no-install-recommends ${missing.join(' ')}`
  const skipped = `tests that need ${missing.join(' and ')} will be skipped`
  if (!findProgram(['apt-get'])) {
    lack(`${missing.join(' and ')} missing, and this system has no apt-get: install by hand; ${skipped}`)
    return
  }
  if (process.getuid?.() !== 0) {
    lack(`${missing.join(' and ')} missing; run as root: ${command}; ${skipped}`)
    return
  }
  console.log(`installing ${missing.join(' and ')} for the tests`)
  // RUNLEVEL=1 keeps the package from starting its own server: tests start theirs.
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive', RUNLEVEL: '1' }
  const run = (line: string) =>
    spawnSync(line, { shell: true, stdio: ['ignore', 'ignore', 'inherit'], env }).status === 0
  const installed = run(command) || (run('apt-get update') && run(command))
  if (!installed) lack(`could not run: ${command}; ${skipped}`)
}

if (process.argv[1] === import.meta.filename) ensureDependencies(process.argv.slice(2))
