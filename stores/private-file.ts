/** Files that hold replies, keys or locks: readable to their owner alone from the moment they exist. */
import fs from 'node:fs'

/**
 * Creates an empty file with mode 0600; one that exists is not opened. It must not be: when a process closes any
 * descriptor of a file, the kernel drops every lock that this process has on the file, SQLite's among them.
 */
export function createPrivate(file: string): void {
  try {
    fs.closeSync(fs.openSync(file, 'wx', 0o600))
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
  }
}
