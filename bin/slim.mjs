/**
 * Removes what no install of Sluice uses from packages that are large because of it: from the packaged Node its headers
 * for native addons (65 MB, a third of a production install), manual pages and changelog; from a package below
 * prom-client its test data. npm runs this after an install, under any Node from 18. Where it does not run
 * (`--ignore-scripts`), everything works the same.
 */
import { existsSync, readdirSync, rmSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const OF_NODE = ['include', 'share', 'CHANGELOG.md']
const root = dirname(dirname(fileURLToPath(import.meta.url)))
// As the top of an install it has its packages below itself; as a package, mostly beside itself.
for (const modules of [join(root, 'node_modules'), dirname(root)]) {
  if (!existsSync(modules)) continue
  for (const name of readdirSync(modules)) {
    const unused = name.startsWith('node-linux-') ? OF_NODE : name === 'bintrees' ? ['test'] : []
    for (const part of unused) rmSync(join(modules, name, part), { recursive: true, force: true })
  }
}
