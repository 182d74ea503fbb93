/**
 * Loads plugin files, wherever they are. In such a file `import 'sluice'` means this gateway's core/plugin.ts. The URL
 * of the file carries the generation of the configuration that loaded it, so that a reload loads a plugin and its own
 * imports again (decision 39). Modules of old generations stay in memory: Node's module cache has no way to drop them.
 */
import { readFileSync, statSync } from 'node:fs'
import { registerHooks } from 'node:module'
import { basename, extname, join, sep } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import type { Plugin } from '../core/plugin.ts'

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
const FORMATS: Record<string, string> = {
  '.ts': 'module-typescript',
  '.mts': 'module-typescript',
  '.js': 'module',
  '.mjs': 'module',
}

function exportsOf(file: string): Record<string, string> {
  const { name, exports } = JSON.parse(readFileSync(file, 'utf8')) as { name: string; exports: Record<string, string> }
  const targets = Object.entries(exports).map(([key, path]) => [
    name + key.slice(1),
    pathToFileURL(join(ROOT, path)).href,
  ])
  return Object.fromEntries(targets)
}

let registered = false

/**
 * Installs Node's module hooks, once in a process. After that, `sluice` and `sluice/testing` can be imported from any
 * folder.
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
      if (own !== undefined) return { url: own, format: 'module-typescript', shortCircuit: true }
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
  target.searchParams.set(STAMP, generation)
  // Without a package.json beside the file, Node would have to guess the format, and print a warning.
  return { url: target.href, format: format ?? FORMATS[extname(path)], shortCircuit: true }
}

/**
 * Imports a plugin file and returns its plugin: the default export, the export named `plugin`, or the only export that
 * is a plugin.
 * @throws Error that says what is wrong with the file
 */
export async function loadPluginFile(path: string, generation: number): Promise<Plugin> {
  const extension = extname(path)
  if (!FORMATS[extension]) throw new Error(`a plugin file ends in ${Object.keys(FORMATS).join(', ')}`)
  if (path.includes(`${sep}node_modules${sep}`) && extension.endsWith('ts')) {
    throw new Error('Node does not run TypeScript inside node_modules; keep the file elsewhere')
  }
  if (!statSync(path, { throwIfNoEntry: false })?.isFile())
    throw new Error('there is no such file; the path is relative to the file that names it')
  registerPluginHooks()
  const url = pathToFileURL(path)
  url.searchParams.set(STAMP, String(generation))
  let module: Record<string, unknown>
  try {
    module = (await import(url.href)) as Record<string, unknown>
  } catch (cause) {
    throw new Error(importFault(cause, path), { cause })
  }
  return pick(module, basename(path, extension))
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

function pick(module: Record<string, unknown>, fileName: string): Plugin {
  const found = module['default'] ?? module['plugin'] ?? only(Object.values(module).filter(isPlugin))
  if (!isPlugin(found)) {
    throw new Error('it exports no plugin; write `export default definePlugin({ name, summary, create })`')
  }
  if (found.name !== fileName) {
    throw new Error(
      `the plugin is named '${found.name}' and its file '${fileName}'; a plugin has one name everywhere, so rename one of them`,
    )
  }
  return found
}

function only(plugins: Plugin[]): Plugin | undefined {
  if (plugins.length > 1) {
    throw new Error(`it exports ${plugins.length} plugins (${plugins.map(p => p.name).join(', ')}); one plugin a file`)
  }
  return plugins[0]
}

function isPlugin(value: unknown): value is Plugin {
  const plugin = value as Partial<Plugin> | null
  return (
    typeof plugin === 'object' &&
    plugin !== null &&
    typeof plugin.name === 'string' &&
    typeof plugin.create === 'function'
  )
}
