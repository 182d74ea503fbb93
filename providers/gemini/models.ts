/**
 * What models behind generateContent take, by id (Google's pages on thinking, function calling and grounding). An id that is not one of theirs is
 * taken to be a compatible server that knows every control.
 */
export type ThinkingLevel = 'MINIMAL' | 'LOW' | 'MEDIUM' | 'HIGH'

export interface ModelTraits {
  /** How thinking is asked for: by level, by tokens, or not at all. */
  thinking:
    | { by: 'level'; levels: readonly ThinkingLevel[] }
    | { by: 'budget'; off: number; least: number; most: number }
    | { by: 'none' }
  /** Function calls are sent back with their signature; without one they are refused. */
  signatures: boolean
  /** Function calling mode VALIDATED, which keeps arguments to the schema. */
  validated: boolean
  /** Media inside a functionResponse. */
  responseMedia: boolean
  /** Google Search next to function declarations. */
  searchWithFunctions: boolean
  /** GIF images. */
  gif: boolean
}

const ALL_LEVELS: readonly ThinkingLevel[] = ['MINIMAL', 'LOW', 'MEDIUM', 'HIGH']

const COMPATIBLE: ModelTraits = {
  thinking: { by: 'level', levels: ALL_LEVELS },
  signatures: true,
  validated: true,
  responseMedia: true,
  searchWithFunctions: true,
  gif: true,
}
/** Search and functions together need server-side tool parts to be circulated, which have no form in a conversation. */
const V3: ModelTraits = { ...COMPATIBLE, searchWithFunctions: false, gif: false }
const OLD: ModelTraits = {
  thinking: { by: 'none' },
  signatures: false,
  validated: false,
  responseMedia: false,
  searchWithFunctions: false,
  gif: false,
}
const V2_5: ModelTraits = { ...OLD, validated: true }

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
