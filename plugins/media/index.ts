import { type Budget, jobs } from '../../core/engine/budget.ts'
import { definePlugin, deny, type Reply, type SharedState, tenantOf } from '../../core/plugin.ts'
import { FairGate } from '../../core/tools/fair.ts'
import { count, duration, list, object, size, text } from '../../core/tools/vocabulary.ts'
import { type MediaFetch, mediaFetch, preparing } from '../shared/slots.ts'
import { mediaGateKey } from '../shared/state.ts'
import { notFetched } from './denials.ts'
import { MediaFault, MediaFetcher, type Outside } from './fetch-media.ts'
import { urlMedia, withMedia, withPlaceholders } from './url-media.ts'

/** One tenant does not have them all, so that one whose hosts are slow leaves room for others. */
export const fetchingBudget = {
  name: 'media_fetching',
  bound: 'requests whose files are being fetched',
  owner: 'tenant',
  each: 16,
  all: 32,
  over: 'nothing: the next waits for its turn',
  seen: '`sluice_media_fetches`',
  metrics: [
    jobs('sluice_media_fetches', 'Requests whose files are being fetched, and that wait for it.', ({ shared }) =>
      mediaGate(shared),
    ),
  ],
} as const satisfies Budget

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
  max_text: size('2MiB', 'Most bytes of all text documents of one request that are fetched.'),
  max_files: count(60, 'Most files of one request that are fetched.'),
  timeout: duration('10s', 'Longest wait for all files of one request.'),
})

/** The plugin; `outside` lets tests replace the network. */
export function mediaPlugin(outside: Partial<Outside> = {}) {
  return definePlugin({
    name: 'media',
    summary: 'Fetches images and documents that requests name by URL, for backends that take bytes alone.',
    config: schema,
    provides: [mediaFetch],
    aboveTerminal: true,
    // A URL that would have to be fetched counts as not available.
    dryRun: options => ({ ...options, fetch: [] }),
    create(options, { log, shared }) {
      const fetcher = new MediaFetcher(options, outside)
      const gate = mediaGate(shared)

      const service: MediaFetch = {
        lacking(conversation, kinds) {
          if (!fetcher.isOn) return null
          const wanted = urlMedia(conversation).filter(file => kinds.has(file.kind))
          if (wanted.length === 0 || !wanted.every(file => fetcher.allows(file.url))) return null
          return { wanted, whole: withPlaceholders(conversation, kinds) }
        },
        async fetch(x, conversation, wanted) {
          const stop = new AbortController()
          const { signal } = stop
          let refused: Reply | undefined
          x.incoming.onAborted(() => {
            refused ??= clientLeft()
            stop.abort()
          })
          let leave: (() => void) | undefined
          try {
            leave = await gate.enter(tenantOf(x), signal)
            const files = await fetcher.fetchAll(wanted, signal, bytes => {
              refused ??= x.peek(preparing)?.take(bytes)
              if (refused) stop.abort()
            })
            return { whole: withMedia(conversation, files) }
          } catch (error) {
            if (refused) return { refused, final: true }
            if (!(error instanceof MediaFault)) throw error
            log.info({ request_id: x.id, reason: error.reason, err: error.cause }, 'media not fetched')
            return { refused: notFetched(error, options), final: false }
          } finally {
            leave?.()
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

/** What fetches of this process wait for. */
export function mediaGate(shared: SharedState): FairGate {
  return shared.use(mediaGateKey, () => new FairGate(fetchingBudget.all, fetchingBudget.each))
}

/** The client has disconnected, so this refusal is not sent. */
function clientLeft(): Reply {
  return deny('provider_unavailable', { message: 'The client has left.' })
}
