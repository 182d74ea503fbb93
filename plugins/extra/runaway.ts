/**
 * Slows, then refuses, conversations that repeat themselves and cost: agents that run away.
 *
 *   - token-estimate
 *   - runaway: { refuse_usd: 2 }
 *   - admission
 *
 * A request repeats when it brings nothing that its conversation has not had before: the same request again, or a
 * history that ends with tool calls and results which are further up already. Repeats are counted with what they were
 * billed, by the place at which the conversation has been since its last new step. An agent that makes progress is at
 * another place with each request, and is never counted. docs/runaway.md says what else is not.
 */
import {
  conversation,
  cost,
  definePlugin,
  deny,
  type Exchange,
  estimate,
  loopTurn,
  type Reply,
  request,
  slot,
  usage,
} from 'sluice'
import { mayBeStale, placeOf } from './runaway/steps.ts'
import { type Bounds, type Organization, type Place, Watch } from './runaway/watch.ts'

interface Options {
  window: number
  slow_repeats: number
  slow_usd: number
  delay: number
  refuse_repeats: number
  refuse_usd: number
  refuse_for: number
  scope: 'conversation' | 'key'
  exempt: string[]
}

/** Who calls, as `auth` fills it, and the model with its price, as `model-access` does. */
const identity = slot<{ organization: { id: string }; key: { id: string } }>('identity')
const model = slot<{ id: string; price: Parameters<typeof cost>[1] | null }>('model')
/** For how long the request was made to wait, in milliseconds: log, trace and metrics have it. */
const slowed = slot<number>('slowed')
const repeats = slot<number>('runaway.repeats')

/** Requests of one organization that wait at a time. Each holds its body. */
const MOST_WAITING = 32

export default definePlugin<Options>({
  name: 'runaway',
  summary: 'Slows, then refuses, conversations that repeat themselves and cost.',
  config: {
    type: 'object',
    additionalProperties: false,
    properties: {
      window: {
        type: ['string', 'integer'],
        format: 'duration',
        default: '10m',
        description: 'How long repeats are added up, from the first one on. Then it begins anew.',
      },
      slow_repeats: {
        type: 'integer',
        minimum: 1,
        default: 20,
        description: 'A conversation is slowed once this many of its requests were repeats, and cost `slow_usd`.',
      },
      slow_usd: { type: 'number', minimum: 0, default: 1, description: 'What the repeats cost then at least, in USD.' },
      delay: {
        type: ['string', 'integer'],
        format: 'duration',
        default: '5s',
        description: 'How long each further repeat waits. At most a minute.',
      },
      refuse_repeats: {
        type: 'integer',
        minimum: 1,
        default: 50,
        description: 'It is refused once this many were repeats, and cost `refuse_usd`.',
      },
      refuse_usd: {
        type: 'number',
        minimum: 0,
        default: 5,
        description: 'What the repeats cost then at least, in USD.',
      },
      refuse_for: {
        type: ['string', 'integer'],
        format: 'duration',
        default: '10m',
        description: 'How long it is refused, unless it goes on with something new.',
      },
      scope: {
        enum: ['conversation', 'key'],
        default: 'conversation',
        description: 'What is slowed and refused: the conversation that repeats itself, or all requests of its key.',
      },
      exempt: {
        type: 'array',
        items: { type: 'string', minLength: 1 },
        default: [],
        description: 'Organizations, and keys as ORGANIZATION/KEY, that are left alone. It lifts a refusal at once.',
      },
    },
  },
  needs: [identity, conversation, model, estimate],
  mayProvide: [slowed, repeats],
  aboveTerminal: true,
  dryRun: 'safe',
  check({ window, delay, slow_repeats, slow_usd, refuse_repeats, refuse_usd, refuse_for }) {
    const faults: string[] = []
    if (window === 0) faults.push('window is 0: nothing would ever be added up')
    if (delay > 60_000) faults.push(`delay is ${delay} ms; more than a minute looks like an outage to clients`)
    if (refuse_for === 0) faults.push('refuse_for is 0: nothing would ever be refused')
    if (slow_repeats > refuse_repeats || slow_usd > refuse_usd)
      faults.push('slow_repeats and slow_usd may not be above refuse_repeats and refuse_usd: set them to the same')
    return faults
  },
  create(options, { clock, log, shared, terminal }) {
    const { delay, scope } = options
    const bounds: Bounds = {
      window: options.window,
      slow: { repeats: options.slow_repeats, cost: options.slow_usd * 1e9 },
      refuse: { repeats: options.refuse_repeats, cost: options.refuse_usd * 1e9 },
      refuseFor: options.refuse_for,
    }
    const exempt = new Set(options.exempt)
    const watch = shared.use('watch', () => new Watch())

    /** The request has ended. */
    function ended(x: Exchange, place: Place, repeat: boolean, organization: Organization): void {
      place.running--
      const spent = repeat ? billOf(x) : 0
      // What failed or was refused is no sign of an agent that runs away, and costs nothing.
      if (spent === 0) return
      place.add(spent, clock.mono())
      const level = place.level(clock.mono(), bounds)
      if (level === 'free') return
      const { key, organization: owner } = x.get(identity)
      if (scope === 'key') organization.keep(key.id, place)
      if (level === place.told) return
      place.told = level
      const does = level === 'slow' ? 'is slowed' : 'is refused'
      log.warn(
        {
          request_id: x.id,
          organization: owner.id,
          key: key.id,
          model: x.get(model).id,
          repeats: place.repeats,
          cost: place.cost,
        },
        `a conversation repeats itself and ${does}`,
      )
    }

    /** What becomes of a request by the place where its conversation stands, or where another one of its key does. */
    function act(x: Exchange, place: Place, owner: Organization): undefined | Reply | Promise<undefined> {
      const level = place.level(clock.mono(), bounds)
      if (level === 'free') return undefined
      x.set(repeats, place.repeats)
      if (level === 'refuse') return refusal(place.repeats, scope, place.left(clock.mono(), bounds))
      if (owner.waiting >= MOST_WAITING) return refusal(place.repeats, scope, delay)
      return wait(x, owner)
    }

    async function wait(x: Exchange, owner: Organization): Promise<undefined> {
      owner.waiting++
      x.set(slowed, delay)
      await new Promise<void>(resolve => {
        const timer = clock.setTimer(delay, resolve)
        // The client leaves.
        x.defer(() => {
          timer.cancel()
          resolve()
        })
      })
      owner.waiting--
    }

    /** Looks where the conversation stands. */
    async function look(
      x: Exchange,
      owner: Organization,
      alone: boolean,
      held: Place | undefined,
    ): Promise<undefined | Reply> {
      const work = placeOf(x.get(conversation), userOf(x), clock.now())
      let found = work.next()
      while (!found.done) {
        await loopTurn(x)
        if (x.closed) return undefined
        found = work.next()
      }
      const { id, stale } = found.value
      const { place, known } = owner.at(`${x.get(identity).key.id}\0${id}`)
      // Who asks the same several times at once means to.
      const repeat = alone && place.running === 0 && (known || stale > 0)
      place.running++
      x.defer(() => ended(x, place, repeat, owner))
      return act(x, place.level(clock.mono(), bounds) === 'free' && held ? held : place, owner)
    }

    /** Where a conversation of the key is slowed or refused, if that holds for all of the key. */
    function heldBy(key: string, owner: Organization): Place | undefined {
      const place = scope === 'key' ? owner.ofKey(key) : undefined
      if (place?.level(clock.mono(), bounds) !== 'free') return place
      owner.keep(key, undefined)
      return undefined
    }

    return {
      onRequest(x): undefined | Reply | Promise<undefined | Reply> {
        if (terminal.advisory) return undefined
        const { organization, key } = x.get(identity)
        if (exempt.has(organization.id) || exempt.has(`${organization.id}/${key.id}`)) return undefined
        const owner = watch.of(organization.id)
        const held = heldBy(key.id, owner)
        if (held?.level(clock.mono(), bounds) === 'refuse') return act(x, held, owner)
        const asked = x.get(conversation)
        // The same request has the same count of tokens. Another one has it by chance: its digest tells them apart.
        const { place, known } = owner.at(`${key.id}\0${x.get(estimate).input}/${asked.turns.length}`)
        const alone = place.running === 0
        place.running++
        x.defer(() => {
          place.running--
        })
        if (known || mayBeStale(asked)) return look(x, owner, alone, held)
        return held && act(x, held, owner)
      },
      onResponseHead(x, head) {
        const ms = x.peek(slowed)
        if (ms !== undefined) head.headers.set('x-sluice-slowed', `repeats=${x.peek(repeats)}, delay_ms=${ms}`)
        return undefined
      },
    }
  },
})

/** For whom, within its key, the request is: people who begin with the same question are several conversations. */
function userOf(x: Exchange): string {
  const body = x.peek(request)
  const metadata = body?.['metadata'] as Record<string, unknown> | null | undefined
  const names = [body?.['safety_identifier'], body?.['user'], metadata?.['user_id']]
  return (names.find(name => typeof name === 'string' && name !== '') as string | undefined) ?? ''
}

/** What the request was billed, nano-USD; of an organization that pays nothing, what it would have been. */
function billOf(x: Exchange): number {
  const bill = x.peek(usage)
  if (!bill?.billed) return 0
  const { price } = x.get(model)
  return bill.cost || (price ? cost(bill.usage, price) : 0)
}

function refusal(repeats: number, scope: Options['scope'], horizonMs: number): Reply {
  const what = scope === 'key' ? 'A conversation of this key repeats itself' : 'This conversation repeats itself'
  const cure =
    scope === 'key'
      ? 'All requests of the key are refused: stop what repeats itself, and retry after the wait.'
      : 'Send something new with it, such as another instruction or a corrected result of a tool, or begin another conversation; or retry after the wait.'
  return deny('conversation_repeats', {
    message: `${what}: ${repeats} requests brought nothing that it had not had before. ${cure} Whoever runs this service can exempt the key.`,
    details: { repeats },
    horizonMs,
  })
}
