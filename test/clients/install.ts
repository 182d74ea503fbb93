/** Installs clients into folders of their own, outside of the checkout: what is there already is left as it is. */
import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { cpSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { availableParallelism, tmpdir } from 'node:os'
import { join } from 'node:path'
import { findProgram } from '../ensure-deps.ts'
import type { AgentClient, ProgramClient } from './client.ts'
import type { RealServer } from './servers.ts'

/** Where clients are kept between runs. `SLUICE_CLIENTS` names another folder. */
export const CACHE = process.env['SLUICE_CLIENTS'] ?? join(tmpdir(), 'sluice-clients')
/** Resolves and installs in seconds what pip needs minutes for. */
const UV = 'uv==0.13.9'
/** A package of npm without anything in it. */
const EMPTY = 'npm:empty-npm-package@1.0.0'
/** The day of the newest versions. A run that began before midnight hands it on to its second process. */
const TODAY = (process.env['SLUICE_CLIENTS_DAY'] ??= new Date().toISOString().slice(0, 10))
/** A client that is not installed after this many milliseconds is left out. A server may have to be compiled. */
const TIMEOUT = 1_800_000

/** Why a client cannot be installed here. */
export class NotInstalled extends Error {}

/** The program that runs a client, with the arguments that come first; its own folder of programs for the PATH. */
export interface Installed {
  readonly command: readonly string[]
  readonly path: string
  /** The version of its first package. */
  readonly version: string
}

/**
 * @param newest the newest versions of its packages, not those of the list; they are kept for a day
 * @throws NotInstalled
 */
export function install(client: ProgramClient | AgentClient | RealServer, newest = false): Installed {
  if (client.python) {
    const interpreter = 'interpreter' in client ? client.interpreter : undefined
    const bin = join(installPython(client.name, client.python, { interpreter, newest }), 'bin')
    const python = join(bin, 'python')
    const name = /^[\w.-]+/.exec(client.python[0]!)![0]
    const version = run([python, '-c', `import importlib.metadata as m; print(m.version('${name}'))`], name)
    const command =
      'command' in client ? [join(bin, client.command)] : [python, join(import.meta.dirname, client.program)]
    return { command, path: bin, version }
  }
  if (client.npm) {
    const without = 'without' in client ? client.without : undefined
    const folder = installNpm(client.name, client.npm, { newest, without })
    const bin = join(folder, 'node_modules', '.bin')
    const { version } = JSON.parse(
      readFileSync(join(folder, 'node_modules', Object.keys(client.npm)[0]!, 'package.json'), 'utf8'),
    )
    if ('command' in client) return { command: [join(bin, client.command)], path: bin, version }
    // A module finds its packages from the folder in which it is.
    for (const file of [client.program, 'kit.mjs']) cpSync(join(import.meta.dirname, file), join(folder, file))
    return { command: [process.execPath, join(folder, client.program)], path: bin, version }
  }
  const { go, program } = client as ProgramClient
  const folder = ofGo(newest)
  const [, version] = new RegExp(`^\\s${go} v(\\S+)`, 'm').exec(readFileSync(join(folder, 'go.mod'), 'utf8'))!
  return { command: [join(folder, 'program'), program], path: folder, version: version! }
}

/**
 * Installs Python packages into a virtual environment of their own.
 * @param packages with their versions, as pip takes them
 * @returns the folder of the environment
 * @throws NotInstalled
 */
export function installPython(
  name: string,
  packages: readonly string[],
  { interpreter, newest = false }: { interpreter?: string | undefined; newest?: boolean } = {},
): string {
  const wanted = newest ? packages.map(text => text.replace(/==.*/, '')) : packages
  return once(name, wanted.join(' '), newest, folder => {
    const version = interpreter === undefined ? [] : ['--no-python-downloads', '--python', interpreter]
    run([uv(), 'venv', '--quiet', ...version, folder], name)
    run([uv(), 'pip', 'install', '--quiet', '--python', join(folder, 'bin', 'python'), ...wanted], name)
  })
}

function uv(): string {
  const python = findProgram(['python3'])
  if (python === undefined) throw new NotInstalled('there is no python3: apt-get install -y python3-venv')
  const folder = once('uv', UV, false, folder => {
    run([python, '-m', 'venv', folder], 'a virtual environment (apt-get install -y python3-venv)')
    run([join(folder, 'bin', 'pip'), 'install', '--quiet', UV], UV)
  })
  return join(folder, 'bin', 'uv')
}

/**
 * Installs npm packages into a folder of their own.
 * @param without packages in whose place an empty one is installed
 * @returns the folder
 * @throws NotInstalled
 */
export function installNpm(
  name: string,
  packages: Readonly<Record<string, string>>,
  { newest = false, without }: { newest?: boolean; without?: readonly string[] | undefined } = {},
): string {
  const dependencies = newest ? Object.fromEntries(Object.keys(packages).map(name => [name, 'latest'])) : packages
  const overrides = without && Object.fromEntries(without.map(name => [name, EMPTY]))
  const manifest = JSON.stringify({ private: true, dependencies, overrides })
  return once(name, manifest, newest, folder => {
    mkdirSync(folder, { recursive: true })
    writeFileSync(join(folder, 'package.json'), manifest)
    run(['npm', 'install', '--no-audit', '--no-fund', '--silent'], name, folder)
  })
}

/** Both Go clients are one program. */
function ofGo(newest: boolean): string {
  const go = findProgram(['go'])
  if (go === undefined) throw new NotInstalled('there is no go: apt-get install -y golang-go, version 1.24 or later')
  const source = join(import.meta.dirname, 'go')
  const version = ['main.go', 'go.mod'].map(file => readFileSync(join(source, file), 'utf8')).join('')
  return once('go', version, newest, folder => {
    cpSync(source, folder, { recursive: true })
    const modules = [...version.matchAll(/^\s(\S+) v\S+$/gm)].map(([, name]) => `${name}@latest`)
    if (newest) run([go, 'get', ...modules], 'the newest Go clients', folder)
    run([go, 'build', '-o', 'program', '.'], 'the Go clients', folder)
  })
}

/** The folder of an installation, made unless this very one is there already. */
function once(name: string, packages: string, newest: boolean, make: (folder: string) => void): string {
  const what = newest ? `${packages} of ${TODAY}` : packages
  // The newest of today take the place of yesterday's.
  const last = newest ? 'newest' : createHash('sha256').update(what).digest('hex').slice(0, 10)
  const folder = join(CACHE, `${name.toLowerCase().replace(/\W+/g, '-')}-${last}`)
  const done = join(folder, '.installed')
  if (existsSync(done) && readFileSync(done, 'utf8') === what) return folder
  console.error(`installing ${name} into ${folder}`)
  rmSync(folder, { recursive: true, force: true })
  mkdirSync(CACHE, { recursive: true })
  make(folder)
  writeFileSync(done, what)
  return folder
}

/**
 * Scripts of packages that would report an installation are told not to. llama.cpp is compiled, and would take dozens of
 * processes at once.
 * @returns what the program printed
 */
function run([program, ...args]: readonly string[], what: string, cwd?: string): string {
  const env = { ...process.env, DO_NOT_TRACK: '1', LLAMA_CPP_BUILD_JOBS: String(availableParallelism()) }
  const { status, error, stdout, stderr } = spawnSync(program!, args, { cwd, env, timeout: TIMEOUT, encoding: 'utf8' })
  if (status === 0) return stdout.trim()
  const why = error?.message ?? stderr.trim().split('\n').slice(-3).join(' ')
  throw new NotInstalled(`${what} could not be installed: ${why}`)
}
