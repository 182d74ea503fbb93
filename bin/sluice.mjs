#!/usr/bin/env node
import { spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
/*
 * The launcher. It runs under any Node from 18 and starts the gateway under Node 22: the Node that runs if it is that
 * version, else the binary that npm installed (decision 37). Plain JavaScript, because nothing strips types at this
 * point.
 *
 *   sluice VERB ARGS            the command line (cli/main.ts)
 *   sluice --run FILE ARGS      a script of this project under the right Node
 */
import { FLAGS } from './flags.mjs'

const root = dirname(dirname(fileURLToPath(import.meta.url)))
const packaged = packagedNode(`node-${process.platform}-${process.arch}`)

/** The binary of the package, which npm installs below this folder or beside it. */
function packagedNode(name) {
  const near = join(root, 'node_modules', name, 'bin', 'node')
  try {
    return join(dirname(createRequire(import.meta.url).resolve(`${name}/package.json`)), 'bin', 'node')
  } catch {
    return near
  }
}

/** From 22.18 on Node strips types by itself, and the listener's binaries are built for major 22. */
function fits(version) {
  const [major, minor] = version.split('.').map(Number)
  return major === 22 && minor >= 18
}

function fail(message) {
  process.stderr.write(`sluice: ${message}\n`)
  process.exit(1)
}

const node = fits(process.versions.node) ? process.execPath : existsSync(packaged) ? packaged : null
if (node === null) {
  const system = `${process.platform}-${process.arch}`
  // One package each in optionalDependencies.
  const cure = ['linux-x64', 'linux-arm64'].includes(system)
    ? `npm did not install its package node-${system}: install without --omit=optional, or run it with Node 22`
    : 'it brings one only for linux-x64 and linux-arm64: run it with Node 22, for example of `npm install node@22`'
  fail(`needs Node 22.18 or newer of major 22, and this is ${process.version} on ${system}; ${cure}`)
}

const flags = [...FLAGS]
let [script, ...args] = process.argv.slice(2)
if (script === '--run') {
  if (args.length === 0) fail('--run needs a file')
  script = args.shift()
} else {
  args = process.argv.slice(2)
  // A package of npm has JavaScript, because Node strips no types below node_modules (bin/pack.ts).
  script = join(root, 'cli', 'main.js')
  const source = join(root, 'cli', 'main.ts')
  if (existsSync(source)) {
    script = source
    flags.push(`--import=${pathToFileURL(join(root, 'bin', 'stripped.mjs'))}`)
  }
}

const child = spawn(node, [...flags, script, ...args], {
  stdio: 'inherit',
  // A launcher that is killed by SIGKILL can't pass the signal on. The child must not hold the port then, so it gets
  // this process's id (SLUICE_PARENT) and watches it.
  env: {
    // Compiled code is kept here, beside the packages, and so is the file of stripped.mjs: a later start takes half the
    // time. Where this folder can't be written, nothing is kept.
    NODE_COMPILE_CACHE: join(root, 'node_modules', '.cache', 'sluice'),
    ...process.env,
    SLUICE_PARENT: String(process.pid),
  },
})
child.on('error', error => {
  // ENOENT for a file that exists means that its dynamic loader is missing, as on musl.
  const why = existsSync(node)
    ? 'this system cannot run it (a glibc build on musl?); run sluice with a Node 22 of the system'
    : 'it is not there'
  fail(`cannot start ${node}: ${error.code}; ${why}`)
})

const signals = ['SIGTERM', 'SIGINT', 'SIGHUP']
for (const signal of signals) process.on(signal, () => child.kill(signal))
// npx runs this below a shell, which ends by a signal and does not pass it on.
if (process.env.npm_lifecycle_event === 'npx') {
  const parent = process.ppid
  const watch = setInterval(() => {
    if (process.ppid === parent) return
    clearInterval(watch)
    child.kill('SIGTERM')
  }, 1000)
}
child.on('exit', (code, signal) => {
  if (signal === null) process.exit(code ?? 1)
  // Ends by the same signal as the child, so that a shell or a supervisor sees it.
  for (const name of signals) process.removeAllListeners(name)
  process.kill(process.pid, signal)
})
