/**
 * WebSocket frames (RFC 6455 section 5) between the gateway and the target of a tunnel. uWebSockets.js speaks with the
 * client and gives whole messages; towards the target the gateway is the client.
 */
import { randomFillSync } from 'node:crypto'

export const CONTINUATION = 0x0
export const TEXT = 0x1
export const BINARY = 0x2
export const CLOSE = 0x8
export const PING = 0x9
export const PONG = 0xa

const FIN = 0x80
const RESERVED = 0x70
const MASKED = 0x80
/** Payloads of at least this many bytes have a length of two bytes; from 65,536 on one of eight. */
const SHORT = 126
/** The longest payload of a control frame. */
const CONTROL_BYTES = 125

/** Random bytes for masks. Asking the system for each mask would cost more than masking a short message. */
const masks = new Uint8Array(4096)
let nextMask = masks.length

/** A whole message or a control frame, as a client sends it: masked. */
export function clientFrame(opcode: number, payload: Uint8Array): Uint8Array {
  const { length } = payload
  const lengthBytes = length < SHORT ? 0 : length <= 0xffff ? 2 : 8
  const frame = Buffer.allocUnsafe(2 + lengthBytes + 4 + length)
  frame[0] = FIN | opcode
  frame[1] = MASKED | (lengthBytes === 0 ? length : lengthBytes === 2 ? SHORT : SHORT + 1)
  if (lengthBytes === 2) frame.writeUInt16BE(length, 2)
  else if (lengthBytes === 8) frame.writeBigUInt64BE(BigInt(length), 2)
  if (nextMask === masks.length) {
    randomFillSync(masks)
    nextMask = 0
  }
  const start = 2 + lengthBytes
  frame.set(masks.subarray(nextMask, nextMask + 4), start)
  nextMask += 4
  for (let i = 0; i < length; i++) frame[start + 4 + i] = payload[i]! ^ frame[start + (i & 3)]!
  return frame
}

/** Receives what the target sends. */
export interface FrameSink {
  /** A part of a message. A part that is both first and last is the whole message. */
  part(data: Uint8Array, binary: boolean, first: boolean, last: boolean): void
  control(opcode: number, payload: Uint8Array): void
}

/**
 * Reads the frames of a target, in pieces of any size. Payloads are passed on as they arrive, so nothing but a head or
 * a control frame is kept.
 */
export class TargetFrames {
  readonly #sink: FrameSink
  /** The begin of a head that has not arrived whole, or of a control frame. */
  #kept: Uint8Array = new Uint8Array(0)
  /** Bytes of the current payload that are still to come; -1 before a head. */
  #rest = -1
  #fin = false
  #binary = false
  /** A message has begun and not ended. */
  #within = false
  /** Nothing of the message has been passed on yet. */
  #first = true

  constructor(sink: FrameSink) {
    this.#sink = sink
  }

  /** @returns what is wrong with the frames; undefined when nothing is. After a fault, do not call it again. */
  push(bytes: Uint8Array): string | undefined {
    let data = this.#kept.length > 0 ? Buffer.concat([this.#kept, bytes]) : bytes
    this.#kept = data.subarray(0, 0)
    for (;;) {
      if (this.#rest < 0) {
        const head = readHead(data)
        if (head === undefined) break
        if (typeof head === 'string') return head
        const { opcode, fin, size, length } = head
        if (opcode >= CLOSE) {
          if (data.length < size + length) break
          this.#sink.control(opcode, data.subarray(size, size + length))
          data = data.subarray(size + length)
          continue
        }
        if ((opcode === CONTINUATION) !== this.#within) return 'a fragment out of order'
        if (opcode !== CONTINUATION) {
          this.#binary = opcode === BINARY
          this.#first = true
        }
        this.#within = !fin
        this.#fin = fin
        this.#rest = length
        data = data.subarray(size)
      }
      const payload = data.subarray(0, this.#rest)
      this.#rest -= payload.length
      const last = this.#fin && this.#rest === 0
      if (last || payload.length > 0) {
        this.#sink.part(payload, this.#binary, this.#first, last)
        this.#first = false
      }
      if (this.#rest > 0) return undefined
      this.#rest = -1
      data = data.subarray(payload.length)
    }
    this.#kept = data
    return undefined
  }
}

interface Head {
  opcode: number
  fin: boolean
  /** Bytes of the head. */
  size: number
  /** Bytes of the payload. */
  length: number
}

/** @returns undefined while the head is not whole; a text when it is not one of a server's frame */
function readHead(data: Uint8Array): Head | string | undefined {
  if (data.length < 2) return undefined
  const opcode = data[0]! & 0x0f
  const fin = (data[0]! & FIN) !== 0
  if ((data[0]! & RESERVED) !== 0) return 'a frame of an extension that was not agreed on'
  if ((data[1]! & MASKED) !== 0) return 'a masked frame'
  if (opcode > PONG || (opcode > BINARY && opcode < CLOSE)) return 'an unknown opcode'
  let length = data[1]!
  if (opcode >= CLOSE && (!fin || length > CONTROL_BYTES)) return 'a control frame that is long or in fragments'
  if (opcode === CLOSE && length === 1) return 'a close code of one byte'
  if (length < SHORT) return { opcode, fin, size: 2, length }
  const size = length === SHORT ? 4 : 10
  if (data.length < size) return undefined
  const view = new DataView(data.buffer, data.byteOffset)
  if (size === 4) length = view.getUint16(2)
  else {
    const long = view.getBigUint64(2)
    if (long > BigInt(Number.MAX_SAFE_INTEGER)) return 'a frame that is too long'
    length = Number(long)
  }
  return { opcode, fin, size, length }
}
