/** Puts in place what the benchmarks compare with: Debian packages by apt-get, others' packages by npm into bench/.cache. Says what it could not do. */
import { spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { findProgram } from '../test/ensure-deps.ts'

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

interface Manifest {
  dependencies: Record<string, string>
  overrides?: Record<string, string>
}

/** The newest release at the time of writing; its own lock names an @hono/node-server that fails on Node 22. */
const portkey: Manifest = {
  dependencies: { '@portkey-ai/gateway': '1.15.2' },
  overrides: { '@hono/node-server': '1.13.8' },
}
const tokenizers: Manifest = {
  dependencies: { 'ai-tokenizer': '1.0.6', 'gpt-tokenizer': '4.0.0', tiktoken: '1.0.22' },
}

/** @returns the folder's `node_modules`, or undefined when npm could not install what `manifest` names */
function ensurePackages(name: string, manifest: Manifest): string | undefined {
  const cache = join(import.meta.dirname, '.cache', name)
  const modules = join(cache, 'node_modules')
  const current = join(cache, 'package.json')
  const text = `${JSON.stringify({ private: true, ...manifest }, null, 2)}\n`
  const whole = () => Object.keys(manifest.dependencies).every(each => existsSync(join(modules, each, 'package.json')))
  if (existsSync(current) && readFileSync(current, 'utf8') === text && whole()) return modules
  const wanted = Object.keys(manifest.dependencies).join(', ')
  console.error(`installing ${wanted} into bench/.cache`)
  mkdirSync(cache, { recursive: true })
  writeFileSync(current, text)
  // Peers are left out: ai-tokenizer's is an SDK that its counting does without.
  const args = ['install', '--omit=dev', '--omit=peer', '--no-audit', '--no-fund', '--ignore-scripts', '--silent']
  const { status } = spawnSync('npm', args, { cwd: cache, stdio: ['ignore', 'ignore', 'inherit'], timeout: 180_000 })
  if (status === 0 && whole()) return modules
  console.error(`! npm could not install ${wanted}`)
  return undefined
}

/** @returns the file that starts Portkey's gateway, or undefined when it can't be installed */
export function ensurePortkey(): string | undefined {
  const modules = ensurePackages('portkey', portkey)
  return modules && join(modules, '@portkey-ai', 'gateway', 'build', 'start-server.js')
}

/** @returns what imports the tokenizers that `bench:meter` runs beside ours, or undefined when they can't be installed */
export function ensureTokenizers(): ((name: string) => Promise<any>) | undefined {
  const modules = ensurePackages('tokenizers', tokenizers)
  if (modules === undefined) return undefined
  const { resolve } = createRequire(join(modules, 'none.js'))
  return name => import(pathToFileURL(resolve(name)).href)
}
