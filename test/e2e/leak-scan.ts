/**
 * Watches every byte that reaches a client for what must not leave the gateway (GEN-7): upstream ids and models, base
 * URLs, private continuation data, and the texts of upstream and internal errors. It reads along on the client's end of
 * each connection of this process to the gateway, whoever opened it: an SDK, `fetch`, a raw socket.
 */
import assert from 'node:assert/strict'
import { subscribe } from 'node:diagnostics_channel'
import type { Socket } from 'node:net'
import type { GatewayConfig } from '../../config/types.ts'

/** Whatever the configuration says. */
const ALWAYS = [
  // Ids that the simulator gives, in all four dialects.
  /(?:^|[^A-Za-z0-9])sim[0-9a-f]{12}/,
  /(?:_|-)sim[0-9a-f]{8}/,
  /\b(?:srvtoolu|toolu|rs|fc|ctc|ws)_[A-Za-z0-9]{8}/,
  // Private continuation data (TOOL-6). Without its exact case and start, one of a million random ids looks like it.
  /(?<![A-Za-z0-9])gAAAAA/,
  /thought_?signature|redacted-[0-9a-f]{8}/i,
  // Hosts of providers.
  /api\.openai\.com|api\.anthropic\.com|googleapis\.com|vertexaisearch/,
  // Texts of upstream and internal errors.
  /simulated provider|simulator (?:failed|has no)|Overloaded|invalid x-api-key|Incorrect API key|credit balance/,
  /ECONNREFUSED|ECONNRESET|UND_ERR|socket hang up|other side closed|\bat [\w.<>#]+ \((?:file|node|\/)/,
]

/** Longer than any pattern's match can be cut into, framing included. */
const OVERLAP = 400
/** Between the chunks of a body. */
const CHUNK_HEAD = /\r\n[0-9a-f]{1,8}\r\n/g

/** By the port that the gateway listens on. */
const scans = new Map<number, LeakScan>()

subscribe('net.client.socket', message => {
  const { socket } = message as { socket: Socket }
  const push = socket.push
  let tail = ''
  // What arrives is pushed; nothing is read ahead, so that backpressure is what it was.
  socket.push = function watched(this: Socket, chunk: Uint8Array | null, encoding) {
    const scan = chunk && scans.get(this.remotePort ?? 0)
    if (scan) {
      const text = tail + Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength).toString('latin1')
      scan.look(text.replace(CHUNK_HEAD, ''), 'a reply')
      tail = text.slice(-OVERLAP)
    }
    return push.call(this, chunk, encoding)
  }
})

export class LeakScan {
  readonly found: string[] = []
  readonly #port: number
  readonly #config: () => GatewayConfig | undefined
  #patternsOf: GatewayConfig | undefined
  #patterns: RegExp[] = []
  /** Characters looked at. */
  scanned = 0

  /**
   * @param url where the gateway listens
   * @param config of one in this process; a process of its own is watched for what holds whatever its configuration
   *   says
   */
  constructor(url: string, config: () => GatewayConfig | undefined = () => undefined) {
    this.#port = Number(new URL(url).port)
    this.#config = config
    scans.set(this.#port, this)
  }

  /** Nothing is watched from here on. Throws for what was found. */
  close(): void {
    scans.delete(this.#port)
    assert.deepEqual(this.found, [], '[GEN-7] nothing of an upstream reaches a client')
  }

  look(text: string, where: string): void {
    this.scanned += text.length
    for (const pattern of [...this.#patternList(), ...ALWAYS]) {
      const match = pattern.exec(text)
      if (match) this.#report(match[0], match.index, text, where)
    }
  }

  #report(what: string, at: number, text: string, where: string): void {
    this.found.push(`${JSON.stringify(what)} in ${where}: …${text.slice(Math.max(0, at - 80), at + 120)}…`)
  }

  /**
   * Upstream models, backends and base URLs of the running configuration, each as a word of its own: four letters
   * inside a longer run of them are a random id's sooner or later. Names of fewer than four letters occur in any text.
   */
  #patternList(): RegExp[] {
    const config = this.#config()
    if (!config || config === this.#patternsOf) return this.#patterns
    const { models, providers } = config
    const words = new Set<string>()
    for (const served of Object.values(models)) {
      for (const backend of served.backends) {
        if (backend.model.length > 3 && !(backend.model in models)) words.add(backend.model)
        words.add(backend.id)
      }
    }
    for (const provider of Object.values(providers)) {
      if (URL.canParse(provider.base_url)) words.add(new URL(provider.base_url).host)
    }
    this.#patternsOf = config
    this.#patterns = [...words].map(
      word => new RegExp(`(?<![A-Za-z0-9])${word.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&')}(?![A-Za-z0-9])`),
    )
    return this.#patterns
  }
}
