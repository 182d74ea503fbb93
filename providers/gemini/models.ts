/**
 * What models behind generateContent accept, by model id (Google's pages on thinking, function calling and
 * grounding). An id that is not Google's is treated as a compatible server that accepts every control.
 */
export type ThinkingLevel = 'MINIMAL' | 'LOW' | 'MEDIUM' | 'HIGH'

/** Which controls one model accepts. */
export interface ModelTraits {
  /** How thinking is requested: by level, by a budget in tokens, or not at all. */
  thinking:
    | { by: 'level'; levels: readonly ThinkingLevel[] }
    | { by: 'budget'; off: number; least: number; most: number }
    | { by: 'none' }
  /** Function calls must be sent back with their signature; without it they are refused. */
  signatures: boolean
  /** Has the function calling mode VALIDATED, in which arguments match the schema. */
  validated: boolean
  /** Accepts media inside a functionResponse. */
  responseMedia: boolean
  /** Accepts Google Search together with function declarations. */
  searchWithFunctions: boolean
  /** Accepts a schema for the reply; a reply in JSON without a schema is accepted by all. */
  replySchema: boolean
  /** Accepts structured output together with tools. */
  structuredWithTools: boolean
  /** Accepts GIF images. */
  gif: boolean
}

const ALL_LEVELS: readonly ThinkingLevel[] = ['MINIMAL', 'LOW', 'MEDIUM', 'HIGH']

const COMPATIBLE: ModelTraits = {
  thinking: { by: 'level', levels: ALL_LEVELS },
  signatures: true,
  validated: true,
  responseMedia: true,
  searchWithFunctions: true,
  replySchema: true,
  structuredWithTools: true,
  gif: true,
}
/**
 * `searchWithFunctions` is false, because it requires sending server-side tool parts back, and a conversation has no
 * form for them.
 */
const V3: ModelTraits = { ...COMPATIBLE, searchWithFunctions: false, gif: false }
const OLD: ModelTraits = {
  thinking: { by: 'none' },
  signatures: false,
  validated: false,
  responseMedia: false,
  searchWithFunctions: false,
  replySchema: false,
  structuredWithTools: false,
  gif: false,
}
const V2_5: ModelTraits = { ...OLD, validated: true, replySchema: true }

const ID = /gemini-(\d+)(?:\.(\d+))?-(pro|flash-lite|flash)/

export function traitsOf(model: string): ModelTraits {
  if (!model.includes('gemini-')) return COMPATIBLE
  const match = ID.exec(model)
  if (!match) return { ...V3, thinking: { by: 'level', levels: ['LOW', 'MEDIUM', 'HIGH'] } }
  const version = Number(match[1]) * 100 + Number(match[2] ?? 0)
  const kind = match[3]
  if (version < 205) return OLD
  if (version < 300) {
    if (kind === 'pro') return { ...V2_5, thinking: { by: 'budget', off: 128, least: 128, most: 32_768 } }
    return { ...V2_5, thinking: { by: 'budget', off: 0, least: kind === 'flash' ? 1 : 512, most: 24_576 } }
  }
  return { ...V3, thinking: { by: 'level', levels: levelsOf(version, kind!) } }
}

function levelsOf(version: number, kind: string): readonly ThinkingLevel[] {
  if (kind === 'pro') return version === 300 ? ['LOW', 'HIGH'] : ['LOW', 'MEDIUM', 'HIGH']
  return version < 307 ? ALL_LEVELS : ['LOW', 'MEDIUM', 'HIGH']
}
