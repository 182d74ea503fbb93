import type { ModelConfig } from '../config/types.ts'
import { asGatewayError } from '../core/canon/errors.ts'
import { isUsd, LIMITS } from '../core/canon/limits.ts'
import { answer, definePlugin, type Exchange, type Reply } from '../core/plugin.ts'
import type { ListPage, Surface } from '../core/ports/surface.ts'
import { ModelAccess } from './model-access/access.ts'
import { least, leastOf } from './shared/account-limits.ts'
import { belowRoute } from './shared/below-route.ts'
import { type Identity, identity } from './shared/slots.ts'

/**
 * Answers GET /v1/models with the models that the key may call, and GET /v1/models/{id} with one of them, in a form that
 * both official SDKs read (MOD-1, MOD-8, wire.md A.6). Clients of an API that pages lists get pages.
 */
export const models = definePlugin({
  name: 'models',
  summary: 'Answers with the models this key can call.',
  needs: [identity],
  terminal: true,
  // Ids may have slashes.
  below: { GET: ['{id...}'] },
  uses: ['models'],
  create(_, context) {
    const access = new ModelAccess(context.config)

    /** What is listed to a caller: each model by its id, and by the aliases that clients of its API are shown. */
    function entriesFor(caller: Identity, api: Surface | undefined): Entry[] {
      return access
        .listed(caller.organization, caller.key)
        .flatMap(model => [model.id, ...((api && model.listed_aliases[api.name]) ?? [])].map(id => ({ id, model })))
    }

    function answerTo(x: Exchange): Reply {
      const caller = x.get(identity)
      const api = x.errorForm
      const entries = entriesFor(caller, api)
      const id = belowRoute(x)?.join('/')
      if (id !== undefined) {
        const entry = entries.find(entry => entry.id === id)
        const model = entry?.model ?? access.resolve(id, caller.organization, caller.key, undefined)
        return 'kind' in model ? model : answer(200, describe(entry ?? { id: model.id, model }, caller))
      }
      const ids = entries.map(({ id }) => id)
      const { from, to, more } = api?.page?.(new URLSearchParams(x.incoming.query), ids) ?? whole(ids)
      const data = entries.slice(from, to).map(entry => describe(entry, caller))
      return answer(200, {
        object: 'list',
        data,
        has_more: more,
        first_id: data[0]?.id ?? null,
        last_id: data.at(-1)?.id ?? null,
        models: [],
      })
    }

    return {
      forward(x) {
        try {
          x.reply(answerTo(x))
        } catch (error) {
          x.fail(asGatewayError(error))
        }
        return undefined
      },
    }
  },
})

/** An entry of the list: a model under one of its ids. */
interface Entry {
  id: string
  model: ModelConfig
}

const whole = ({ length }: readonly unknown[]): ListPage => ({ from: 0, to: length, more: false })

function describe({ id, model }: Entry, caller: Identity) {
  const limits = staticLimits(model, caller)
  // What this key may send: a client that plans its prompts by the window must not plan one that is refused.
  const window = Math.min(model.context_window, limits['max_input_tokens'] ?? model.context_window)
  const output = least(model.max_output_tokens, limits['max_output_tokens'])
  return {
    id,
    object: 'model',
    type: 'model',
    created: Math.floor(model.created / 1000),
    created_at: new Date(model.created).toISOString(),
    owned_by: 'organization',
    display_name: model.display_name ?? model.id,
    context_window: window,
    max_input_tokens: window,
    ...(output !== null && { max_tokens: output }),
    ...(Object.keys(limits).length > 0 && { limits }),
  }
}

const SHOWN = LIMITS.map(({ name }) => name).filter(name => !isUsd(name))

/**
 * The lowest limits that organization and key set for this model. Only configured values: no usage, no figures in USD.
 */
function staticLimits(model: ModelConfig, caller: Identity): Record<string, number> {
  const limits: Record<string, number> = {}
  for (const name of SHOWN) {
    const least = leastOf(name, caller, model.id)
    if (least !== null) limits[name] = least
  }
  return limits
}
