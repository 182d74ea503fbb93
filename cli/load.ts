/** Loads gateway.yaml with the plugins, dialects and surfaces of this build. */
import { once } from 'node:events'
import { setImmediate } from 'node:timers/promises'
import { isDeepStrictEqual } from 'node:util'
import { Worker } from 'node:worker_threads'
import { type LoadOptions, type LoadResult, loadConfig } from '../config/load.ts'
import { isDialect, loadOwnFile, pluginName } from '../config/modules.ts'
import type { GatewayConfig } from '../config/types.ts'
import type { Dialect } from '../core/ports/dialect.ts'
import { extras } from '../plugins/extra/index.ts'
import { catalog } from '../plugins/index.ts'
import { AUTH_PACKAGES } from '../providers/auth/settings.ts'
import { addDialects, dialects } from '../providers/index.ts'
import { PRESETS } from '../providers/presets.ts'
import { surfaces } from '../surfaces/index.ts'
import type { Head, LoadTask, Slice } from './load-thread.ts'

/** Loads and checks the configuration at `path`. Faults in it are returned and not thrown. */
export async function load(
  path: string,
  options: Pick<LoadOptions, 'env' | 'generation' | 'placeholders' | 'readFile'> = {},
): Promise<LoadResult> {
  const loaded = await loadConfig(path, {
    ...{ plugins: catalog, extras, dialects, authPackages: AUTH_PACKAGES, presets: PRESETS },
    surfaces: Object.keys(surfaces),
    ...options,
  })
  if (loaded.dialects) addDialects(loaded.dialects, options.generation ?? 0)
  return loaded
}

/**
 * Does the same while requests are served: a thread reads, parses and checks. Organizations come in slices, between
 * which the event loop goes on; one that equals its predecessor in `before` is the same object.
 */
export async function loadAside(
  path: string,
  options: Pick<LoadOptions, 'env'> & { generation: number; before: GatewayConfig },
): Promise<LoadResult> {
  const { env, generation, before } = options
  const thread = takeThread()
  let answered = false
  try {
    thread.postMessage({ path, generation, env: env && { ...env } } satisfies LoadTask)
    const { errors, warnings, files, unset, config } = await answer<Head>(thread)
    if (errors || !config) {
      answered = true
      return { errors: errors ?? [], warnings, files }
    }
    for (;;) {
      thread.postMessage('next')
      const slice = await answer<Slice>(thread)
      if (slice.length === 0) break
      for (const organization of slice) {
        const old = before.organizations[organization.id]
        config.organizations[organization.id] = old && isDeepStrictEqual(old, organization) ? old : organization
      }
      await setImmediate()
    }
    answered = true
    const plugins = new Map(catalog)
    const own = new Map<string, Dialect>()
    for (const { path, at } of config.plugins) {
      try {
        const found = await loadOwnFile(path, generation)
        if (isDialect(found)) own.set(found.name, found)
        else plugins.set(pluginName(path), found)
      } catch (cause) {
        // The file has changed since the thread loaded it.
        return { errors: [{ ...at, message: `cannot load ${path}: ${(cause as Error).message}` }], warnings, files }
      }
    }
    addDialects(own, generation)
    return { config, plugins, dialects: own, warnings, unset, files }
  } finally {
    if (answered) keepThread(thread)
    else void thread.terminate()
  }
}

/**
 * A thread is kept this long for the next load, ms: it takes half a second to start, and people save several times in a
 * row.
 */
const KEPT_MS = 10_000
let kept: { thread: Worker; timer: NodeJS.Timeout } | undefined

function takeThread(): Worker {
  if (kept) {
    const { thread, timer } = kept
    kept = undefined
    clearTimeout(timer)
    thread.ref()
    return thread
  }
  const thread = new Worker(new URL('./load-thread.ts', import.meta.url))
  // While it is idle, nobody waits for an answer that would reject. It is replaced when it has ended.
  thread.on('error', () => {})
  thread.once('exit', () => {
    if (kept?.thread === thread) kept = undefined
  })
  return thread
}

function keepThread(thread: Worker): void {
  if (kept) return void thread.terminate()
  thread.unref()
  const end = () => {
    kept = undefined
    void thread.terminate()
  }
  kept = { thread, timer: setTimeout(end, KEPT_MS).unref() }
}

/** The next message of the thread. Rejects when the thread ends or fails before. */
async function answer<T>(thread: Worker): Promise<T> {
  const ended = new AbortController()
  const options = { signal: ended.signal }
  try {
    const gone = once(thread, 'exit', options).then(() => {
      throw new Error('the thread that loads the configuration has ended')
    })
    const [message] = await Promise.race([once(thread, 'message', options), gone])
    return message as T
  } finally {
    ended.abort()
  }
}
