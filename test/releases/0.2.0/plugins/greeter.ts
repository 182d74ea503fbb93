/** A plugin as release 0.2.0 documents them: the hooks of one that is no terminal, and the helpers that go with them. */
import {
  answer,
  conversation,
  definePlugin,
  deny,
  estimate,
  GatewayError,
  refuse,
  request,
  requestBody,
  type StreamEvent,
  slot,
  usage,
} from 'sluice'

interface Options {
  greeting: string
  wait: number
  most: number
}

const identity = slot<{ organization: { id: string }; key: { id: string } }>('identity')
export const greeted = slot<string>('greeter.greeted')
const characters = slot<number>('greeter.characters')

export default definePlugin<Options, 'models'>({
  name: 'greeter',
  summary: 'Greets.',
  config: {
    type: 'object',
    additionalProperties: false,
    required: ['greeting'],
    properties: {
      greeting: { type: 'string' },
      wait: { type: ['string', 'integer'], format: 'duration', default: '1ms' },
      most: { type: ['string', 'integer'], format: 'size', default: '1MiB' },
    },
  },
  needs: [identity, requestBody, request, conversation],
  provides: [greeted],
  mayProvide: [characters],
  rewrites: [conversation],
  uses: ['models'],
  check: ({ most }) => (most > 0 ? [] : ['most is above 0']),
  create({ greeting, wait, most }, { clock, log, random, config, store, shared, id, pipeline, surfaces, accounts }) {
    const seen = shared.use('greeter.seen', () => ({ requests: 0 }))
    const known = typeof store.ledger.query === 'function' && typeof accounts.find === 'function'
    log.info({ id, pipeline, known, surfaces: surfaces.length, models: config.models.length }, 'greeter made')
    return {
      body: { maxBytes: most, timeoutMs: 10_000 },
      beforeBody: x => (x.incoming.headers.get('x-stop') === 'early' ? answer(418, { stopped: x.id }) : undefined),
      async onRequest(x) {
        if (x.incoming.headers.get('x-stop') === 'denied') return deny('bad_request', { message: 'Stopped.' })
        if (x.incoming.headers.get('x-stop') === 'refused') return refuse('Stopped.')
        if (x.incoming.headers.get('x-stop') === 'thrown')
          throw new GatewayError('bad_request', { message: 'Stopped.' })
        const release = x.hold()
        await new Promise<void>(resolve => clock.setTimer(wait, resolve))
        release()
        x.set(
          greeted,
          `${greeting} ${x.get(identity).organization.id} ${x.get(requestBody).length > 0} ${random() < 1}`,
        )
        const was = x.get(conversation)
        x.set(conversation, { ...was, system: [...was.system, { type: 'text', text: 'Be brief.' }] })
        x.defer(() => log.info({}, 'greeter released'))
        x.onSent({ head() {}, bytes() {}, end: whole => log.info({ whole }, 'greeter sent') })
        seen.requests++
        return undefined
      },
      onEarlyHead: (_, head) => void head.headers.set('x-greeter', 'early'),
      onResponseHead(x, head) {
        head.headers.set('x-greeter', x.peek(greeted) ?? 'none')
        return undefined
      },
      rewriteEvent(x, event: StreamEvent, push) {
        if (event.type === 'text') x.set(characters, (x.peek(characters) ?? 0) + event.text.length)
        push(event.type === 'text' ? { ...event, text: event.text.toUpperCase() } : event)
        return undefined
      },
      onResponseEnd(_, push) {
        push({ type: 'text', text: ' Bye.' })
        return undefined
      },
      onError: (_, error) => (error.code === 'model_not_found' ? answer(404, { none: error.status }) : undefined),
      onSettle(x, { outcome }) {
        const counted = x.peek(estimate)?.input ?? 0
        log.info(
          { outcome, characters: x.peek(characters), counted, cost: x.peek(usage)?.cost, reply: x.wholeReply() },
          'greeter settled',
        )
        return undefined
      },
      close: () => log.info({ requests: seen.requests }, 'greeter closed'),
    }
  },
})
