/** A plugin with a fault, for the row of internal errors. */
import { conversation, definePlugin } from 'sluice'

export default definePlugin({
  name: 'breaks',
  summary: 'Throws when a prompt asks for it.',
  config: { type: 'object', additionalProperties: false, properties: {} },
  needs: [conversation],
  create: () => ({
    onRequest(x) {
      if (JSON.stringify(x.get(conversation).turns).includes('break here')) throw new Error('a fault of the gateway')
      return undefined
    },
  }),
})
