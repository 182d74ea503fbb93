/**
 * Script calls as the bytes that go on the wire. ioredis measures, joins and copies every argument of a command anew; for the two calls of every exchange that
 * took longer than the script itself, and nearly all of it is the same each time.
 */
import { createHash } from 'node:crypto'
import type { Writable } from 'node:stream'
import { Command } from 'ioredis'

/** A Lua script and the digest it is called by. */
export interface Script {
  lua: string
  sha: string
}
export function script(lua: string): Script {
  return { lua, sha: createHash('sha1').update(lua).digest('hex') }
}

const bulk = (part: string | Buffer): Buffer[] => [
  Buffer.from(`$${Buffer.byteLength(part)}\r\n`),
  Buffer.from(part),
  Buffer.from('\r\n'),
]

/** A command that is written as it was made. Its arguments tell a cluster client where it belongs, and errors what it was. */
class MadeCommand extends Command {
  #bytes: Buffer
  constructor(name: string, args: string[], bytes: Buffer) {
    // Given to the constructor, they would be copied and looked through each time.
    super(name)
    this.args = args
    this.#bytes = bytes
  }
  override toWritable(stream: object): Buffer {
    holdBack(stream as Writable)
    return this.#bytes
  }
}

/** Connections that hold back what this turn of the event loop writes. */
const held: Writable[] = []
/** Some hundred calls. After a burst that long Redis may begin while the turn goes on; with 16 KiB the writes took more than that gained. */
const HELD_BYTES = 64 << 10

/** A write to a socket takes longer than the rest of a call: the calls of one turn share one, and so mostly do their answers. */
function holdBack(stream: Writable): void {
  if (!held.includes(stream)) {
    if (held.length === 0) setImmediate(letGo)
    held.push(stream)
    stream.cork()
  } else if (stream.writableLength >= HELD_BYTES) {
    stream.uncork()
    stream.cork()
  }
}

function letGo(): void {
  for (const stream of held.splice(0)) stream.uncork()
}

export class ScriptCall {
  readonly #script: Script
  readonly #args: string[]
  readonly #shared: number
  readonly #bytes: Buffer

  /** `shared`: length of the part that depends on the script; what follows is the same for EVAL. */
  constructor(which: Script, args: string[], shared: number, bytes: Buffer) {
    this.#script = which
    this.#args = args
    this.#shared = shared
    this.#bytes = bytes
  }

  evalsha(): Command {
    return new MadeCommand('evalsha', this.#args, this.#bytes)
  }

  /** The same with the script's text, for a server that does not know it. */
  eval(): Command {
    const count = this.#bytes.subarray(0, this.#bytes.indexOf(10) + 1)
    const bytes = Buffer.concat([count, ...bulk('EVAL'), ...bulk(this.#script.lua), this.#bytes.subarray(this.#shared)])
    return new MadeCommand('eval', [this.#script.lua, ...this.#args.slice(1)], bytes)
  }
}

/** A call of which only the last arguments change: a block of numbers and a mark, once or several times. */
export class CallTemplate {
  readonly #script: Script
  readonly #args: string[]
  /** Arguments that every call has. */
  readonly #fixed: number
  readonly #name: Buffer
  readonly #start: Buffer
  readonly #block: Buffer
  readonly #blockStart: Buffer

  /** `block` is read anew for each call. */
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

  /** @param fill called before the block is copied for a mark, with the mark's index */
  make(marks: readonly string[], fill: (index: number) => void): ScriptCall {
    const head = `*${this.#fixed + 2 * marks.length}\r\n`
    const shared = head.length + this.#name.length
    const each = this.#blockStart.length + this.#block.length + 4
    let size = shared + this.#start.length + each * marks.length
    for (const mark of marks) {
      const length = Buffer.byteLength(mark)
      size += length + markStart(length).length
    }
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
    return new ScriptCall(this.#script, this.#args, shared, bytes)
  }
}

const markStart = (length: number) => `$${length}\r\n`
