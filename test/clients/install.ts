/** Installs clients into folders of their own, outside of the checkout: what is there already is left as it is. */
import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { cpSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { findProgram } from '../ensure-deps.ts'
import type { AgentClient, ProgramClient } from './client.ts'

/** Where clients are kept between runs. `SLUICE_CLIENTS` names another folder. */
export const CACHE = process.env['SLUICE_CLIENTS'] ?? join(tmpdir(), 'sluice-clients')
/** Resolves and installs in seconds what pip needs minutes for. */
const UV = 'uv==0.13.9'
/** A client that is not installed after this many milliseconds is left out. */
const TIMEOUT = 300_000

/** Why a client cannot be installed here. */
export class NotInstalled extends Error {}

/** The program that runs a client, with the arguments that come first; its own folder of programs for the PATH. */
export interface Installed {
  readonly command: readonly string[]
  readonly path: string
}

/** @throws NotInstalled */
export function install(client: ProgramClient | AgentClient): Installed {
  if (client.python) {
    const interpreter = 'interpreter' in client ? client.interpreter : undefined
    const bin = join(installPython(client.name, client.python, interpreter), 'bin')
    if ('command' in client) return { command: [join(bin, client.command)], path: bin }
    return { command: [join(bin, 'python'), join(import.meta.dirname, client.program)], path: bin }
  }
  if ('command' in client) {
    const bin = join(installNpm(client.name, client.npm!), 'node_modules', '.bin')
    return { command: [join(bin, client.command)], path: bin }
  }
  const folder = ofGo()
  return { command: [join(folder, 'program'), client.program], path: folder }
}

/**
 * Installs Python packages into a virtual environment of their own.
 * @param packages with their versions, as pip takes them
 * @returns the folder of the environment
 * @throws NotInstalled
 */
export function installPython(name: string, packages: readonly string[], interpreter?: string): string {
  return once(name, packages.join(' '), folder => {
    const version = interpreter === undefined ? [] : ['--no-python-downloads', '--python', interpreter]
    run([uv(), 'venv', '--quiet', ...version, folder], name)
    run([uv(), 'pip', 'install', '--quiet', '--python', join(folder, 'bin', 'python'), ...packages], name)
  })
}

function uv(): string {
  const python = findProgram(['python3'])
  if (python === undefined) throw new NotInstalled('there is no python3: apt-get install -y python3-venv')
  const folder = once('uv', UV, folder => {
    run([python, '-m', 'venv', folder], 'a virtual environment (apt-get install -y python3-venv)')
    run([join(folder, 'bin', 'pip'), 'install', '--quiet', UV], UV)
  })
  return join(folder, 'bin', 'uv')
}

/**
 * Installs npm packages into a folder of their own.
 * @returns the folder
 * @throws NotInstalled
 */
export function installNpm(name: string, packages: Readonly<Record<string, string>>): string {
  const manifest = JSON.stringify({ private: true, dependencies: packages })
  return once(name, manifest, folder => {
    mkdirSync(folder, { recursive: true })
    writeFileSync(join(folder, 'package.json'), manifest)
    run(['npm', 'install', '--no-audit', '--no-fund', '--silent'], name, folder)
  })
}

/** Both Go clients are one program. */
function ofGo(): string {
  const go = findProgram(['go'])
  if (go === undefined) throw new NotInstalled('there is no go: apt-get install -y golang-go, version 1.24 or later')
  const source = join(import.meta.dirname, 'go')
  const version = ['main.go', 'go.mod'].map(file => readFileSync(join(source, file), 'utf8')).join('')
  return once('go', version, folder => {
    cpSync(source, folder, { recursive: true })
    run([go, 'build', '-o', 'program', '.'], 'the Go clients', folder)
  })
}

/** The folder of an installation, made unless this very one is there already. */
function once(name: string, what: string, make: (folder: string) => void): string {
  const digest = createHash('sha256').update(what).digest('hex').slice(0, 10)
  const folder = join(CACHE, `${name.toLowerCase().replace(/\W+/g, '-')}-${digest}`)
  const done = join(folder, '.installed')
  if (existsSync(done)) return folder
  console.error(`installing ${name} into ${folder}`)
  rmSync(folder, { recursive: true, force: true })
  mkdirSync(CACHE, { recursive: true })
  make(folder)
  writeFileSync(done, what)
  return folder
}

function run([program, ...args]: readonly string[], what: string, cwd?: string): void {
  const { status, error, stderr } = spawnSync(program!, args, { cwd, timeout: TIMEOUT, encoding: 'utf8' })
  if (status === 0) return
  const why = error?.message ?? stderr.trim().split('\n').slice(-3).join(' ')
  throw new NotInstalled(`${what} could not be installed: ${why}`)
}
