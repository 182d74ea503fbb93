import { deny, type Reply } from '../../core/plugin.ts'
import type { MediaFault, MediaOptions } from './fetch-media.ts'

/** Media could not be fetched. The message says why, and nothing about the network behind a host name. */
export function notFetched(fault: MediaFault, options: MediaOptions): Reply {
  const { kind, path } = fault.media!
  return deny('invalid_value', {
    message: `The ${kind} at ${path} could not be fetched: ${why(fault, kind, options)}. Send its data instead, or another URL.`,
    param: path,
  })
}

function why(
  fault: MediaFault,
  kind: 'image' | 'document',
  { max_bytes, max_text, max_files, timeout }: MediaOptions,
): string {
  switch (fault.reason) {
    case 'unreachable':
      return 'its host could not be reached'
    case 'status':
      return `its host answered with status ${fault.status}`
    case 'redirect':
      return 'it redirects too often, or to where this service fetches nothing'
    case 'too_large':
      return `the files of the request are over ${max_bytes} bytes (media.max_bytes)`
    case 'too_much_text':
      return `the text documents of the request are over ${max_text} bytes (media.max_text)`
    case 'too_many':
      return `the request names more than ${max_files} files (media.max_files)`
    case 'timeout':
      return `the files of the request did not arrive within ${timeout / 1000} s (media.timeout)`
    case 'wrong_type':
      return kind === 'image' ? 'it is no PNG, JPEG, GIF or WebP image' : 'it is neither a PDF nor UTF-8 plain text'
  }
}
