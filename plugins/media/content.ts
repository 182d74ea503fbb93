/** The type of fetched bytes, found from the first bytes. The server's Content-Type can only contradict it. */
import type { DocumentPart, ImagePart } from '../../core/canon/conversation.ts'

export type ImageSource = ImagePart['source']
export type DocumentSource = DocumentPart['source']

/** Content types that do not say what the bytes are. */
const UNSPECIFIC = new Set(['', 'application/octet-stream', 'binary/octet-stream'])
/** `%PDF-` may begin anywhere within this many bytes (ISO 32000, annex H). */
const PDF_WITHIN = 1024

/** A PNG, JPEG, GIF or WebP image; null when the bytes are none of these, or the Content-Type says something else. */
export function imageOf(contentType: string, bytes: Buffer): ImageSource | null {
  const type = essence(contentType)
  if (!UNSPECIFIC.has(type) && !type.startsWith('image/')) return null
  const mediaType = imageType(bytes)
  return mediaType === null ? null : { kind: 'data', mediaType, data: bytes.toString('base64') }
}

function imageType(bytes: Buffer): string | null {
  const starts = (text: string, at = 0) => bytes.subarray(at, at + text.length).equals(Buffer.from(text, 'latin1'))
  if (starts('\x89PNG\r\n\x1a\n')) return 'image/png'
  if (starts('\xff\xd8\xff')) return 'image/jpeg'
  if (starts('GIF87a') || starts('GIF89a')) return 'image/gif'
  if (starts('RIFF') && starts('WEBP', 8)) return 'image/webp'
  return null
}

/** A PDF or UTF-8 plain text; null when the bytes are neither, or the Content-Type says something else. */
export function documentOf(contentType: string, bytes: Buffer): DocumentSource | null {
  const type = essence(contentType)
  if (type === 'text/plain') return textOf(contentType, bytes)
  if (!UNSPECIFIC.has(type) && type !== 'application/pdf' && type !== 'application/x-pdf') return null
  if (!bytes.subarray(0, PDF_WITHIN).includes('%PDF-')) return null
  return { kind: 'data', mediaType: 'application/pdf', data: bytes.toString('base64') }
}

function textOf(contentType: string, bytes: Buffer): DocumentSource | null {
  const charset = /;\s*charset="?([\w-]+)/i.exec(contentType)?.[1]?.toLowerCase() ?? 'utf-8'
  if (charset !== 'utf-8' && charset !== 'utf8' && charset !== 'us-ascii') return null
  if (bytes.length === 0 || bytes.includes(0)) return null
  try {
    return { kind: 'text', text: new TextDecoder('utf-8', { fatal: true }).decode(bytes) }
  } catch {
    return null
  }
}

function essence(contentType: string): string {
  return (contentType.split(';', 1)[0] ?? '').trim().toLowerCase()
}
