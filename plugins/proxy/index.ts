import type { IncomingMessage, ServerResponse } from 'node:http'
import { createRequire } from 'node:module'
import { definePlugin, deny } from '../../core/plugin.ts'
import { Ticker } from '../../core/tools/ticker.ts'
import { duration, nullable, object, secretText, text } from '../../core/tools/vocabulary.ts'
import { KNOWN_CALLER, LIMITED, open, unlimited } from '../shared/safeguards.ts'
import { receivedBytes } from '../shared/slots.ts'
import { climbs } from './climbs.ts'
import { Hop } from './hop.ts'

// Loaded only when a pipeline has the plugin; most have not.
const require = createRequire(import.meta.url)

const schema = object(
  {
    target: text('Where requests go; the path and query of the request are appended.', {
      pattern: '^https?://[^\\s/?#]+[^\\s?#]*$',
      examples: ['http://127.0.0.1:8000'],
    }),
    timeout: duration(
      '120s',
      'Longest silence of the target before the reply is given up; through a WebSocket, of both sides together.',
    ),
    api_key: nullable(
      secretText("Sent as a Bearer token to the target; the gateway's own credential never is.", {
        format: 'credential',
      }),
    ),
    unlimited,
    open,
  },
  ['target'],
)

/**
 * Sends the exchange to a target unchanged, streaming in both directions; also a WebSocket, where the listener can
 * tunnel. The gateway's own credential and the headers of one hop are not passed on (decisions 35). http-proxy-3 does
 * connections, TLS and paths.
 */
export const proxy = definePlugin({
  name: 'proxy',
  summary: 'Passes the exchange through to a target, bytes untouched.',
  config: schema,
  providesLate: [receivedBytes],
  terminal: true,
  passesThrough: true,
  // Without a credential the gateway lends nothing to those that it forwards.
  safeguards: ({ api_key }) => (api_key ? [LIMITED, KNOWN_CALLER] : []),
  create({ target, timeout, api_key }, context) {
    const { createProxyServer } = require('http-proxy-3') as typeof import('http-proxy-3')
    const { Agent } = require(target.startsWith('https:') ? 'node:https' : 'node:http') as typeof import('node:https')
    const agent = new Agent({ keepAlive: true })
    const server = createProxyServer({
      target,
      agent,
      changeOrigin: true,
      selfHandleResponse: true,
      // The path as the client sent it: otherwise http-proxy-3 gives it to the WHATWG URL parser, which resolves `..`
      // and changes more.
      toProxy: true,
    })
    const hops = new WeakMap<object, Hop>()
    server.on('proxyReq', (sent, request) => hops.get(request)?.sent(sent))
    server.on('proxyRes', (reply, request) => hops.get(request)?.answered(reply))
    // http-proxy-3's own timeout cannot be told from a reset, and runs on while the target waits for a slow client.
    const ticker = new Ticker(context.clock, Math.max(20, Math.min(1000, timeout / 4)))

    return {
      forward(x) {
        if (climbs(x.incoming.path)) {
          x.reply(deny('bad_request', { message: 'The path holds a ".." segment. Send it resolved.' }))
          return undefined
        }
        const hop = new Hop(x, api_key, timeout, ticker)
        hops.set(hop.request, hop)
        x.control(hop)
        server.web(hop.request as unknown as IncomingMessage, hop.response as unknown as ServerResponse, {}, error =>
          hop.failed(error),
        )
        return undefined
      },
      close() {
        agent.destroy()
        server.close()
      },
    }
  },
})
