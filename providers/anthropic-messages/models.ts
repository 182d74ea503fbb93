/**
 * What models behind the Messages API accept, by model id (Anthropic's pages on thinking, effort and prefill, and its
 * migration guides). An id that is not Anthropic's is treated as a compatible server that accepts every control.
 */
export type AnthropicEffort = 'low' | 'medium' | 'high' | 'xhigh' | 'max'

/** Which controls one model accepts. */
export interface ModelTraits {
  /** How thinking is requested. `none`: the model cannot think. */
  thinking: 'adaptive' | 'budget' | 'none'
  /** How thinking is switched off: by `disabled`, by leaving `thinking` out, or not at all. */
  off: 'disabled' | 'omit' | 'never'
  /** The model thinks when the request does not mention thinking. */
  thinksByDefault: boolean
  /** The levels of `output_config.effort`, ascending. Empty: the member is refused. */
  efforts: readonly AnthropicEffort[]
  /** Whether temperature, top_p and top_k are accepted. `one`: temperature and top_p not together. */
  sampling: 'free' | 'one' | 'refused'
  /**
   * Accepts `output_config.format`. Compatible servers are not assumed to: one that ignored the member would write
   * free text, and a forced tool works on all of them.
   */
  outputFormat: boolean
  /** The model continues an assistant message at the end. */
  prefill: boolean
  /** Accepts `role: "system"` messages between the others. */
  midSystem: boolean
}

const ALL: readonly AnthropicEffort[] = ['low', 'medium', 'high', 'xhigh', 'max']

const COMPATIBLE: ModelTraits = {
  thinking: 'adaptive',
  off: 'disabled',
  thinksByDefault: false,
  efforts: ALL,
  sampling: 'free',
  outputFormat: false,
  prefill: true,
  midSystem: false,
}
const V5: ModelTraits = {
  ...COMPATIBLE,
  thinksByDefault: true,
  sampling: 'refused',
  outputFormat: true,
  prefill: false,
  midSystem: true,
}
const ALWAYS_THINKING: ModelTraits = { ...V5, off: 'never' }
const V4_7: ModelTraits = { ...V5, off: 'omit', thinksByDefault: false, midSystem: false }
const V4_6: ModelTraits = {
  ...COMPATIBLE,
  efforts: ['low', 'medium', 'high', 'max'],
  sampling: 'one',
  outputFormat: true,
  prefill: false,
}
const BUDGET: ModelTraits = { ...COMPATIBLE, thinking: 'budget', efforts: [], sampling: 'one' }
const V4_5: ModelTraits = { ...BUDGET, outputFormat: true }
const OPUS_4_5: ModelTraits = { ...V4_5, efforts: ['low', 'medium', 'high'] }
const V3: ModelTraits = { ...COMPATIBLE, thinking: 'none', efforts: [], sampling: 'free' }

/**
 * Matches `claude-opus-4-5-20251101`, `claude-3-7-sonnet-20250219`, `claude-sonnet-4-20250514`: the family is before
 * or after the version.
 */
const ID = /claude-(?:([a-z]+)-)?(\d)(?:[-.](\d{1,2})(?!\d))?/

export function traitsOf(model: string): ModelTraits {
  if (!model.includes('claude-')) return COMPATIBLE
  if (model.includes('mythos') || model.includes('fable')) return ALWAYS_THINKING
  const match = ID.exec(model)
  if (!match) return V5
  const version = Number(match[2]) * 100 + Number(match[3] ?? 0)
  if (version >= 500) return V5
  if (version >= 407) return V4_7
  if (version === 406) return V4_6
  if (version === 405) return match[1] === 'opus' ? OPUS_4_5 : V4_5
  return version >= 307 ? BUDGET : V3
}

/**
 * The fewest tokens of a prefix that the model caches (Anthropic's page on prompt caching). Where its pages and what
 * users measured differ, it is the larger figure; a model that is not listed there has that of its family.
 */
export function cacheMinimum(model: string): number {
  if (!model.includes('claude-')) return 1024
  if (model.includes('mythos') || model.includes('fable')) return 512
  const match = ID.exec(model)
  if (!match) return 4096
  const version = Number(match[2]) * 100 + Number(match[3] ?? 0)
  if (model.includes('haiku')) return version >= 405 ? 4096 : 2048
  if (model.includes('sonnet')) return version === 406 ? 2048 : 1024
  if (version >= 500) return 512
  if (version === 407) return 2048
  return version === 405 || version === 406 ? 4096 : 1024
}
