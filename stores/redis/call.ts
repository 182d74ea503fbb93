/**
 * Makes script calls as finished bytes of the Redis protocol. ioredis measures, joins and copies every argument of each
 * command. For the two calls of every exchange this took longer than the script itself, although nearly all arguments
 * are the same each time.
 */
import type { Writable } from 'node:stream'
import { Command } from 'ioredis'

/** A Lua script (scripts.ts). */
export interface Script {
  lua: string
  /** The SHA-1 digest in hex, by which EVALSHA names it. */
  sha: string
  /** Where each line of `lua` is in lua/, such as `admit.lua:12`. */
  lines: readonly string[]
}

/** An argument as a bulk string of the Redis protocol. */
const bulk = (part: string | Buffer): Buffer[] => [
  Buffer.from(`$${Buffer.byteLength(part)}\r\n`),
  Buffer.from(part),
  Buffer.from('\r\n'),
]

/**
 * A command whose bytes are already made. Its `args` are not written: a cluster client finds the node by them, and
 * errors show them.
 */
class MadeCommand extends Command {
  #bytes: Buffer
  constructor(name: string, args: string[], bytes: Buffer) {
    // The constructor of Command would copy and convert the arguments for each call.
    super(name)
    this.args = args
    this.#bytes = bytes
  }
  override toWritable(stream: object): Buffer {
    corkForThisTurn(stream as Writable)
    return this.#bytes
  }
}

/** Connections that are corked until the end of this event-loop turn. */
const corked: Writable[] = []
/**
 * A corked connection is flushed when it has more than this many bytes, about some hundred calls, so that Redis can
 * begin during a long turn. With 16 KiB the additional writes cost more than that gained.
 */
const CORKED_BYTES = 64 << 10

/**
 * Corks a connection until the end of the event-loop turn, so that the calls of one turn share one socket write. Such a
 * write takes longer than the rest of a call. The answers then mostly arrive together, too.
 */
function corkForThisTurn(stream: Writable): void {
  if (!corked.includes(stream)) {
    if (corked.length === 0) setImmediate(uncorkAll)
    corked.push(stream)
    stream.cork()
  } else if (stream.writableLength >= CORKED_BYTES) {
    stream.uncork()
    stream.cork()
  }
}

function uncorkAll(): void {
  for (const stream of corked.splice(0)) stream.uncork()
}

/** One call of a script, ready to be sent. */
export class ScriptCall {
  readonly script: Script
  readonly #args: string[]
  readonly #shared: number
  readonly #bytes: Buffer

  /**
   * @param args the digest, the number of keys and the keys
   * @param shared length of the beginning of `bytes` that names the script; the bytes after it are the same for EVAL
   * @param bytes the whole EVALSHA command
   */
  constructor(which: Script, args: string[], shared: number, bytes: Buffer) {
    this.script = which
    this.#args = args
    this.#shared = shared
    this.#bytes = bytes
  }

  evalsha(): Command {
    return new MadeCommand('evalsha', this.#args, this.#bytes)
  }

  /** The same call with the script's text instead of its digest, for a server that does not know the script. */
  eval(): Command {
    const count = this.#bytes.subarray(0, this.#bytes.indexOf(10) + 1)
    const bytes = Buffer.concat([count, ...bulk('EVAL'), ...bulk(this.script.lua), this.#bytes.subarray(this.#shared)])
    return new MadeCommand('eval', [this.script.lua, ...this.#args.slice(1)], bytes)
  }
}

/**
 * Makes calls that differ only in their last arguments: pairs of a block of numbers and a mark, one pair or several.
 */
export class CallTemplate {
  readonly #script: Script
  readonly #args: string[]
  /** Number of arguments that every call has, the command's name included. */
  readonly #fixed: number
  readonly #name: Buffer
  readonly #start: Buffer
  readonly #block: Buffer
  readonly #blockStart: Buffer

  /** @param block its present content is copied into each call */
  constructor(which: Script, keys: readonly string[], args: readonly string[], block: Buffer) {
    const start = [String(keys.length), ...keys, ...args]
    this.#script = which
    this.#args = [which.sha, String(keys.length), ...keys]
    this.#fixed = 2 + start.length
    this.#name = Buffer.concat([...bulk('EVALSHA'), ...bulk(which.sha)])
    this.#start = Buffer.concat(start.flatMap(bulk))
    this.#block = block
    this.#blockStart = Buffer.from(`$${block.length}\r\n`)
  }

  /**
   * @param fill called with the index of each mark; must write the block that goes with it
   * @param more arguments behind them
   */
  make(marks: readonly string[], fill: (index: number) => void, more?: readonly string[]): ScriptCall {
    const rest = more && Buffer.concat(more.flatMap(bulk))
    const head = `*${this.#fixed + 2 * marks.length + (more?.length ?? 0)}\r\n`
    const shared = head.length + this.#name.length
    const each = this.#blockStart.length + this.#block.length + 4
    let size = shared + this.#start.length + each * marks.length
    for (const mark of marks) {
      const length = Buffer.byteLength(mark)
      size += length + markStart(length).length
    }
    if (rest) size += rest.length
    const bytes = Buffer.allocUnsafe(size)
    let at = bytes.write(head, 0, 'latin1')
    at += this.#name.copy(bytes, at)
    at += this.#start.copy(bytes, at)
    for (let i = 0; i < marks.length; i++) {
      fill(i)
      at += this.#blockStart.copy(bytes, at)
      at += this.#block.copy(bytes, at)
      at += bytes.write('\r\n' + markStart(Buffer.byteLength(marks[i]!)), at, 'latin1')
      at += bytes.write(marks[i]! + '\r\n', at)
    }
    rest?.copy(bytes, at)
    return new ScriptCall(this.#script, this.#args, shared, bytes)
  }
}

const markStart = (length: number) => `$${length}\r\n`
