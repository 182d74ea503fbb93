/**
 * The token of `server.admin.local_token`: a secret in a file that only the gateway's user may read. Whoever can read
 * that file may change accounts, as whoever can read the data folder beside it could anyway.
 */
import { randomBytes } from 'node:crypto'
import fs from 'node:fs'
import path from 'node:path'

const FORM = /^slt_[A-Za-z0-9_-]{43}\n?$/
const PRIVATE = 0o600

/**
 * The token in a file. A file that is not there, that others may read, or that holds something else gets a new one, so
 * that what others may have read is worth nothing.
 * @throws Error when the file cannot be read or written, with the cure
 */
export function localToken(file: string): string {
  try {
    const found = readToken(file)
    if (found !== null) return found
    fs.mkdirSync(path.dirname(file), { recursive: true, mode: 0o700 })
    const token = `slt_${randomBytes(32).toString('base64url')}`
    // A reader sees the old file or the whole new one, and nobody sees it with another mode.
    const beside = `${file}.${process.pid}`
    fs.rmSync(beside, { force: true })
    fs.writeFileSync(beside, `${token}\n`, { mode: PRIVATE, flag: 'wx' })
    fs.renameSync(beside, file)
    return token
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    throw new Error(
      `server.admin.local_token: ${file} cannot be used (${code ?? message}); name a file in a folder that this user may write`,
    )
  }
}

function readToken(file: string): string | null {
  const stat = fs.lstatSync(file, { throwIfNoEntry: false })
  if (!stat?.isFile() || (stat.mode & 0o777) !== PRIVATE) return null
  if (process.getuid && stat.uid !== process.getuid()) return null
  const text = fs.readFileSync(file, 'utf8')
  return FORM.test(text) ? text.trim() : null
}
