/**
 * Replaces personal data in prompts by tokens such as `[EMAIL_QWHDKXZB]` before a provider sees them, and replaces the
 * tokens in the reply by the data again: in text, reasoning, refusals, citations and the arguments of tool calls.
 *
 *   - conversation
 *   - pii-mask: { patterns: { EMPLOYEE: 'E-\d{6}' } }    # below conversation, above token-estimate
 *   - token-estimate
 *
 * A token is made from the data and the gateway's secret, so that equal data have equal tokens in all turns and in all
 * requests, and a provider cannot compute one. Only data of this request's own prompt are put back into its reply.
 */
import { createHmac } from 'node:crypto'
import { conversation, definePlugin, deny, loopTurn, type Reply, slot } from 'sluice'
import { Finder, type Kind, OverBound, Pace } from './pii-mask/find.ts'
import { Masking } from './pii-mask/prompt.ts'
import { type Masked, show } from './pii-mask/reply.ts'

interface Options {
  mask: Kind[]
  patterns: Record<string, string>
  max_found: number
  max_pattern_work: number
  unmask: boolean
}

const masked = slot<Masked>('pii-mask.masked')

export default definePlugin<Options>({
  name: 'pii-mask',
  summary: 'Masks mail addresses, card numbers, phone numbers and IBANs in prompts, and unmasks them in replies.',
  config: {
    type: 'object',
    additionalProperties: false,
    properties: {
      mask: {
        type: 'array',
        items: { type: 'string', enum: ['email', 'card', 'phone', 'iban'] },
        uniqueItems: true,
        default: ['email', 'card', 'phone', 'iban'],
        description: 'The kinds of data that are masked.',
      },
      patterns: {
        type: 'object',
        propertyNames: { pattern: '^[A-Z]{1,12}$' },
        additionalProperties: { type: 'string', minLength: 1, maxLength: 1000 },
        default: {},
        description: 'Regular expressions (RE2) of other data, by the word that their tokens begin with.',
      },
      max_found: {
        type: 'integer',
        minimum: 1,
        default: 50_000,
        description: 'The most data in one prompt. A prompt with more is refused.',
      },
      max_pattern_work: {
        type: 'integer',
        minimum: 1,
        default: 250_000_000,
        description:
          "What the patterns may take for one prompt: a pattern's instructions times the characters of each search.",
      },
      unmask: { type: 'boolean', default: true, description: 'Put the data back into replies.' },
    },
  },
  rewrites: [conversation],
  mayProvide: [masked],
  aboveTerminal: true,
  dryRun: 'safe',
  async create({ mask, patterns, max_found, max_pattern_work, unmask }, { secret }) {
    const finder = await Finder.of(mask, patterns)
    const bounds = { found: max_found, patternWork: max_pattern_work }
    const key = createHmac('sha256', secret).update('pii-mask').digest()
    const tokenOf = (kind: string, data: string): string => {
      const digest = createHmac('sha256', key).update(`${kind}\n${data}`).digest()
      const letters = Array.from({ length: 8 }, (_, i) => String.fromCharCode(65 + (digest.readUInt16BE(2 * i) % 26)))
      return `[${kind}_${letters.join('')}]`
    }
    return {
      onRequest(x) {
        const asked = x.get(conversation)
        const masking = new Masking(finder, tokenOf, new Pace(bounds))
        const work = masking.conversation(asked)
        /** Works on for a slice. @returns what the hook returns; null when there is more to do */
        const goOn = (): undefined | Reply | null => {
          try {
            const { done, value } = work.next()
            if (!done) return null
            if (masking.data.size === 0) return undefined
            x.set(conversation, value)
            if (unmask)
              x.set(masked, { data: masking.data, json: asked.output !== undefined, custom: false, open: null })
            return undefined
          } catch (error) {
            // Nothing is sent that was not looked at.
            if (error instanceof OverBound) return tooMuch(error)
            throw error
          }
        }
        // The first slice is all that most prompts need.
        const first = goOn()
        if (first !== null) return first
        return (async () => {
          for (;;) {
            await loopTurn(x)
            if (x.closed) return undefined
            const reply = goOn()
            if (reply !== null) return reply
          }
        })()
      },
      rewriteEvent(x, event, push) {
        const state = x.peek(masked)
        if (state) show(state, event, push)
        else push(event)
        return undefined
      },
    }
  },
})

function tooMuch({ bound, limit }: OverBound): Reply {
  const message =
    bound === 'max_found'
      ? `The prompt has more than ${limit} data to mask, such as mail addresses; the limit is max_found. Send fewer.`
      : `The prompt takes more than ${limit} units of work to mask; the limit is max_pattern_work. Send a shorter one.`
  return deny('content_limit_exceeded', { message, bound })
}
