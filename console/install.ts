/** Whether the packages of console/ are installed as its lockfile says, and their installation. Knows node: alone. */
import { spawnSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

const FOLDER = import.meta.dirname

interface Lock {
  packages: Record<string, { version?: string; optional?: boolean; dev?: boolean }>
}

/**
 * The packages that are missing, or are there in another version than the lockfile has.
 * @param types also those that only checks of types need
 */
export function missingPackages(types: boolean, folder = FOLDER): string[] {
  const read = (file: string): Lock => JSON.parse(readFileSync(join(folder, file), 'utf8'))
  // npm notes here what it has installed.
  const note = 'node_modules/.package-lock.json'
  const installed = existsSync(join(folder, note)) ? read(note).packages : {}
  return Object.entries(read('package-lock.json').packages)
    .filter(([path, { optional, dev }]) => path !== '' && !optional && (types || !dev))
    .filter(([path, { version }]) => installed[path]?.version !== version)
    .map(([path]) => path.slice(path.lastIndexOf('node_modules/') + 'node_modules/'.length))
}

/** Installs what is missing, by the lockfile. @param types as above @throws Error when npm cannot */
export function installPackages(types: boolean, folder = FOLDER): void {
  if (missingPackages(types, folder).length === 0) return
  process.stderr.write('installing the packages of console/ (once, some 50 MB)\n')
  const { status } = spawnSync('npm', ['ci', '--silent', '--no-audit', '--no-fund', '--prefix', folder], {
    stdio: ['ignore', 'ignore', 'inherit'],
  })
  if (status !== 0) throw new Error('npm could not install the packages; try by hand: npm ci --prefix console')
}

if (process.argv[1] === import.meta.filename) installPackages(true)
