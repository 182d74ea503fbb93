/**
 * What models behind the Responses API accept, by model id (OpenAI's model pages and reasoning guide). An unknown id
 * is treated as the newest kind: it reasons at every documented level and accepts sampling parameters.
 */
import type { Effort } from '../../core/canon/conversation.ts'

export type OpenAiEffort = Exclude<Effort, 'ultra'>

/** Which controls one model accepts. */
export interface ModelTraits {
  /** The accepted efforts, ascending. Empty: the model does not reason and refuses the `reasoning` member. */
  efforts: readonly OpenAiEffort[]
  /** The model refuses temperature and top_p while it reasons. */
  fixedSampling: boolean
}

const ALL: readonly OpenAiEffort[] = ['none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max']

/** The first matching pattern decides. */
const FAMILIES: readonly (readonly [RegExp, ModelTraits])[] = [
  [/^(gpt-3|gpt-4|chatgpt-|gpt-5[.\d]*-chat)/, { efforts: [], fixedSampling: false }],
  [/^o\d/, { efforts: ['low', 'medium', 'high'], fixedSampling: true }],
  [/^gpt-5-pro/, { efforts: ['high'], fixedSampling: true }],
  [/^gpt-5(-|$)/, { efforts: ['minimal', 'low', 'medium', 'high'], fixedSampling: true }],
  [/^gpt-5\.1-codex-max/, { efforts: ['none', 'low', 'medium', 'high', 'xhigh'], fixedSampling: true }],
  [/^gpt-5\.1/, { efforts: ['none', 'low', 'medium', 'high'], fixedSampling: true }],
  [/^gpt-5\.[2-5]/, { efforts: ['none', 'low', 'medium', 'high', 'xhigh'], fixedSampling: true }],
  [/^gpt-/, { efforts: ALL, fixedSampling: true }],
]
const UNKNOWN: ModelTraits = { efforts: ALL, fixedSampling: false }

export function traitsOf(model: string): ModelTraits {
  for (const [pattern, traits] of FAMILIES) if (pattern.test(model)) return traits
  return UNKNOWN
}
