import { createHash } from 'node:crypto'
import {
  definePlugin,
  deny,
  type Exchange,
  GatewayError,
  type Reply,
  request,
  requestBody,
  slot,
} from '../core/plugin.ts'
import type { IdempotencyRecord, IdempotencyState } from '../core/ports/store.ts'
import { duration, object, size } from '../core/tools/vocabulary.ts'
import { ModelAccess } from './model-access/access.ts'
import { type Asked, askedBy, askedOf, refusalOf, refusalOfUnknown } from './model-access/asked.ts'
import { identity, takenOver } from './shared/slots.ts'

const recording = slot<Recording>('idempotencyRecording')
const executed = slot<boolean>('idempotencyExecuted')
/** The reply as it is sent. A body of more than `max_record` bytes is only counted. */
interface Recording {
  status: number
  headers: [string, string][]
  pieces: Uint8Array[]
  bytes: number
  /** The reply was sent to its end. */
  whole: boolean
}

/** Headers that belong to one transmission of a reply. They are not recorded: a replay gets new ones. */
const NOT_RECORDED = new Set(['x-request-id', 'request-id', 'date', 'connection'])

/** Limits hold for their moment; those of a reply that is replayed may be a day old. */
const tellsLimits = (name: string): boolean => name.startsWith('x-ratelimit-')

const schema = object({
  keep: duration('24h', 'How long a reply can be replayed.'),
  max_record: size('4MiB', 'Largest reply that is kept; a larger one is remembered as executed but not kept.'),
  max_total: size('1GiB', 'Most bytes kept over all organizations.'),
})

/** Executes the request of an Idempotency-Key once, and replays its reply when the key is sent again (IDEM-1…3). */
export const idempotency = definePlugin({
  name: 'idempotency',
  summary: 'Replays the first answer when an Idempotency-Key comes again.',
  config: schema,
  needs: [identity, requestBody],
  mayProvide: [recording, executed, takenOver],
  aboveTerminal: true,
  dryRun: 'safe',
  uses: ['models'],
  storeBounds: { max_record: 'idempotency.maxRecord', max_total: 'idempotency.maxTotal' },
  create({ keep, max_record }, context) {
    const store = context.store.idempotency
    const access = new ModelAccess(context.config)

    function record(x: Exchange, key: string): void {
      const kept: Recording = { status: 0, headers: [], pieces: [], bytes: 0, whole: false }
      x.set(recording, kept)
      x.onSent({
        head(status, headers) {
          kept.status = status
          for (const [name, value] of headers) if (!NOT_RECORDED.has(name)) kept.headers.push([name, value])
        },
        bytes(piece) {
          kept.bytes += piece.length
          if (kept.bytes <= max_record) kept.pieces.push(piece)
          else kept.pieces.length = 0
        },
        end(whole) {
          kept.whole = whole
        },
      })
      const organization = x.get(identity).organization.id
      let lost: boolean | undefined
      x.set(takenOver, () => (lost ??= !store.holds(organization, key)))
      x.defer(() => {
        if (!x.peek(executed)) settle(store.release(organization, key))
        else {
          const asked = askedBy(x)
          const record =
            kept.bytes > max_record
              ? null
              : {
                  requestId: x.id,
                  status: kept.status,
                  headers: kept.headers,
                  body: Buffer.concat(kept.pieces),
                  whole: kept.whole,
                  asked: asked ? JSON.stringify(asked) : '',
                }
          settle(store.finish(organization, key, record, keep, x.clock.now()))
        }
      })
    }

    function settle(done: void | Promise<void>): void {
      if (done instanceof Promise)
        done.catch(error => context.log.warn({ err: error }, 'idempotency record not written'))
    }

    function answerTo(x: Exchange, key: string, state: IdempotencyState): undefined | Reply {
      switch (state.state) {
        case 'first':
          record(x, key)
          return undefined
        case 'replay': {
          const { record } = state
          const refused = refusalOfReplay(x, record)
          if (refused) return refused
          return {
            kind: 'raw',
            status: record.status,
            headers: [
              ...record.headers.filter(([name]) => !tellsLimits(name)),
              ['x-idempotent-replay', 'true'],
              ['x-original-request-id', record.requestId],
            ],
            body: record.body,
            whole: record.whole,
          }
        }
        case 'running':
          return deny('idempotency_key_conflict', {
            message: 'The first request with this Idempotency-Key is still running. Wait for it, then retry.',
            retriable: true,
            horizonMs: 1000,
          })
        case 'conflict':
          return deny('idempotency_key_conflict', {
            message: 'This Idempotency-Key was used with another body or endpoint. Use a new key for a new request.',
          })
        case 'not_kept':
          return deny('idempotency_key_conflict', {
            message: `The request with this Idempotency-Key was executed (${state.requestId}), but its reply was too large to keep. It is not executed again; use a new key to run it anew.`,
          })
      }
    }

    /** The key may be another one of the organization than that which the reply was made for (decision 79). */
    function refusalOfReplay(x: Exchange, { asked }: IdempotencyRecord): undefined | Reply {
      const caller = x.get(identity)
      if (asked === '') return undefined
      if (asked !== undefined) return refusalOf(access, caller, JSON.parse(asked) as Asked, true)
      // 0.1.0 stored it. The body is the same, so it shows all but what the responses that it continues asked for.
      const body = x.peek(request)
      if (!x.surface || !body) return undefined
      const conversation = x.surface.parse(body)
      const { model, previousResponseId } = conversation
      return (
        refusalOf(access, caller, askedOf(model, conversation), true) ??
        (previousResponseId === undefined
          ? undefined
          : refusalOfUnknown(access, caller, () => undefined, 'previous_response_id'))
      )
    }

    /** Another execution answers this key now: this one ends, unbilled and not recorded. */
    function end(x: Exchange): void {
      x.fail(
        new GatewayError('idempotency_key_conflict', {
          message:
            'This request was interrupted, and another with its Idempotency-Key took over. Retry with the key to get its reply.',
          retriable: true,
          horizonMs: 1000,
        }),
      )
    }

    return {
      onRequest(x) {
        const key = x.incoming.headers.get('idempotency-key')
        if (key === undefined) return undefined
        if (!isKey(key)) {
          return deny('bad_request', {
            message: 'The Idempotency-Key header must be 1 to 255 visible ASCII characters.',
            param: 'Idempotency-Key',
          })
        }
        const fingerprint = createHash('sha256')
          .update(`${x.incoming.path}\0`)
          .update(x.get(requestBody))
          .digest('base64url')
        const organization = x.get(identity).organization.id
        const state = store.begin(organization, key, fingerprint, x.id, keep, x.clock.now(), () => end(x))
        return state instanceof Promise ? state.then(found => answerTo(x, key, found)) : answerTo(x, key, state)
      },
      onResponseEnd(x) {
        if (!x.peek(recording)) return undefined
        const organization = x.get(identity).organization.id
        const key = x.incoming.headers.get('idempotency-key')!
        const claimed = store.claim(organization, key, keep)
        if (!(claimed instanceof Promise)) return undefined
        const release = x.hold()
        claimed
          // A store that does not answer: the lease shows it for a while.
          .catch(() => store.holds(organization, key))
          .then(mine => {
            if (!mine) end(x)
            release()
          })
        return undefined
      },
      onSettle(x, settlement) {
        // Only an executed request is recorded (IDEM-3). A reply that was cut counts as executed only if output was
        // delivered (decisions 28).
        const { outcome } = settlement
        if (x.peek(takenOver)?.()) return undefined
        if (x.peek(recording) && (outcome === 'completed' || outcome === 'incomplete' || settlement.delivered))
          x.set(executed, true)
        return undefined
      },
    }
  },
})

function isKey(value: string): boolean {
  if (value.length === 0 || value.length > 255) return false
  for (let i = 0; i < value.length; i++) {
    const c = value.charCodeAt(i)
    if (c < 0x21 || c > 0x7e) return false
  }
  return true
}
