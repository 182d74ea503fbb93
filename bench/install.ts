/** Puts in place what the benchmarks compare with: Debian packages by apt-get, Portkey by npm into bench/.cache. Says what it could not do. */
import { spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { findProgram } from '../scripts/ensure-deps.ts'

/** Debian package by program. */
const PACKAGES = { nginx: 'nginx-light', haproxy: 'haproxy', wrk: 'wrk', 'redis-server': 'redis-server' } as const
export type Program = keyof typeof PACKAGES

/** @returns the programs that are still missing */
export function ensurePrograms(wanted: Iterable<Program>): Set<Program> {
  const missing = () => new Set([...wanted].filter(name => !findProgram([name])))
  const before = missing()
  if (before.size === 0) return before
  const packages = [...before].map(name => PACKAGES[name]).join(' ')
  const command = `apt-get install -y --no-install-recommends ${packages}`
  if (!findProgram(['apt-get']) || process.getuid?.() !== 0) {
    console.error(`! ${packages} missing; as root on Debian: ${command}`)
    return before
  }
  console.error(`installing ${packages}`)
  // RUNLEVEL=1 keeps a package from starting its own server.
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive', RUNLEVEL: '1' }
  const run = (line: string) =>
    spawnSync(line, { shell: true, stdio: ['ignore', 'ignore', 'inherit'], env, timeout: 180_000 }).status === 0
  if (!run(command) && !(run('apt-get update') && run(command))) console.error(`! could not run: ${command}`)
  return missing()
}

const cache = join(import.meta.dirname, '.cache', 'portkey')
/** The newest release at the time of writing; its own lock names an @hono/node-server that fails on Node 22. */
const manifest = `${JSON.stringify(
  {
    private: true,
    dependencies: { '@portkey-ai/gateway': '1.15.2' },
    overrides: { '@hono/node-server': '1.13.8' },
  },
  null,
  2,
)}\n`

/** @returns the file that starts Portkey's gateway, or undefined when it can't be installed */
export function ensurePortkey(): string | undefined {
  const file = join(cache, 'node_modules', '@portkey-ai', 'gateway', 'build', 'start-server.js')
  const current = join(cache, 'package.json')
  if (existsSync(file) && existsSync(current) && readFileSync(current, 'utf8') === manifest) return file
  console.error('installing @portkey-ai/gateway into bench/.cache')
  mkdirSync(cache, { recursive: true })
  writeFileSync(current, manifest)
  const args = ['install', '--omit=dev', '--no-audit', '--no-fund', '--ignore-scripts', '--silent']
  const { status } = spawnSync('npm', args, { cwd: cache, stdio: ['ignore', 'ignore', 'inherit'], timeout: 180_000 })
  if (status === 0 && existsSync(file)) return file
  console.error('! npm could not install @portkey-ai/gateway')
  return undefined
}
