/**
 * Loads files of plugins and dialects, wherever they are. In such a file `import 'sluice'` means this gateway's
 * core/plugin.ts. The URL of the file carries the generation of the configuration that loaded it, so that a reload loads
 * the file and its own imports again (decision 39). Modules of old generations stay in memory: Node's module cache has no way to drop them.
 */
import { readFileSync, statSync } from 'node:fs'
import { findPackageJSON, registerHooks } from 'node:module'
import { basename, extname, join, sep } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import type { Plugin } from '../core/plugin.ts'
import type { Dialect } from '../core/ports/dialect.ts'

const ROOT = fileURLToPath(new URL('..', import.meta.url))
/**
 * Folders of the gateway's own modules. Their URLs never get a generation: a second copy of core/ would have its own
 * slots and error classes, which the first copy does not recognise.
 */
const OWN = [
  'core',
  'http',
  'config',
  'surfaces',
  'plugins',
  'providers',
  'meter',
  'stores',
  'admin',
  'cli',
  'node_modules',
].map(dir => join(ROOT, dir) + sep)
/** The names that plugin files may import, with the URLs of their modules: the `exports` of package.json. */
const NAMES: Record<string, string> = exportsOf(join(ROOT, 'package.json'))
const STAMP = 'generation'
/** Before the name of a package of npm. */
const PACKAGE = 'npm:'
/** Between the name of a package and the URL of the folder from which it is resolved. */
const FROM = '?from='
const FORMATS: Record<string, string> = {
  '.ts': 'module-typescript',
  '.mts': 'module-typescript',
  '.js': 'module',
  '.mjs': 'module',
}

/** package.json names the modules of the package, which are JavaScript. A checkout has them in TypeScript. */
function exportsOf(file: string): Record<string, string> {
  const { name, exports } = JSON.parse(readFileSync(file, 'utf8')) as {
    name: string
    exports: Record<string, { default: string }>
  }
  const own = extname(import.meta.filename)
  const targets = Object.entries(exports).map(([key, { default: path }]) => [
    name + key.slice(1),
    pathToFileURL(join(ROOT, path.replace(/\.js$/, own))).href,
  ])
  return Object.fromEntries(targets)
}

/** Whether an optional package is installed with this gateway. */
export function isInstalled(name: string): boolean {
  try {
    return findPackageJSON(name, import.meta.url) !== undefined
  } catch {
    return false
  }
}

/** The command that installs optional packages, in the versions that this gateway is tested with. */
export function installCommand(packages: readonly string[]): string {
  const { peerDependencies } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'))
  const versions = packages.map(name => `${name}@${peerDependencies[name]}`)
  // They are development dependencies too, which `--omit=dev` leaves out unless they are asked for as others.
  return `npm install --omit=dev --save-prod --no-save ${versions.join(' ')}`
}

/**
 * The operator's files that the last generation imported in this thread: plugins and what they import, found or not.
 */
const imported = { generation: '', files: new Set<string>() }

/** @returns absolute paths; an edit of such a file is an edit of the configuration */
export const importedFiles = (): string[] => [...imported.files]

function note(path: string, generation: string): void {
  if (generation !== imported.generation) Object.assign(imported, { generation, files: new Set() })
  imported.files.add(path)
}

let registered = false

/**
 * Installs Node's module hooks, once in a process. After that, `sluice`, `sluice/dialect` and `sluice/testing` can be
 * imported from any folder.
 */
export function registerPluginHooks(): void {
  if (registered) return
  registered = true
  registerHooks({
    resolve(specifier, context, next) {
      const generation = context.parentURL?.startsWith('file:')
        ? new URL(context.parentURL).searchParams.get(STAMP)
        : null
      const own = NAMES[specifier]
      if (own !== undefined) return { url: own, format: FORMATS[extname(own)], shortCircuit: true }
      if (specifier.startsWith(PACKAGE)) {
        const [name, parentURL] = specifier.slice(PACKAGE.length).split(FROM) as [string, string]
        return next(name, { ...context, parentURL })
      }
      const resolved = next(specifier, context)
      if (generation === null || !resolved.url.startsWith('file:')) return resolved
      return stamp(resolved.url, generation, resolved.format)
    },
  })
}

function stamp(url: string, generation: string, format: string | null | undefined) {
  const target = new URL(url)
  const path = fileURLToPath(target)
  if (path.includes(`${sep}node_modules${sep}`) || OWN.some(dir => path.startsWith(dir)))
    return { url, format, shortCircuit: true }
  note(path, generation)
  target.searchParams.set(STAMP, generation)
  // Without a package.json beside the file, Node would have to guess the format, and print a warning.
  return { url: target.href, format: format ?? FORMATS[extname(path)], shortCircuit: true }
}

/**
 * Where an entry of `plugins:` is loaded from.
 * @param entry a path, or `npm:NAME` for a package
 * @param resolvePath makes a path absolute, as seen from the file that names it
 * @returns an absolute path, or the package with the folder from which it is resolved
 */
export function pluginPlace(entry: string, resolvePath: (path: string) => string): string {
  if (!entry.startsWith(PACKAGE)) return resolvePath(entry)
  return entry + FROM + pathToFileURL(resolvePath('.') + sep).href
}

/**
 * The name by which pipelines know the plugin of a path or of an entry of `plugins:`: that of the file without its
 * extension, or that of the package without its scope and without `sluice-plugin-`.
 */
export function pluginName(path: string): string {
  if (!path.startsWith(PACKAGE)) return basename(path, extname(path))
  const [name] = path.slice(PACKAGE.length).split(FROM) as [string]
  return name.replace(/^@[^/]*\//, '').replace(/^sluice-plugin-/, '')
}

/**
 * Imports a plugin or a dialect and returns it: the default export, the export named `plugin`, or the only export that is
 * one.
 * @param path as `pluginPlace` returns it. A package is loaded once in a process, as Node does with packages
 * @throws Error that says what is wrong with the file or package
 */
export async function loadOwnFile(path: string, generation: number): Promise<Plugin | Dialect> {
  registerPluginHooks()
  if (path.startsWith(PACKAGE)) return pick(await importPackage(path), pluginName(path))
  const extension = extname(path)
  if (!FORMATS[extension]) throw new Error(`a plugin file ends in ${Object.keys(FORMATS).join(', ')}`)
  if (path.includes(`${sep}node_modules${sep}`) && extension.endsWith('ts')) {
    throw new Error('Node does not run TypeScript inside node_modules; keep the file elsewhere')
  }
  const url = pathToFileURL(path)
  // A file of the gateway's own does not change while it runs: it is loaded once.
  const own = OWN.some(dir => path.startsWith(dir))
  if (!own) note(path, String(generation))
  if (!statSync(path, { throwIfNoEntry: false })?.isFile())
    throw new Error('there is no such file; the path is relative to the file that names it')
  url.searchParams.set(STAMP, String(own ? 0 : generation))
  let module: Record<string, unknown>
  try {
    module = (await import(url.href)) as Record<string, unknown>
  } catch (cause) {
    throw new Error(importFault(cause, path), { cause })
  }
  return pick(module, pluginName(path))
}

/**
 * The same for a file that is known to be one of a plugin.
 * @throws Error as above
 */
export async function loadPluginFile(path: string, generation: number): Promise<Plugin> {
  const found = await loadOwnFile(path, generation)
  if (isDialect(found)) throw new Error(`it exports the dialect '${found.name}', and no plugin`)
  return found
}

async function importPackage(path: string): Promise<Record<string, unknown>> {
  const [name] = path.slice(PACKAGE.length).split(FROM) as [string]
  try {
    return (await import(path)) as Record<string, unknown>
  } catch (cause) {
    const { code, message } = cause as NodeJS.ErrnoException
    if (code !== 'ERR_MODULE_NOT_FOUND' || !message.includes(`'${name}'`)) throw new Error(message, { cause })
    throw new Error(
      `the package is not installed in the folder of the file that names it; run \`npm install ${name}\``,
      {
        cause,
      },
    )
  }
}

function importFault(cause: unknown, path: string): string {
  if (!(cause instanceof Error)) return String(cause)
  const message = cause.message.replaceAll(/\?generation=\d+/g, '')
  // The author of the plugin needs the line in this file, not the place in the module loader.
  const frame = new RegExp(
    `${basename(path).replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&')}(?:\\?generation=\\d+)?:(\\d+)(?::(\\d+))?`,
  ).exec(cause.stack ?? '')
  return frame ? `${message} (${basename(path)}:${frame[1]})` : message
}

function pick(module: Record<string, unknown>, name: string): Plugin | Dialect {
  const found = module['default'] ?? module['plugin'] ?? only(Object.values(module).filter(isEither))
  if (!isEither(found)) {
    throw new Error(
      'it exports no plugin and no dialect; write `export default definePlugin({ name, summary, create })`, or `export default defineDialect({ name, … })`',
    )
  }
  if (found.name !== name) {
    throw new Error(
      `the ${isDialect(found) ? 'dialect' : 'plugin'} is named '${found.name}' and its file or package '${name}'; it has one name everywhere, so rename one of them`,
    )
  }
  return found
}

function only<T extends { name: string }>(found: T[]): T | undefined {
  if (found.length > 1) {
    throw new Error(`it exports ${found.length} plugins (${found.map(p => p.name).join(', ')}); one a file`)
  }
  return found[0]
}

/** Whether what a file exports is a dialect, and no plugin. */
export function isDialect(value: unknown): value is Dialect {
  const dialect = value as Partial<Dialect> | null
  return (
    typeof dialect === 'object' &&
    dialect !== null &&
    typeof dialect.name === 'string' &&
    typeof dialect.request === 'function' &&
    typeof dialect.decoder === 'function'
  )
}

const isEither = (value: unknown): value is Plugin | Dialect => isPlugin(value) || isDialect(value)

function isPlugin(value: unknown): value is Plugin {
  const plugin = value as Partial<Plugin> | null
  return (
    typeof plugin === 'object' &&
    plugin !== null &&
    typeof plugin.name === 'string' &&
    typeof plugin.create === 'function'
  )
}
