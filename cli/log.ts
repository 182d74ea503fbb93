/**
 * The log: JSON lines on standard error, apart from what a command prints. docs/metrics.md lists the lines and their
 * fields.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { pino } from 'pino'
import { StoreUnavailable } from '../core/canon/errors.ts'
import { UnreadableReply, UpstreamFault } from '../core/canon/upstream-fault.ts'
import type { Logger } from '../core/plugin.ts'
import { AuthFault } from '../core/ports/auth.ts'
import { prettyLine } from './pretty.ts'

export const silent: Logger = { debug() {}, info() {}, warn() {}, error() {} }

/**
 * Lines are collected in a buffer of this many bytes and written together: one system call for each line would cost as
 * much as a limit check.
 */
const GROUP_BYTES = 64 * 1024
/** A line waits in the buffer at most this long, in milliseconds. */
const LINGER_MS = 100
/** When the log is closed, it waits at most this long for its reader, in milliseconds. */
const CLOSE_MS = 1000
/** One UTF-16 code unit takes at most three bytes in UTF-8. */
const BYTES_A_UNIT = 3

/** The section `log` of gateway.yaml. */
export interface LogSettings {
  /** Lowest level that is written. */
  level: string
  /** Write a provider's words about a request that it refused as faulty. Default true. */
  provider_words?: boolean
  /** Write the messages of all errors, which may quote user data. Left out: where the log is `private`. */
  bodies?: boolean
}

export interface Log extends Logger {
  /** Applies these settings from now on. */
  configure(settings: LogSettings): void
  /** Writes the buffered lines synchronously, before the process is ended by force. */
  flush(): void
  /** Writes the buffered lines and waits for writes under way, but not long for a reader that takes nothing. */
  close(): Promise<void>
}

export interface LogOptions {
  /** Standard error by default. */
  descriptor?: number
  /** Lines for people instead of JSON. */
  pretty?: boolean
  /** With colours; only together with `pretty`. */
  colour?: boolean
  /** Its reader is whoever sends the requests, and nothing keeps it: development. */
  private?: boolean
}

export function openLog(settings: LogSettings, options: LogOptions = {}): Log {
  const { descriptor = 2, pretty = false, colour = false, private: own = false } = options
  let { bodies = own, provider_words: words = true } = settings
  // Written in the background: a slow reader of the log must not stall requests.
  const destination = pino.destination({ dest: descriptor, sync: false, minLength: 1, contentMode: 'buffer' })
  // Lines are grouped here, as bytes. The destination's own grouping measures all that it holds again with each line,
  // and a string that was joined from a thousand pieces is slow to read once its memory has left the CPU's caches.
  let bytes = Buffer.allocUnsafeSlow(GROUP_BYTES)
  /** `bytes[from, to)` is not written yet; the part before it was given to the destination. */
  let from = 0
  let to = 0
  let lingering: NodeJS.Timeout | undefined
  const release = () => {
    clearTimeout(lingering)
    lingering = undefined
    if (from === to) return
    const lines = bytes.subarray(from, to)
    from = to
    // The declared type takes strings only; the destination also takes bytes.
    destination.write(lines as unknown as string)
  }
  const write = (line: string) => {
    const text = pretty ? prettyLine(line, colour) : line
    const most = text.length * BYTES_A_UNIT
    if (most > bytes.length - to) {
      release()
      bytes = Buffer.allocUnsafeSlow(Math.max(GROUP_BYTES, most))
      from = to = 0
    }
    to += bytes.write(text, to)
    lingering ??= setTimeout(release, LINGER_MS).unref()
  }
  const log = pino(
    {
      level: settings.level,
      base: undefined,
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: label => ({ level: label }) },
      serializers: {
        err: error => describeError(error, bodies),
        upstream_error: told =>
          told instanceof UpstreamFault ? describeFault(told, bodies || (words && told.ofRequest)) : told,
      },
    },
    { write },
  )
  const flush = () => {
    release()
    try {
      destination.flushSync()
    } catch {
      // The destination is not open yet, or its reader has closed it: nothing can be written.
    }
  }
  let informs = log.isLevelEnabled('info')
  /**
   * Writes an info line, which each exchange has, as pino would write it but at a third of the cost: most of pino's
   * cost is joining a string from forty pieces. pino still writes what is not plain data.
   */
  const info = (fields: Record<string, unknown>, message: string): void => {
    if (!informs) return
    if ('err' in fields || 'upstream_error' in fields) return log.info(fields, message)
    try {
      const members = JSON.stringify(fields).slice(1, -1)
      write(
        `{"level":"info","time":"${isoTime()}",${members}${members === '' ? '' : ','}"msg":${JSON.stringify(message)}}\n`,
      )
    } catch {
      log.info(fields, message)
    }
  }
  /** Warnings and errors are written at once: someone should see them. */
  const soon =
    (level: 'warn' | 'error') =>
    (fields: object, message: string): void => {
      log[level](fields, message)
      release()
    }
  return {
    // Looked up at each call: pino replaces its methods when the level changes.
    debug: (fields, message) => log.debug(fields, message),
    info,
    warn: soon('warn'),
    error: soon('error'),
    flush,
    configure(changed) {
      log.level = changed.level
      informs = log.isLevelEnabled('info')
      bodies = changed.bodies ?? own
      words = changed.provider_words ?? true
    },
    async close() {
      release()
      const written = new Promise<void>(resolve => destination.flush(() => resolve()))
      await Promise.race([written, sleep(CLOSE_MS, undefined, { ref: false })])
      flush()
    },
  } as Log
}

/** The second that `second` is the text of, in Unix milliseconds. */
let secondOf = 0
/** `2026-11-22T06:00:00.` */
let second = ''
function isoTime(): string {
  const now = Date.now()
  const ms = now % 1000
  if (now - ms !== secondOf) {
    secondOf = now - ms
    second = new Date(now).toISOString().slice(0, -4)
  }
  return `${second}${String(ms).padStart(3, '0')}Z`
}

export interface LoggedError {
  type: string
  code?: string
  message?: string
  /** Where it was thrown: stack frames only. */
  stack?: string[]
  cause?: LoggedError
}

const MOST_FRAMES = 12
const MOST_CAUSES = 3
const FRAME = /^ {4}at \S.*:\d+:\d+\)?$/

/**
 * An error as the log may show it. A message may quote user data (`JSON.parse` quotes the text, a plugin what it failed
 * on), so it is kept only where the system or the gateway itself wrote it. Type, code and stack frames are enough to
 * find the rest.
 */
export function describeError(error: unknown, bodies: boolean, depth = 0): LoggedError {
  if (!(error instanceof Error)) return { type: typeof error, ...(bodies && { message: String(error) }) }
  const { code } = error as NodeJS.ErrnoException
  const told: LoggedError = { type: error.name }
  if (typeof code === 'string') told.code = code
  if (bodies || hasPlainMessage(error)) told.message = error.message
  const frames = framesOf(error)
  if (frames.length > 0) told.stack = frames
  if (error.cause !== undefined && depth < MOST_CAUSES) told.cause = describeError(error.cause, bodies, depth + 1)
  return told
}

/** A provider's error as the log may show it. @param words whether with its message, which may quote the prompt */
function describeFault(told: UpstreamFault, words: boolean): Record<string, unknown> {
  return { ...told.toJSON(), ...(words && told.words !== '' && { message: told.words }) }
}

/**
 * The frames of the stack. The message, with which the stack begins, is cut off first: it may have lines that look like
 * frames.
 */
function framesOf({ stack, message }: Error): string[] {
  if (typeof stack !== 'string') return []
  const at = message === '' ? 0 : stack.indexOf(message)
  return (at === -1 ? stack : stack.slice(at + message.length))
    .split('\n')
    .filter(line => FRAME.test(line))
    .slice(0, MOST_FRAMES)
    .map(line => line.trim())
}

/**
 * Whether the message holds no user data: errors of the system, of sockets, of the store and of credentials only say
 * what could not be reached.
 */
function hasPlainMessage(error: Error): boolean {
  const { code, syscall } = error as NodeJS.ErrnoException
  return (
    error instanceof AuthFault ||
    error instanceof StoreUnavailable ||
    error instanceof UnreadableReply ||
    (typeof code === 'string' &&
      (typeof syscall === 'string' || code.startsWith('UND_ERR') || code === 'ERR_SQLITE_ERROR'))
  )
}
