/**
 * Changes a line of a file of the project for this process alone, as someone would who adds a dialect, a surface or a limit: what is then loaded has
 * to work without any other change. Call it before anything imports the file, so import the rest with `await import(…)`.
 */
import { registerHooks } from 'node:module'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'

const ROOT = join(import.meta.dirname, '..', '..')

/**
 * @param file from the project's root, e.g. `providers/index.ts`
 * @param from text that stands there once
 * @param to what takes its place
 * @param imports what the new text needs, as a statement
 */
export function changeLine(file: string, from: string, to: string, imports = ''): void {
  const url = pathToFileURL(join(ROOT, file)).href
  registerHooks({
    load(asked, context, nextLoad) {
      const loaded = nextLoad(asked, context)
      if (asked !== url) return loaded
      const parts = String(loaded.source).split(from)
      if (parts.length !== 2) throw new Error(`${file} has '${from}' ${parts.length - 1} times, not once`)
      return { ...loaded, source: `${imports}\n${parts.join(to)}` }
    },
  })
}
