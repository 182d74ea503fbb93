/**
 * What an image or a PDF counts by its size, in tokens (docs/metering.md). Providers count images by their pixels and
 * PDFs by their pages. The size in pixels is in the first bytes of a file; the number of pages is not, so a PDF counts
 * by its bytes.
 */
import type { MediaSource } from '../core/canon/conversation.ts'

/** Pixels that count one token. */
const PIXELS_A_TOKEN = 750
/** Most tokens of one image: providers scale larger ones down, to some 1.2 million pixels. */
const MAX_IMAGE = 1600
/** Bytes that count one token, of an image in which no size is found. */
const IMAGE_BYTES_A_TOKEN = 256
/** Bytes that count one token, of a PDF: a scanned page has some 300 KB, and about 1,500 tokens. */
const PDF_BYTES_A_TOKEN = 200
/** A JPEG file has its size behind other segments; no more than this many are passed over. */
const MAX_SEGMENTS = 64

/** @returns 0 when the size is not known, because the image is a URL */
export function imageTokens(source: MediaSource): number {
  if (source.kind === 'url') return 0
  const pixels = pixelsOf(source.data)
  const tokens = pixels > 0 ? pixels / PIXELS_A_TOKEN : bytesOf(source.data) / IMAGE_BYTES_A_TOKEN
  return Math.min(Math.ceil(tokens), MAX_IMAGE)
}

/** @returns 0 when the size is not known, because the document is a URL */
export function pdfTokens(source: MediaSource): number {
  return source.kind === 'url' ? 0 : Math.ceil(bytesOf(source.data) / PDF_BYTES_A_TOKEN)
}

function bytesOf(base64: string): number {
  const padding = base64.endsWith('==') ? 2 : base64.endsWith('=') ? 1 : 0
  return Math.floor((base64.length * 3) / 4) - padding
}

/** Bytes `[at, at + length)` of a file in base64; fewer at its end. Nothing else of the file is decoded. */
function bytesAt(base64: string, at: number, length: number): Buffer {
  const group = Math.floor(at / 3)
  const from = at - 3 * group
  const groups = Math.ceil((from + length) / 3)
  return Buffer.from(base64.slice(4 * group, 4 * (group + groups)), 'base64').subarray(from, from + length)
}

/** Width times height, from the head of the file; 0 when they are not found. */
function pixelsOf(base64: string): number {
  const head = bytesAt(base64, 0, 30)
  if (head.length < 30) return 0
  if (head.readUInt32BE(0) === 0x89504e47) return head.readUInt32BE(16) * head.readUInt32BE(20)
  if (head.toString('latin1', 0, 4) === 'GIF8') return head.readUInt16LE(6) * head.readUInt16LE(8)
  if (head.toString('latin1', 0, 4) === 'RIFF' && head.toString('latin1', 8, 12) === 'WEBP') return webp(head)
  return head.readUInt16BE(0) === 0xffd8 ? jpeg(base64) : 0
}

function webp(head: Buffer): number {
  switch (head.toString('latin1', 12, 16)) {
    case 'VP8 ':
      return (head.readUInt16LE(26) & 0x3fff) * (head.readUInt16LE(28) & 0x3fff)
    case 'VP8L': {
      const bits = head.readUInt32LE(21)
      return ((bits & 0x3fff) + 1) * (((bits >>> 14) & 0x3fff) + 1)
    }
    case 'VP8X':
      return (head.readUIntLE(24, 3) + 1) * (head.readUIntLE(27, 3) + 1)
    default:
      return 0
  }
}

/** Follows the segments of a JPEG file to the one that begins the frame. */
function jpeg(base64: string): number {
  let at = 2
  for (let i = 0; i < MAX_SEGMENTS; i++) {
    const segment = bytesAt(base64, at, 9)
    if (segment.length < 9 || segment[0] !== 0xff) return 0
    const marker = segment[1]!
    // SOF0 to SOF15, without DHT, JPG and DAC, which share the range.
    if (marker >= 0xc0 && marker <= 0xcf && marker !== 0xc4 && marker !== 0xc8 && marker !== 0xcc)
      return segment.readUInt16BE(5) * segment.readUInt16BE(7)
    at += 2 + segment.readUInt16BE(2)
  }
  return 0
}
