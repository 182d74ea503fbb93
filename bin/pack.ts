/**
 * Makes the files that only the package of npm has: the modules as JavaScript, since Node strips no types below
 * node_modules, the types for authors of plugins, and the validators of built-in plugins. They are beside their
 * sources for as long as `npm pack` runs; git does not see them.
 *
 *   npm pack                 runs this before and after itself (`prepack` and `postpack` in package.json)
 *   --clean                  removes the files
 */
import { spawnSync } from 'node:child_process'
import { existsSync, globSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { stripTypeScriptTypes } from 'node:module'
import { dirname, join, resolve } from 'node:path'

const ROOT = dirname(import.meta.dirname)
const FOLDERS = '{admin,cli,config,core,http,meter,plugins,providers,stores,surfaces}'
/** A quoted path of a module, relative to the module that has it, with or without a leading dot. */
const PATH = /(['"])((?:\.{1,2}\/)*[\w-][\w./-]*)\.ts\1/g
const sources = globSync(`${FOLDERS}/**/*.ts`, { cwd: ROOT })
  .filter(file => !file.endsWith('.d.ts'))
  .map(file => join(ROOT, file))

/** The text with the paths of this project's modules ending in `.js`. Lines and columns stay where they are. */
function renamed(text: string, file: string): string {
  return text.replace(PATH, (whole, quote: string, path: string) =>
    existsSync(resolve(dirname(file), `${path}.ts`)) ? `${quote}${path}.js${quote}` : whole,
  )
}

/** @throws Error when the command ends with another exit code than 0 */
function run(script: string, ...args: string[]): void {
  const { status } = spawnSync(process.execPath, [...process.execArgv, script, ...args], {
    cwd: ROOT,
    stdio: 'inherit',
  })
  if (status !== 0) throw new Error(`${script} ended with ${status}`)
}

function clean(): void {
  for (const file of sources) for (const made of ['.js', '.d.ts']) rmSync(file.replace(/\.ts$/, made), { force: true })
  rmSync(join(ROOT, 'core/tools/validators/written'), { recursive: true, force: true })
}

// The tarball has the modes of these files: the same for everyone who packs.
process.umask(0o022)
clean()
if (!process.argv.includes('--clean')) {
  run('node_modules/typescript/bin/tsc', '-p', 'bin')
  for (const file of sources) {
    const declared = file.replace(/\.ts$/, '.d.ts')
    if (existsSync(declared)) writeFileSync(declared, renamed(readFileSync(declared, 'utf8'), file))
    const code = stripTypeScriptTypes(readFileSync(file, 'utf8'))
    writeFileSync(file.replace(/\.ts$/, '.js'), renamed(code, file))
  }
  run('cli/validators.js')
}
