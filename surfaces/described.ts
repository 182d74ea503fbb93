/** What a surface tells of itself beyond what it takes to serve it: OpenAPI, docs/compatibility.md and `sluice try` are made from this. */
import type { Surface } from '../core/surface.ts'

export interface DescribedSurface extends Surface {
  /** A whole reply. */
  readonly reply: NamedSchema
  /** The body of an error reply; surfaces may share one. */
  readonly errorReply: NamedSchema
  readonly samples: Samples
}

export interface NamedSchema {
  /** In OpenAPI, e.g. `ChatCompletion`. */
  readonly name: string
  /** JSON Schema (2020-12). */
  readonly schema: Record<string, unknown>
}

/** How the surface is asked, by example. */
export interface Samples {
  /** The smallest body that `validate` accepts. */
  body(model: string, prompt: string): Members
  /** By feature: the members that ask for it, on top of that body. A feature that is not here has no notation. */
  readonly features: Readonly<Partial<Record<Feature, Members>>>
  readonly stream: StreamSample
}

/** A short stream that tells its usage. */
export interface StreamSample {
  /** What its clients send beside the key. */
  readonly headers?: Readonly<Record<string, string>>
  /** On top of the smallest body. */
  readonly members: Members
  /** Takes the data of one frame: JSON, parsed, or `[DONE]`. @returns true when it was the last one of a whole reply */
  read(data: any, told: Told): boolean
}

/** What a stream has told so far. */
export interface Told {
  text: string
  /** Tokens, with the cached ones. */
  input: number
  cached: number
  output: number
}

type Members = Readonly<Record<string, unknown>>
export type Feature = (typeof FEATURES)[number]

/** What a client may ask for: the rows of docs/compatibility.md, in its order. */
export const FEATURES = [
  'Text, system text, history',
  'Streams',
  'Image, base64',
  'GIF images',
  'Image, URL',
  'PDF, base64',
  'PDF, URL',
  'Text document',
  'Function tools',
  'Strict tools',
  'Forced tool',
  'One call a turn',
  'allowed_tools',
  'Custom tools',
  'Namespaces, client tool search',
  'bash, text editor, memory',
  'Web search',
  'Web search, allowed domains',
  'Web search, blocked domains',
  'Web search, limited in number',
  'Reasoning effort',
  'Thinking, reasoning summaries',
  'Forced tool while thinking',
  'temperature, top_p',
  'top_k',
  'seed',
  'Stop strings',
  'Log probabilities',
  'An assistant message to continue',
  'previous_response_id',
  'n > 1',
  'JSON output',
  'Audio',
] as const

// What samples are made of.
export const PNG = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='
export const GIF = 'R0lGODlhAQABAAAAADs='
export const PDF = 'JVBERi0xLjQKJSVFT0Y='
export const PARAMETERS = {
  type: 'object',
  properties: { a: { type: 'string' } },
  required: ['a'],
  additionalProperties: false,
}
/** The messages of a conversation in which the user has spoken once. */
export const user = (content: unknown) => [{ role: 'user', content }]
