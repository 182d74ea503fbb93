/**
 * Sends a share of a model's traffic to one of its backends, to compare it with the others.
 *
 *   - routing
 *   - canary: { backend: openai/gpt-next, share: 0.05 }
 *   - admission
 *
 * The backend is one of `models`, and gets nothing but its share. Who gets it keeps it: a key, an organization or a
 * conversation is always on the same side, in every process and after a restart, and a larger share adds to a smaller
 * one. When the backend fails or is left out, the others serve. `sluice usage --by backend` compares them.
 */
import { createHash } from 'node:crypto'
import { type Conversation, conversation, definePlugin, type Exchange, slot } from 'sluice'
import { BACKEND, faultsOfBackend } from './shared/model-backend.ts'

interface Options {
  backend: string
  share: number
  by: 'conversation' | 'key' | 'organization'
}

/** Who calls, as `auth` fills it, and the backends that `routing` has chosen, the first one first. */
const identity = slot<{ organization: { id: string }; key: { id: string } }>('identity')
const candidates = slot<{ id: string }[]>('candidates')

export default definePlugin<Options, 'models'>({
  name: 'canary',
  summary: 'Sends a share of the traffic to one backend, to compare it with the others.',
  config: {
    type: 'object',
    additionalProperties: false,
    required: ['backend', 'share'],
    properties: {
      backend: BACKEND,
      share: { type: 'number', minimum: 0, maximum: 1, description: 'The share that it gets: 0.05 is one in twenty.' },
      by: {
        enum: ['conversation', 'key', 'organization'],
        default: 'conversation',
        description: 'What stays on one side.',
      },
    },
  },
  needs: [identity, conversation, candidates],
  rewrites: [candidates],
  aboveTerminal: true,
  dryRun: 'safe',
  uses: ['models'],
  check: ({ backend }, { models }) => faultsOfBackend(backend, models),
  create({ backend, share, by }) {
    const isChosen = (x: Exchange): boolean => {
      const { organization, key } = x.get(identity)
      const whom = by === 'organization' ? '' : by === 'key' ? key.id : beginningOf(x.get(conversation))
      const digest = createHash('sha256').update(`${backend}\0${organization.id}\0${whom}`).digest()
      return digest.readUInt32BE(0) < share * 2 ** 32
    }
    return {
      onRequest(x) {
        const all = x.get(candidates)
        const canary = all.find(({ id }) => id === backend)
        // Where nothing else can serve the request, there is no choice.
        if (!canary || all.length === 1) return undefined
        const others = all.filter(each => each !== canary)
        x.set(candidates, isChosen(x) ? [canary, ...others] : others)
        return undefined
      },
    }
  },
})

/** What the requests of one conversation have in common: the client's own hint, else its first words. */
function beginningOf({ cacheKey, previousResponseId, system, turns }: Conversation): string {
  if (cacheKey !== undefined) return cacheKey
  const first = turns.find(({ role }) => role === 'user')?.parts[0]
  const words = [system[0]?.text ?? '', first && 'text' in first ? first.text : ''].map(text => text.slice(0, 2000))
  return words.join('\0') || (previousResponseId ?? '')
}
