/**
 * Script calls as the bytes that go on the wire. ioredis measures, joins and copies every argument of a command anew; for the two calls of every exchange that
 * took longer than the script itself, and nearly all of it is the same each time.
 */
import { createHash } from 'node:crypto'
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
  constructor(name: string, args: readonly string[], bytes: Buffer) {
    super(name, args as string[])
    this.#bytes = bytes
  }
  override toWritable(): Buffer {
    return this.#bytes
  }
}

export class ScriptCall {
  readonly #script: Script
  readonly #args: readonly string[]
  readonly #shared: number
  readonly bytes: Buffer

  /** `shared`: length of the part that depends on the script; what follows is the same for EVAL. */
  constructor(which: Script, args: readonly string[], shared: number, bytes: Buffer) {
    this.#script = which
    this.#args = args
    this.#shared = shared
    this.bytes = bytes
  }

  evalsha(): Command {
    return new MadeCommand('evalsha', this.#args, this.bytes)
  }

  /** The same with the script's text, for a server that does not know it. */
  eval(): Command {
    const count = this.bytes.subarray(0, this.bytes.indexOf(10) + 1)
    const bytes = Buffer.concat([count, ...bulk('EVAL'), ...bulk(this.#script.lua), this.bytes.subarray(this.#shared)])
    return new MadeCommand('eval', [this.#script.lua, ...this.#args.slice(1)], bytes)
  }
}

/** A call with everything in it but the numbers that change, which are filled into a copy of its first argument, and its last argument. */
export class CallTemplate {
  /** Where the first argument begins in `bytes`. */
  readonly numbers: number
  readonly #script: Script
  readonly #args: readonly string[]
  readonly #shared: number
  readonly #bytes: Buffer

  constructor(which: Script, keys: readonly string[], first: Buffer, args: readonly string[]) {
    const parts = 5 + keys.length + args.length
    const shared = Buffer.concat([Buffer.from(`*${parts}\r\n`), ...bulk('EVALSHA'), ...bulk(which.sha)])
    this.#script = which
    this.#args = [which.sha, String(keys.length), ...keys]
    this.#shared = shared.length
    const start = Buffer.concat([shared, ...[String(keys.length), ...keys].flatMap(bulk)])
    this.numbers = start.length + `$${first.length}\r\n`.length
    this.#bytes = Buffer.concat([start, ...[first, ...args].flatMap(bulk)])
  }

  make(last: string): ScriptCall {
    const start = this.#bytes
    const length = Buffer.byteLength(last)
    const mark = `$${length}\r\n`
    const bytes = Buffer.allocUnsafe(start.length + mark.length + length + 2)
    start.copy(bytes)
    let at = start.length + bytes.write(mark, start.length, 'latin1')
    at += bytes.write(last, at)
    bytes[at] = 13
    bytes[at + 1] = 10
    return new ScriptCall(this.#script, this.#args, this.#shared, bytes)
  }
}
