/** `npm run console`: installs the console's packages when they are missing, and starts it. */
import { installPackages } from './install.ts'

try {
  installPackages(false)
} catch (error) {
  process.stderr.write(`console: ${(error as Error).message}\n`)
  process.exit(1)
}
const { main } = await import('./main.ts')
await main(process.argv.slice(2))
