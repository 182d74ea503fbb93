/** Spans in OTLP's JSON form (opentelemetry-proto, trace/v1): ids in hex, 64-bit numbers as strings. */

/** Span kinds of OTLP. */
export const SERVER = 2
export const CLIENT = 3
const ERROR = 2

export type AttributeValue = string | number | boolean | readonly string[] | undefined

export interface Span {
  traceId: string
  spanId: string
  parentSpanId?: string
  name: string
  kind: number
  startTimeUnixNano: string
  endTimeUnixNano: string
  attributes: { key: string; value: object }[]
  /** The trace's sampled bit. */
  flags: number
  status?: { code: number }
}

/** Unix milliseconds as nanoseconds, with the precision of microseconds. */
export const nanos = (ms: number): string => `${Math.round(ms * 1000)}000`

/** Undefined values are left out. Whole numbers become intValue, others doubleValue. */
export function attributes(values: Record<string, AttributeValue>): Span['attributes'] {
  const list: Span['attributes'] = []
  for (const key in values) {
    const value = values[key]
    if (value !== undefined) list.push({ key, value: encoded(value) })
  }
  return list
}

function encoded(value: Exclude<AttributeValue, undefined>): object {
  if (typeof value === 'string') return { stringValue: value }
  if (typeof value === 'boolean') return { boolValue: value }
  if (typeof value === 'number')
    return Number.isSafeInteger(value) ? { intValue: String(value) } : { doubleValue: value }
  return { arrayValue: { values: value.map(text => ({ stringValue: text })) } }
}

export const failedStatus = { code: ERROR }
