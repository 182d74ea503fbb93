/**
 * Tags each request with the tenant that it is for, and logs how many characters each tenant was sent. A request hook
 * and a stream hook; docs/plugins.md builds it step by step.
 *
 *   plugins: [./docs/examples/tenant-tag.ts]
 *   …
 *     - auth
 *     - tenant-tag: { header: x-tenant, required: true }
 */
import { definePlugin, deny, slot } from 'sluice'

interface Options {
  header: string
  required: boolean
}

/** Exported, so that other plugins can need it. */
export const tenant = slot<string>('tenant')
/** Characters of text sent so far. Not exported, because no other plugin uses it. */
const characters = slot<number>('tenant-tag.characters')

export default definePlugin<Options>({
  name: 'tenant-tag',
  summary: 'Tags requests with their tenant and counts what each tenant is sent.',
  config: {
    type: 'object',
    additionalProperties: false,
    properties: {
      header: { type: 'string', pattern: '^[a-z0-9-]+$', default: 'x-tenant', description: 'Where the tenant stands.' },
      required: { type: 'boolean', default: false, description: 'Refuse requests without it.' },
    },
  },
  provides: [tenant],
  mayProvide: [characters],
  create({ header, required }, { log }) {
    return {
      onRequest(x) {
        const name = x.incoming.headers.get(header)
        if (name === undefined && required) return deny('bad_request', { message: `Send the header ${header}.` })
        x.set(tenant, name ?? 'none')
        return undefined
      },
      onResponseHead(x, head) {
        head.headers.set('x-tenant', x.peek(tenant) ?? 'none')
        return undefined
      },
      onEvent(x, event) {
        if (event.type === 'text') x.set(characters, (x.peek(characters) ?? 0) + event.text.length)
        return undefined
      },
      onSettle(x, { outcome }) {
        log.info(
          { request_id: x.id, tenant: x.peek(tenant), characters: x.peek(characters) ?? 0, outcome },
          'tenant-tag',
        )
        return undefined
      },
    }
  },
})
