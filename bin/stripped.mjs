/*
 * Keeps the project's modules as JavaScript from one start to the next. Without it Node 22 strips the types of each
 * module again at every start and in every thread (Node's own compile cache, NODE_COMPILE_CACHE, keeps only what V8
 * makes of the result). A kept text is used only while the source of its module is equal, byte for byte, to the one
 * that it was made from. The file lies beside the compile cache and is turned off with it; where the folder can't be
 * written, nothing is kept. Preloaded with --import, in every thread.
 */
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { registerHooks, stripTypeScriptTypes } from 'node:module'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { threadId } from 'node:worker_threads'

const root = new URL('..', import.meta.url).href
const folder = process.env.NODE_DISABLE_COMPILE_CACHE ? undefined : process.env.NODE_COMPILE_CACHE
/** Whether this process runs tests. Their modules are as many again, so they have a file of their own. */
const tests = process.env.NODE_TEST_CONTEXT !== undefined
const file = folder && join(folder, `stripped-${process.version}${tests ? '-tests' : ''}`)
/** The modules of a gateway, and in tests those of the tests. */
const kept = tests
  ? /^(?!node_modules\/)[^?#]+\.ts$/
  : /^(admin|cli|config|core|http|meter|plugins|providers|stores|surfaces)\/[^?#]+\.ts$/

/** The kept modules, { source, code }, by path from the root. */
const modules = file ? read() : new Map()
/** Modules that were not kept, or whose source has changed since. */
const added = new Map()

const hooks = {
  resolve(specifier, context, next) {
    // A kept module was resolved at an earlier start, so no folder, link or package.json has to be looked at.
    if (specifier[0] === '.' && specifier.endsWith('.ts') && context.parentURL?.startsWith(root)) {
      const { href } = new URL(specifier, context.parentURL)
      if (href.startsWith(root) && modules.has(href.slice(root.length)))
        return { url: href, format: 'module-typescript', shortCircuit: true }
    }
    return next(specifier, context)
  },
  load(url, context, next) {
    const path = url.startsWith(root) ? url.slice(root.length) : ''
    if (!kept.test(path)) return next(url, context)
    try {
      return { format: 'module', source: stripped(path, readFileSync(fileURLToPath(url))), shortCircuit: true }
    } catch {
      // Node's own loader has the best message about a fault in a module.
      return next(url, context)
    }
  },
}
if (file) registerHooks(hooks)

function stripped(path, source) {
  const found = modules.get(path)
  if (found?.source.equals(source)) return found.code.toString()
  const code = stripTypeScriptTypes(source.toString())
  if (added.size === 0) process.on('exit', write)
  added.set(path, { source, code: Buffer.from(code) })
  return code
}

/**
 * Reads the file: a line of JSON with [path, bytes of source, bytes of code] for each module, then those bytes in the
 * same order.
 */
function read() {
  const found = new Map()
  try {
    const bytes = readFileSync(file)
    let at = bytes.indexOf('\n') + 1
    for (const [path, source, code] of JSON.parse(bytes.toString('utf8', 0, at))) {
      found.set(path, { source: bytes.subarray(at, (at += source)), code: bytes.subarray(at, (at += code)) })
    }
    // A file that was cut short, for example by a full disk, is not used.
    return at === bytes.length ? found : new Map()
  } catch {
    return found
  }
}

/** Adds this thread's modules to the file, and keeps those that another thread has written meanwhile. */
function write() {
  const still = [...new Map([...read(), ...added])].filter(([path]) => existsSync(new URL(path, root)))
  const index = still.map(([path, { source, code }]) => [path, source.length, code.length])
  const own = `${file}.${process.pid}.${threadId}`
  const text = Buffer.concat([
    Buffer.from(`${JSON.stringify(index)}\n`),
    ...still.flatMap(([, { source, code }]) => [source, code]),
  ])
  try {
    mkdirSync(dirname(file), { recursive: true })
    try {
      writeFileSync(own, text)
      renameSync(own, file)
    } catch {
      rmSync(own, { force: true })
    }
  } catch {
    // The folder can't be made or written: the next start strips types again.
  }
}
