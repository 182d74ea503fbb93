import { definePlugin, deny, type Reply } from '../../core/plugin.ts'
import { duration, list, object, size, text } from '../../core/vocabulary.ts'
import { type MediaFetch, mediaFetch } from '../shared/slots.ts'
import { notFetched, tooManyFetches } from './denials.ts'
import { MediaFault, MediaFetcher, type Outside } from './fetch-media.ts'
import { urlMedia, withMedia, withPlaceholders } from './url-media.ts'

/** The gateway fetches media for at most this many requests at a time; others are refused and may retry. */
const MAX_FETCHING = 32

const schema = object({
  fetch: list(
    text('A host name.', {
      pattern: '^(\\*\\.)?[A-Za-z0-9.-]+(:\\d+)?$',
      examples: ['images.example.com', '*.example.com'],
    }),
    'Hosts that the gateway itself may fetch images and documents from.',
    { default: [], uniqueItems: true },
  ),
  max_bytes: size('20MiB', 'Largest file that is fetched, and most bytes of all files of one request.'),
  timeout: duration('10s', 'Longest wait for all files of one request.'),
})

/** The plugin; `outside` lets tests replace the network. */
export function mediaPlugin(outside: Partial<Outside> = {}) {
  return definePlugin({
    name: 'media',
    summary: 'Fetches images and documents that requests name by URL, for backends that take bytes alone.',
    config: schema,
    provides: [mediaFetch],
    create(options, { log, shared }) {
      const fetcher = new MediaFetcher(options, outside)
      const load = shared.use('media.fetching', () => ({ requests: 0 }))

      const service: MediaFetch = {
        lacking(conversation, kinds) {
          if (!fetcher.isOn) return null
          const wanted = urlMedia(conversation).filter(file => kinds.has(file.kind))
          if (wanted.length === 0 || !wanted.every(file => fetcher.allows(file.url))) return null
          return { wanted, whole: withPlaceholders(conversation, kinds) }
        },
        async fetch(x, conversation, wanted) {
          if (load.requests >= MAX_FETCHING) return { refused: tooManyFetches(), final: true }
          load.requests++
          const disconnected = new AbortController()
          x.incoming.onAborted(() => disconnected.abort())
          try {
            return { whole: withMedia(conversation, await fetcher.fetchAll(wanted, disconnected.signal)) }
          } catch (error) {
            if (disconnected.signal.aborted) return { refused: clientLeft(), final: true }
            if (!(error instanceof MediaFault)) throw error
            log.info({ request_id: x.id, reason: error.reason, err: error.cause }, 'media not fetched')
            return { refused: notFetched(error, options), final: false }
          } finally {
            load.requests--
          }
        },
      }

      return {
        onRequest(x) {
          x.set(mediaFetch, service)
          return undefined
        },
      }
    },
  })
}

/** Fetches media for backends that take them only as bytes, from hosts that the operator lists (REQ-1). */
export const media = mediaPlugin()

/** The client has disconnected, so this refusal is not sent. */
function clientLeft(): Reply {
  return deny('provider_unavailable', { message: 'The client has left.' })
}
