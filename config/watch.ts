/**
 * Watches configuration files. Directories are watched, not files: editors and deployment tools replace a file (write beside it and rename, or swap a
 * symbolic link above it), and a watch on the old inode would see nothing after that. The directory itself may be replaced, or lie where events don't
 * come from (a link further up, a network file system): so the files are looked at now and then, too.
 */
import { type FSWatcher, statSync, watch } from 'node:fs'
import { dirname } from 'node:path'
import { type Clock, systemClock, type Timer } from '../core/clock.ts'

export interface WatchOptions {
  /** Quiet time after the last event before `onChange`, in milliseconds: a save is several events. */
  debounceMs?: number
  /** How often files are looked at without an event, in milliseconds. */
  pollMs?: number
  clock?: Clock
  /** A directory that can't be watched; the other ones still are. */
  onError?(error: Error): void
}

export interface Watching {
  /** Replaces the set of files, e.g. after a reload that includes others. */
  update(files: readonly string[]): void
  close(): void
}

/** Calls `onChange` with the absolute paths whose content was replaced, written, removed or created. Does not keep the process alive. */
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

  // Events only say "look": names are missing on some systems, and a swapped link above the file names only itself.
  function look(): void {
    if (closed) return
    timer?.cancel()
    timer = clock.setTimer(debounceMs, changed)
  }

  /** A change that no event told of waits for its quiet time as any other. */
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

/** What tells one version of a file from the next; '' when there is none. Follows symbolic links. */
function signature(file: string): string {
  const stat = statSync(file, { bigint: true, throwIfNoEntry: false })
  return stat ? `${stat.dev}:${stat.ino}:${stat.size}:${stat.mtimeNs}` : ''
}
