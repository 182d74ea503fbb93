/** Words for option schemas: JSON Schema fragments with the units of gateway.yaml. */

export type Schema = Record<string, unknown>

/** `250ms`, `60s`, `5m`, `24h`; arrives in milliseconds. */
export const duration = (fallback: string, description: string): Schema => ({
  type: ['string', 'integer'],
  format: 'duration',
  default: fallback,
  description,
})

/** `64KiB`, `32MiB`; arrives in bytes. */
export const size = (fallback: string, description: string): Schema => ({
  type: ['string', 'integer'],
  format: 'size',
  default: fallback,
  description,
})

export const count = (fallback: number, description: string, minimum = 0): Schema => ({
  type: 'integer',
  minimum,
  default: fallback,
  description,
})

export const flag = (fallback: boolean, description: string): Schema => ({
  type: 'boolean',
  default: fallback,
  description,
})

/** One of a few words. */
export const choice = (words: readonly string[], description: string, fallback?: string): Schema => ({
  type: 'string',
  enum: [...words],
  ...(fallback === undefined ? {} : { default: fallback }),
  description,
})

export const text = (description: string, more: Schema = {}): Schema => ({ type: 'string', ...more, description })

/** Text that no message may show. `writeOnly` is JSON Schema's word for it. */
export const secretText = (description: string, more: Schema = {}): Schema =>
  text(description, { writeOnly: true, ...more })

export const list = (items: Schema, description: string, more: Schema = {}): Schema => ({
  type: 'array',
  items,
  ...more,
  description,
})

/** A mapping that refuses unknown keys. */
export const object = (properties: Record<string, object>, required: string[] = [], more: Schema = {}): Schema => ({
  type: 'object',
  additionalProperties: false,
  properties,
  required,
  ...more,
})

/** The same, or null. */
export const nullable = (schema: Schema, fallback: unknown = null): Schema => ({
  ...schema,
  type: [...[schema['type'] as string | string[]].flat(), 'null'],
  ...(schema['enum'] ? { enum: [...(schema['enum'] as unknown[]), null] } : {}),
  ...(fallback === undefined ? {} : { default: fallback }),
})
