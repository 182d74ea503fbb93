/** Schemas of members that several surfaces share (wire.md A.1, A.2). */
import { EFFORTS } from '../core/canon/conversation.ts'
import { array, map, noop, object, oneOfStrings, only, type Schema, string, wish } from './schema.ts'

export const model = string({ minLength: 1, maxLength: 256, description: 'A public model id.' })
export const effort = oneOfStrings(EFFORTS, { description: 'Reasoning effort.' })
export const verbosity = noop(oneOfStrings(['low', 'medium', 'high']))
export const metadata = noop(
  map(string({ maxLength: 512 }), {
    maxProperties: 16,
    propertyNames: { maxLength: 64 },
    description: 'Up to 16 pairs, echoed.',
  }),
)
/** A stop string: as long as providers take them. */
export const stopString = string({ minLength: 1, maxLength: 256, 'x-bound': 'stop' })
export const user = noop(string({ maxLength: 512 }))
export const safetyIdentifier = noop(string({ maxLength: 128 }))
export const promptCacheKey = noop(string({ maxLength: 512 }))
export const promptCacheOptions = noop(object({ mode: oneOfStrings(['implicit', 'explicit']), ttl: string() }))
export const promptCacheRetention = noop(oneOfStrings(['in_memory', 'in-memory', '24h']))
/** May be on any content part. */
export const cacheBreakpoint = noop(object({ mode: oneOfStrings(['explicit']), ttl: string() }, ['mode']))
export const serviceTier = wish(only(oneOfStrings(['auto', 'default'])))
/** `tool_choice` when it does not name a tool. */
export const toolMode = oneOfStrings(['auto', 'none', 'required'])
/** The mode of a list of allowed tools. */
export const allowedMode = oneOfStrings(['auto', 'required'])
/** The user's location, for hosted search. */
export const place = { city: string(), country: string(), region: string(), timezone: string() }
export const imageDetail = oneOfStrings(['auto', 'low', 'high', 'original'])
/** The name of a declared tool. A name that the provider does not allow is replaced by an alias upstream (TOOL-3). */
export const toolName = string({ minLength: 1, maxLength: 1024 })
export const callId = string({ minLength: 1, description: 'The id of the call, verbatim as it was received.' })
/** Alternatives for `forms`: a string, or an array of text parts. */
export const textOr = <P extends Schema>(part: P) => [string(), array(part)] as const
