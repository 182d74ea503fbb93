/**
 * Watches configuration files. It watches directories and not files: editors and deployment tools replace a file (they
 * write a new one beside it and rename it, or change a symbolic link above it), and a watch on the old inode would see
 * nothing after that. The directory may be replaced too, or give no events (behind a link further up, on a network file
 * system), so the files are also polled.
 */
import { type FSWatcher, statSync, watch } from 'node:fs'
import { dirname } from 'node:path'
import { type Clock, systemClock, type Timer } from '../core/tools/clock.ts'

export interface WatchOptions {
  /** Quiet time after the last event before `onChange`, in milliseconds: one save causes several events. */
  debounceMs?: number
  /** Interval of polling, in milliseconds. */
  pollMs?: number
  clock?: Clock
  /** Called when a directory can't be watched. The other directories still are. */
  onError?(error: Error): void
}

export interface Watching {
  /** Replaces the set of files, e.g. after a reload that includes others. */
  update(files: readonly string[]): void
  close(): void
}

/**
 * Calls `onChange` with the absolute paths whose content was replaced, written, removed or created. Does not keep the
 * process alive.
 */
export function watchFiles(
  files: readonly string[],
  onChange: (changed: string[]) => void,
  options: WatchOptions = {},
): Watching {
  const { debounceMs = 100, pollMs = 2000, clock = systemClock, onError = () => {} } = options
  const watchers = new Map<string, FSWatcher>()
  let states = new Map<string, string>()
  let timer: Timer | undefined
  let polling = clock.setTimer(pollMs, poll)
  let closed = false

  function changed(): void {
    timer = undefined
    const differing: string[] = []
    for (const [file, before] of states) {
      const now = signature(file)
      if (now === before) continue
      states.set(file, now)
      differing.push(file)
    }
    if (differing.length > 0) onChange(differing)
  }

  // An event only starts a look at all files. The name in the event is not used: on some systems there is none, and
  // when a link above the file is changed, it is the name of the link.
  function look(): void {
    if (closed) return
    timer?.cancel()
    timer = clock.setTimer(debounceMs, changed)
  }

  /** A change that only polling finds also waits for the quiet time. */
  function poll(): void {
    if (!timer && [...states].some(([file, before]) => signature(file) !== before)) look()
    polling = clock.setTimer(pollMs, poll)
  }

  function update(next: readonly string[]): void {
    if (closed) return
    states = new Map(next.map(file => [file, states.get(file) ?? signature(file)]))
    const wanted = new Set(next.map(file => dirname(file)))
    for (const [directory, watcher] of watchers) {
      if (wanted.has(directory)) continue
      watcher.close()
      watchers.delete(directory)
    }
    for (const directory of wanted) {
      if (watchers.has(directory)) continue
      try {
        const watcher = watch(directory, { persistent: false }, look)
        watcher.on('error', onError)
        watchers.set(directory, watcher)
      } catch (error) {
        onError(error as Error)
      }
    }
  }

  update(files)
  return {
    update,
    close() {
      closed = true
      timer?.cancel()
      polling.cancel()
      for (const watcher of watchers.values()) watcher.close()
      watchers.clear()
    },
  }
}

/** A text that differs between two versions of a file; '' when there is no file. Follows symbolic links. */
function signature(file: string): string {
  const stat = statSync(file, { bigint: true, throwIfNoEntry: false })
  return stat ? `${stat.dev}:${stat.ino}:${stat.size}:${stat.mtimeNs}` : ''
}
