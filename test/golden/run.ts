/**
 * Compares everything that is recorded: `npm run test:golden`.
 *
 *   npm run test:golden -- refusals          the books whose name has this word
 *   npm run test:golden -- --update          records anew; a commit of its own says why
 */
import { spawnSync } from 'node:child_process'
import { join } from 'node:path'

const ROOT = join(import.meta.dirname, '..', '..')
const args = process.argv.slice(2)
const book = args.find(arg => !arg.startsWith('-'))
const files = ['golden.test.ts', 'commands.long.test.ts'].map(name => join('test', 'golden', name))
const { status } = spawnSync(
  process.execPath,
  [join(ROOT, 'bin', 'sluice.mjs'), '--run', join(ROOT, 'test', 'run.ts'), ...files],
  {
    cwd: ROOT,
    stdio: 'inherit',
    env: {
      ...process.env,
      ...(book !== undefined && { GOLDEN_BOOK: book }),
      ...(args.includes('--update') && { GOLDEN_UPDATE: '1' }),
    },
  },
)
process.exit(status ?? 1)
