import type { GatewayConfig, KeyConfig, ModelConfig, OrganizationConfig } from '../../config/types.ts'
import {
  type Conversation,
  EFFORTS,
  type Effort,
  formOf,
  type ReasoningControls,
} from '../../core/canon/conversation.ts'
import { printable } from '../../core/canon/errors.ts'
import type { Price } from '../../core/canon/money.ts'
import { deny, type Reply } from '../../core/plugin.ts'
import type { Surface } from '../../core/ports/surface.ts'

/** Which models exist and who may call them (MOD-1, MOD-3…5, MOD-7). */
export class ModelAccess {
  readonly #models: ModelConfig[]
  readonly #byName = new Map<string, ModelConfig>()

  constructor(config: Pick<GatewayConfig, 'models'>) {
    this.#models = Object.values(config.models)
    for (const model of this.#models) {
      this.#byName.set(model.id, model)
      for (const alias of model.aliases) this.#byName.set(alias, model)
    }
  }

  /** @param name an id or an alias */
  find(name: string): ModelConfig | undefined {
    return this.#byName.get(name)
  }

  /** The models that GET /v1/models lists for this key, in the configuration's order: those that it can call. */
  listed(organization: OrganizationConfig, key: KeyConfig): ModelConfig[] {
    return this.#models
      .filter(model => model.listed && this.allows(organization, key, model))
      .map(model => pricedFor(organization, model))
      .filter(model => isServed(model, organization))
  }

  /** The models that the organization may use by its rights, and cannot since nobody knows what they cost at most. */
  unbounded(organization: OrganizationConfig): ModelConfig[] {
    return this.#models.filter(
      model => this.#inList(organization.models, model) && !isBounded(pricedFor(organization, model), organization),
    )
  }

  allows(organization: OrganizationConfig, key: KeyConfig, model: ModelConfig): boolean {
    return this.#inList(organization.models, model) && this.#inList(key.models, model)
  }

  #inList(list: 'all' | string[], model: ModelConfig): boolean {
    return list === 'all' || list.some(name => this.#byName.get(name) === model)
  }

  /** The model that a request names, with the price that it has for this organization, or the refusal. */
  resolve(
    name: string,
    organization: OrganizationConfig,
    key: KeyConfig,
    excluded: string | undefined,
  ): ModelConfig | Reply {
    const found = this.find(name)
    if (!found) {
      return deny('model_not_found', {
        message: `The model ${printable(name)} does not exist. Models this key can call: ${this.#names(organization, key)}.`,
        param: 'model',
      })
    }
    if (!this.allows(organization, key, found)) {
      const byKey = this.#inList(organization.models, found)
      return deny('model_not_available', {
        message: `The model ${found.id} is not available to this ${byKey ? 'key' : 'plan'}. Models this key can call: ${this.#names(organization, key)}.`,
        param: 'model',
      })
    }
    const model = pricedFor(organization, found)
    if (!isBounded(model, organization)) {
      return deny('model_not_available', {
        message: `The model ${model.id} is not available to this organization: the most that it writes is not configured. Ask the operator. Models this key can call: ${this.#names(organization, key)}.`,
        param: 'model',
      })
    }
    if (model.price === null && organization.billing !== 'free') {
      return deny('model_not_found', {
        message: `The model ${model.id} has no price and can't be called. Models this key can call: ${this.#names(organization, key)}.`,
        param: 'model',
      })
    }
    if (excluded !== undefined) {
      const fault = this.#excludes(excluded, found)
      if (fault) return deny('bad_request', { message: fault, param: 'x-excluded-models' })
    }
    return model
  }

  #names(organization: OrganizationConfig, key: KeyConfig): string {
    return (
      this.listed(organization, key)
        .map(model => model.id)
        .join(', ') || 'none'
    )
  }

  /**
   * Checks the header x-excluded-models (MOD-7).
   * @returns the fault, or null
   */
  #excludes(header: string, requested: ModelConfig): string | null {
    for (const raw of header.split(',')) {
      const name = raw.trim()
      if (name === '')
        return 'The x-excluded-models header is malformed: it is a comma-separated list of public model ids. Remove the empty entry.'
      const model = this.find(name)
      if (!model)
        return `The x-excluded-models header names ${printable(name)}, which is not a public model id. Remove it.`
      if (model === requested)
        return `The x-excluded-models header excludes ${requested.id}, the model the request asks for. Choose another model or remove it from the header.`
    }
    return null
  }
}

/** Whether it is known what a request of this organization can cost at most: a balance must not go below zero. */
function isBounded({ price, max_output_tokens }: ModelConfig, { billing }: OrganizationConfig): boolean {
  const outputCosts = price !== null && [price, ...(price.steps ?? [])].some(({ output }) => output > 0)
  return billing !== 'prepaid' || max_output_tokens !== null || !outputCosts
}

/** Whether a model that the organization may use is also served to it, at the price that it has for it. */
function isServed(model: ModelConfig, organization: OrganizationConfig): boolean {
  return (model.price !== null || organization.billing === 'free') && isBounded(model, organization)
}

/** Models with another price than their own, by that price: plans and organizations have one object for each. */
const repriced = new WeakMap<Price, ModelConfig>()

/** A model with the price that plan or organization set for it; the model itself where they set none. */
function pricedFor({ prices }: OrganizationConfig, model: ModelConfig): ModelConfig {
  if (prices === undefined || !Object.hasOwn(prices, model.id)) return model
  const price = prices[model.id]!
  let priced = repriced.get(price)
  // A reload may keep the plans and change the model.
  if (priced?.backends !== model.backends) repriced.set(price, (priced = { ...model, price }))
  return priced
}

/** The model's ceiling of reasoning effort when the request asks for more; else null. */
function ceilingBelow({ reasoning: { effort } }: Conversation, { effort_ceiling }: ModelConfig): Effort | null {
  if (effort === undefined || effort_ceiling === null) return null
  return EFFORTS.indexOf(effort) > EFFORTS.indexOf(effort_ceiling) ? effort_ceiling : null
}

/** What the model is asked for: an effort above its ceiling is lowered where the client's API lowers it. */
export function reasoningOf(conversation: Conversation, model: ModelConfig): ReasoningControls {
  const reasoning = { ...conversation.reasoning, modelEffort: model.default_stream_row }
  const ceiling = formOf(conversation).lowersEffort ? ceilingBelow(conversation, model) : null
  return ceiling === null ? reasoning : { ...reasoning, effort: ceiling, asked: reasoning.effort }
}

/** A model that makes something else than the request's surface asks for is refused (decision 97). */
export function checkServes({ id, serves }: ModelConfig, surface: Surface): undefined | Reply {
  if (serves === (surface.serves ?? 'text')) return undefined
  return deny('request_requirements_unsatisfied', {
    message: surface.serves
      ? `The model ${id} writes text and makes no ${surface.serves}. Choose a model for ${surface.serves}.`
      : `The model ${id} makes ${serves} and writes no text. Send it to POST /v1/${serves}, or choose another model.`,
    param: 'model',
  })
}

/** An effort that is still above the model's ceiling is refused. */
export function checkEffort(conversation: Conversation, model: ModelConfig): undefined | Reply {
  const ceiling = ceilingBelow(conversation, model)
  if (ceiling === null) return undefined
  return deny('unsupported_value', {
    message: `${model.id} takes reasoning effort up to ${ceiling}; the request asks for ${conversation.reasoning.effort}. Lower it.`,
    param: formOf(conversation).members.effort,
  })
}

/** An output cap above the model's own maximum is refused, never lowered (decisions 23). */
export function checkOutputCap(conversation: Conversation, model: ModelConfig): undefined | Reply {
  const maximum = model.max_output_tokens
  if (maximum === null || conversation.maxOutputTokens === undefined || conversation.maxOutputTokens <= maximum)
    return undefined
  const field = conversation.maxOutputField ?? 'max_tokens'
  return deny('invalid_value', {
    message: `${field} is ${conversation.maxOutputTokens}; the maximum of ${model.id} is ${maximum}. Lower it.`,
    param: field,
  })
}

/** The refusal of a stream; undefined where plan and key include streaming. */
export function noStreaming(organization: OrganizationConfig, key: KeyConfig): undefined | Reply {
  if (organization.streaming && key.streaming) return undefined
  const whose = organization.streaming ? 'key' : 'plan'
  return deny('streaming_not_available', {
    message: `The ${whose} does not include streaming. Send the request with "stream": false, or change the ${whose}.`,
    param: 'stream',
  })
}
