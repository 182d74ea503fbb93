import { deny, type Reply } from '../../core/plugin.ts'
import type { MediaFault, MediaOptions } from './fetch-media.ts'

/** Media could not be fetched. The message says why, and nothing about the network behind a host name. */
export function notFetched(fault: MediaFault, { max_bytes, timeout }: MediaOptions): Reply {
  const { kind, path } = fault.media!
  return deny('invalid_value', {
    message: `The ${kind} at ${path} could not be fetched: ${why(fault, kind, max_bytes, timeout)}. Send its data instead, or another URL.`,
    param: path,
  })
}

function why(fault: MediaFault, kind: 'image' | 'document', maxBytes: number, timeoutMs: number): string {
  switch (fault.reason) {
    case 'unreachable':
      return 'its host could not be reached'
    case 'status':
      return `its host answered with status ${fault.status}`
    case 'redirect':
      return 'it redirects too often, or to where this service fetches nothing'
    case 'too_large':
      return `the files of the request are over ${maxBytes} bytes (media.max_bytes)`
    case 'timeout':
      return `the files of the request did not arrive within ${timeoutMs / 1000} s (media.timeout)`
    case 'wrong_type':
      return kind === 'image' ? 'it is no PNG, JPEG, GIF or WebP image' : 'it is neither a PDF nor UTF-8 plain text'
  }
}
