/**
 * Changes one line of a project file, in this process only, like a developer who adds a dialect, a surface or a limit.
 * The project must then work without any other change. Call it before anything imports the file; so import everything
 * else with `await import(…)`.
 */
import { readFileSync } from 'node:fs'
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
      if (asked !== url) return nextLoad(asked, context)
      const parts = readFileSync(join(ROOT, file), 'utf8').split(from)
      if (parts.length !== 2) throw new Error(`${file} has '${from}' ${parts.length - 1} times, not once`)
      return { format: 'module-typescript', source: `${imports}\n${parts.join(to)}`, shortCircuit: true }
    },
  })
}
