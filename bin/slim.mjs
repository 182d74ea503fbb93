/**
 * Removes the headers for native addons from the packaged Node: 65 MB, a third of a production install, and Sluice
 * builds no addon. npm runs this after an install of this folder, under any Node from 18. Where it does not run
 * (`--ignore-scripts`), everything works the same.
 */
import { existsSync, readdirSync, rmSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = dirname(dirname(fileURLToPath(import.meta.url)))
// As the top of an install it has its packages below itself; as a package, mostly beside itself.
for (const modules of [join(root, 'node_modules'), dirname(root)]) {
  if (!existsSync(modules)) continue
  for (const name of readdirSync(modules)) {
    if (name.startsWith('node-linux-')) rmSync(join(modules, name, 'include'), { recursive: true, force: true })
  }
}
