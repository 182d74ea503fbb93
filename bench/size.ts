/**
 * `npm run size`: shows how large an install is, in MB (2^20 bytes) as `du` counts them, and its largest packages. It
 * installs into a temporary folder from the lockfile: the gateway's as on a server (`npm ci --omit=dev`), the console's
 * in the same way, and the gateway's with everything. The exit code is 1 when a size is above its bound.
 */
import { spawnSync } from 'node:child_process'
import { cpSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'

const ROOT = dirname(import.meta.dirname)
const INSTALLS = [
  { name: 'production', of: '.', flags: ['--omit=dev'], bound: 150 },
  { name: 'console', of: 'console', flags: ['--omit=dev'], bound: 60 },
  { name: 'development', of: '.', flags: [], bound: 450 },
]

/** The sizes of folders in MB, largest first. */
function sizes(cwd: string, pattern: string): { mb: number; path: string }[] {
  const { stdout } = spawnSync('sh', ['-c', `du -sk ${pattern}`], { cwd, encoding: 'utf8' })
  const lines = stdout.split('\n').filter(Boolean)
  return lines
    .map(line => ({ mb: Number(line.split('\t')[0]) / 1024, path: line.split('\t')[1]! }))
    .sort((a, b) => b.mb - a.mb)
}

for (const { name, of, flags, bound } of INSTALLS) {
  const dir = mkdtempSync(join(tmpdir(), 'sluice-size-'))
  try {
    mkdirSync(join(dir, 'bin'))
    cpSync(join(ROOT, 'bin/slim.mjs'), join(dir, 'bin/slim.mjs'))
    for (const file of ['package.json', 'package-lock.json', '.npmrc']) cpSync(join(ROOT, of, file), join(dir, file))
    const { status } = spawnSync('npm', ['ci', ...flags, '--prefer-offline', '--silent'], {
      cwd: dir,
      stdio: 'inherit',
    })
    if (status !== 0) throw new Error(`npm ci ${flags.join(' ')} ended with ${status}`)
    const { mb } = sizes(dir, 'node_modules')[0]!
    console.log(`${name}: ${mb.toFixed(0)} MB (bound ${bound})`)
    for (const part of sizes(dir, 'node_modules/[!@]* node_modules/@*/*').slice(0, 8)) {
      console.log(`  ${part.mb.toFixed(0).padStart(4)}  ${part.path.slice('node_modules/'.length)}`)
    }
    if (mb > bound) process.exitCode = 1
  } finally {
    rmSync(dir, { recursive: true, force: true })
  }
}
