/** Limits as bars with words. */
import { html } from 'hono/html'
import type { Limit } from '../gateway.ts'
import { count, dollars, meter } from '../views/parts.ts'
import type { Html } from '../web/visit.ts'

const NAMES: Record<string, string> = {
  requests: 'Requests',
  tokens: 'Tokens',
  input_tokens: 'Input tokens',
  output_tokens: 'Output tokens',
  concurrent: 'Requests at a time',
  concurrency: 'Requests at a time',
  spend: 'Spend',
  unbilled: 'Left unbilled',
}

export function limitName({ dimension, per, model }: Limit): string {
  const name = NAMES[dimension] ?? dimension.charAt(0).toUpperCase() + dimension.slice(1).replaceAll('_', ' ')
  return `${name}${per === '' ? '' : ` a ${per}`}${model === undefined ? '' : `, ${model}`}`
}

export function limitMeters(limits: readonly Limit[]): Html {
  return html`<div class="meters">${limits.map(limit => {
    const { used, capacity, used_usd, capacity_usd } = limit
    const words =
      used_usd === undefined
        ? `${count(used)} of ${count(capacity)}`
        : `${dollars(used_usd)} of ${dollars(capacity_usd!)}`
    return meter(limitName(limit), used, capacity, words)
  })}</div>`
}
