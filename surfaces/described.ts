/**
 * A surface's description of itself, beyond what serving it needs. OpenAPI, docs/compatibility.md and `sluice try`
 * are generated from it.
 */
import type { Surface } from '../core/ports/surface.ts'

/** A surface with its description. */
export interface DescribedSurface extends Surface {
  /** The one client that speaks it. Where surfaces are listed for people to choose from, it is left out. */
  readonly client?: string
  /**
   * The surface on whose conversations it is an operation. Where surfaces are listed for people to choose from, it is left
   * out.
   */
  readonly operationOf?: string
  /** Schemas of which a body meets one, where they are several. */
  readonly shapes?: readonly Record<string, unknown>[]
  /** The schema of a whole reply. */
  readonly reply: NamedSchema
  /** The body of an error reply; surfaces may share one. */
  readonly errorReply: NamedSchema
  readonly samples: Samples
}

/** A schema with its name in OpenAPI. */
export interface NamedSchema {
  /** The name of the schema in OpenAPI, e.g. `ChatCompletion`. */
  readonly name: string
  /** JSON Schema (2020-12). */
  readonly schema: Record<string, unknown>
}

/** Example requests of the surface. */
export interface Samples {
  /** The smallest body that `validate` accepts. */
  body(model: string, prompt: string): Members
  /**
   * For each feature, the members that request it; they are added to the smallest body. A feature that is missing
   * here cannot be requested on this surface.
   */
  readonly features: Readonly<Partial<Record<Feature, Members>>>
  /** Absent: the surface has no streams. */
  readonly stream?: StreamSample
}

/** Requests a short stream that reports its usage, and reads it. */
export interface StreamSample {
  /** Headers that the surface's clients send, apart from the key. */
  readonly headers?: Readonly<Record<string, string>>
  /** The members that are added to the smallest body. */
  readonly members: Members
  /** The member, here or in the smallest body, that caps the output in tokens. Absent: none does. */
  readonly cap?: string
  /**
   * Reads one frame.
   * @param data the frame's data: parsed JSON, or the string `[DONE]`
   * @returns true when the frame is the last of a complete reply
   */
  read(data: any, reply: ReplySummary): boolean
}

/** What has been read from a stream so far. */
export interface ReplySummary {
  text: string
  /** Input tokens, cached tokens included. */
  input: number
  cached: number
  output: number
}

type Members = Readonly<Record<string, unknown>>
export type Feature = (typeof FEATURES)[number]

/** The features that a client may request: the rows of docs/compatibility.md, in its order. */
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
  'JSON output, any object',
  'JSON output, a schema',
  'Audio',
] as const

// Small valid inputs from which the samples are built.
export const PNG = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='
export const GIF = 'R0lGODlhAQABAAAAADs='
export const PDF = 'JVBERi0xLjQKJSVFT0Y='
export const PARAMETERS = {
  type: 'object',
  properties: { a: { type: 'string' } },
  required: ['a'],
  additionalProperties: false,
}
/** The messages of a conversation with a single user turn. */
export const user = (content: unknown) => [{ role: 'user', content }]
