/**
 * Installs what the benchmarks compare with: Debian packages by apt-get, npm packages into bench/.cache, and what is of
 * Python or Rust beside the clients of `npm run clients`. It prints what it could not install.
 */
import { spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { CACHE, installPython, NotInstalled } from '../test/clients/install.ts'
import { findProgram } from '../test/ensure-deps.ts'

/** The Debian package of each program. */
const PACKAGES = { nginx: 'nginx-light', haproxy: 'haproxy', wrk: 'wrk', 'redis-server': 'redis-server' } as const
export type Program = keyof typeof PACKAGES

/** Installs programs that are missing, as root on Debian. @returns the programs that are still missing */
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

/**
 * The newest release of Portkey on 22 November 2026. Its own lockfile has an @hono/node-server that fails on Node 22.
 */
const portkey: Manifest = {
  dependencies: { '@portkey-ai/gateway': '1.15.2' },
  overrides: { '@hono/node-server': '1.13.8' },
}
/** The release with which the recipe of docs/clients.md is tested. */
const litellm = ['litellm[proxy]==1.106.2']
const tokenizers: Manifest = {
  dependencies: { 'ai-tokenizer': '1.0.6', 'gpt-tokenizer': '4.0.0', tiktoken: '1.0.22' },
}

/** Installs packages into bench/.cache. @returns their `node_modules` folder, or undefined when npm failed */
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
  // Peer dependencies are left out: that of ai-tokenizer is an SDK, which counting does not need.
  const args = ['install', '--omit=dev', '--omit=peer', '--no-audit', '--no-fund', '--ignore-scripts', '--silent']
  const { status } = spawnSync('npm', args, { cwd: cache, stdio: ['ignore', 'ignore', 'inherit'], timeout: 180_000 })
  if (status === 0 && whole()) return modules
  console.error(`! npm could not install ${wanted}`)
  return undefined
}

/** Installs Portkey. @returns the file that starts its gateway, or undefined when it can't be installed */
export function ensurePortkey(): string | undefined {
  const modules = ensurePackages('portkey', portkey)
  return modules && join(modules, '@portkey-ai', 'gateway', 'build', 'start-server.js')
}

/** Installs LiteLLM. @returns the program that starts its proxy, or undefined when it can't be installed */
export function ensureLitellm(): string | undefined {
  try {
    return join(installPython('litellm-proxy', litellm), 'bin', 'litellm')
  } catch (error) {
    if (!(error instanceof NotInstalled)) throw error
    console.error(`! ${error.message}`)
    return undefined
  }
}

/** The newest release of LiteLLM's namesake in Rust on 24 November 2026, with what its server needs. */
const litellmRs = ['litellm-rs', '--version', '0.9.0', '--features', 'gateway,metrics,tracing,redis,storage,sqlite']

/**
 * Builds litellm-rs, which takes a quarter of an hour and more on two cores, the first time.
 * @returns the program that starts its gateway, or undefined when it can't be built
 */
export function ensureLitellmRs(): string | undefined {
  const root = join(CACHE, 'litellm-rs')
  const program = join(root, 'bin', 'gateway')
  if (existsSync(program)) return program
  if (!findProgram(['cargo'])) {
    console.error('! litellm-rs needs cargo')
    return undefined
  }
  console.error('building litellm-rs, a quarter of an hour and more')
  const args = ['install', ...litellmRs, '--locked', '--root', root, '--quiet']
  const { status } = spawnSync('cargo', args, { stdio: ['ignore', 'ignore', 'inherit'], timeout: 7_200_000 })
  if (status === 0 && existsSync(program)) return program
  console.error('! cargo could not build litellm-rs')
  return undefined
}

/**
 * Installs the tokenizers with which `bench:meter` compares ours.
 * @returns a function that imports one by its name, or undefined when they can't be installed
 */
export function ensureTokenizers(): ((name: string) => Promise<any>) | undefined {
  const modules = ensurePackages('tokenizers', tokenizers)
  if (modules === undefined) return undefined
  const { resolve } = createRequire(join(modules, 'none.js'))
  return name => import(pathToFileURL(resolve(name)).href)
}
