/**
 * Changes one line of a project file, in this process only, like a developer who adds a dialect, a surface or a limit.
 * The project must then work without any other change. Call it before anything imports the file; so import everything
 * else with `await import(…)`.
 */
import { registerHooks } from 'node:module'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'

const ROOT = join(import.meta.dirname, '..', '..')

/**
 * @param file path from the project's root, e.g. `providers/index.ts`
 * @param from a text that occurs in the file exactly once
 * @param to the text that replaces it
 * @param imports an import statement that the new text needs
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
