/**
 * Media in requests: the sources of images and documents (wire.md B.1, B.2, CHAT-3). Nothing is fetched here. Every
 * scan takes linear time.
 */
import { type DataSource, keepDataUrl, type MediaSource } from '../core/canon/conversation.ts'
import type { GatewayError } from '../core/canon/errors.ts'
import { describe, fault } from './check.ts'

/** The media types of images that surfaces accept. */
export const IMAGE_TYPES: ReadonlySet<string> = new Set(['image/png', 'image/jpeg', 'image/gif', 'image/webp'])

/** Reads an `https://` URL, or a `data:` URL of a supported image type. @throws GatewayError invalid_value at `path` */
export function imageSource(url: string, path: string): MediaSource {
  const data = dataUrl(url)
  if (!data) return httpsSource(url, path, 'data:image/png;base64,…')
  const source = imageData(data.mediaType, data.data, path, path)
  keepDataUrl(source, url)
  return source
}

/** Checks base64 image bytes and their type. @throws GatewayError invalid_value at `typePath` or `dataPath` */
export function imageData(mediaType: string, data: string, typePath: string, dataPath: string): DataSource {
  if (!IMAGE_TYPES.has(mediaType))
    throw fault(
      'invalid_value',
      typePath,
      w => `${w} has the media type ${describe(mediaType)}; images must be ${[...IMAGE_TYPES].join(', ')}.`,
    )
  requireBase64(data, dataPath)
  return { kind: 'data', mediaType, data }
}

export type DocumentSource = MediaSource | TextSource
type TextSource = { kind: 'text'; text: string }

/** Reads a `data:` URL of a PDF or of plain text. @throws GatewayError invalid_value at `path` */
export function documentSource(url: string, path: string): DocumentSource {
  const data = dataUrl(url)
  if (!data) throw notDataUrl(path)
  const source = documentData(data.mediaType, data.data, path)
  if (source.kind === 'data') keepDataUrl(source, url)
  return source
}

/** Checks base64 document bytes; plain text is decoded. @throws GatewayError invalid_value at `path` */
export function documentData(mediaType: string, data: string, path: string): DataSource | TextSource {
  if (mediaType !== 'application/pdf' && mediaType !== 'text/plain')
    throw fault(
      'invalid_value',
      path,
      w => `${w} has the media type ${describe(mediaType)}; documents must be application/pdf or text/plain.`,
    )
  requireBase64(data, path)
  if (mediaType === 'text/plain') return { kind: 'text', text: Buffer.from(data, 'base64').toString('utf8') }
  return { kind: 'data', mediaType, data }
}

/**
 * Checks that `url` is an absolute `https://` URL.
 * @param example a data URL for the error message; '' where data URLs are not allowed
 * @throws GatewayError invalid_value at `path`
 */
export function httpsSource(url: string, path: string, example = ''): MediaSource {
  if (url.length > MAX_URL || !/^https:\/\//i.test(url.slice(0, 8)) || !URL.canParse(url))
    throw fault(
      'invalid_value',
      path,
      w =>
        `${w} is ${describe(url)}; it must be an https:// URL${example === '' ? '' : ` or a data URL (${example})`}.`,
    )
  return { kind: 'url', url }
}
/** The longest URL that is accepted, in UTF-16 units. No common server accepts a longer one. */
const MAX_URL = 16_384

function notDataUrl(path: string): GatewayError {
  return fault('invalid_value', path, w => `${w} must be a data URL, e.g. data:application/pdf;base64,….`)
}

/** Splits `data:TYPE[;param…];base64,DATA`; null when `url` has another form. The type is lower-cased. */
export function dataUrl(url: string): { mediaType: string; data: string } | null {
  if (url.slice(0, 5).toLowerCase() !== 'data:') return null
  const head = url.slice(5, 5 + MAX_DATA_HEAD)
  const comma = head.indexOf(',')
  if (comma < 0) return null
  const fields = head.slice(0, comma).toLowerCase().split(';')
  if (fields.length < 2 || fields.at(-1)!.trim() !== 'base64') return null
  return { mediaType: fields[0]!.trim(), data: url.slice(5 + comma + 1) }
}
const MAX_DATA_HEAD = 256

function requireBase64(data: string, path: string): void {
  if (!isBase64(data))
    throw fault('invalid_value', path, w => `${w} is not valid base64 (standard alphabet, padded, no line breaks).`)
}

/** Text is decoded in pieces of this many characters: a file of 6 MiB takes 0.4 ms, and 13 when JavaScript reads it. */
const PIECE = 64 * 1024
const decoded = Buffer.allocUnsafeSlow((PIECE / 4) * 3)

/** True for base64 in the standard alphabet that is padded to a multiple of four characters and not empty. */
export function isBase64(text: string): boolean {
  if (text.length === 0 || text.length % 4 !== 0) return false
  for (let from = 0; from < text.length; from += PIECE) {
    const piece = text.slice(from, from + PIECE)
    const padding = from + PIECE < text.length ? 0 : piece.endsWith('==') ? 2 : piece.endsWith('=') ? 1 : 0
    // Node's decoder also accepts base64url, and skips other characters, which shortens the output; of a character
    // beyond Latin-1 it may read the low byte alone. Neither is base64.
    if (piece.includes('-') || piece.includes('_') || Buffer.byteLength(piece) !== piece.length) return false
    if (decoded.write(piece, 'base64') !== (piece.length / 4) * 3 - padding) return false
  }
  return true
}
