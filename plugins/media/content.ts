/** What fetched bytes are: by their own first bytes, with the server's word as a veto. */
import type { DocumentPart, ImagePart } from '../../core/conversation.ts'

export type ImageSource = ImagePart['source']
export type DocumentSource = DocumentPart['source']

/** Types that say nothing. */
const UNSPECIFIC = new Set(['', 'application/octet-stream', 'binary/octet-stream'])
/** A PDF may begin with other bytes (ISO 32000, annex H). */
const PDF_WITHIN = 1024

/** A PNG, JPEG, GIF or WebP image; null when it is none, or the server says that it is something else. */
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

/** A PDF or UTF-8 plain text; null when it is neither, or the server says that it is something else. */
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
