import http, { type IncomingMessage, type ServerResponse } from 'node:http'
import https from 'node:https'
import { createProxyServer } from 'http-proxy-3'
import { definePlugin } from '../../core/plugin.ts'
import { Ticker } from '../../core/ticker.ts'
import { type ProxyOptions, proxyOptions } from '../options.ts'
import { receivedBytes } from '../slots.ts'
import { Hop } from './hop.ts'

/**
 * Sends the exchange to a target as it is, bytes untouched, streaming both ways; a WebSocket too, where the listener can tunnel. The gateway's own
 * credential and what belongs to one hop stay here (decisions 35); connecting, TLS and paths are http-proxy-3's.
 */
export const proxy = definePlugin<ProxyOptions>({
  name: 'proxy',
  summary: 'Passes the exchange through to a target, bytes untouched.',
  config: proxyOptions,
  providesLate: [receivedBytes],
  terminal: true,
  create({ target, timeout, api_key }, context) {
    const agent = target.startsWith('https:')
      ? new https.Agent({ keepAlive: true })
      : new http.Agent({ keepAlive: true })
    const server = createProxyServer({
      target,
      agent,
      changeOrigin: true,
      selfHandleResponse: true,
    })
    const hops = new WeakMap<object, Hop>()
    server.on('proxyReq', (sent, request) => hops.get(request)?.sent(sent))
    server.on('proxyRes', (reply, request) => hops.get(request)?.answered(reply))
    // Its own timeout can't be told from a reset, and runs on while the target waits for a slow client.
    const ticker = new Ticker(context.clock, Math.max(20, Math.min(1000, timeout / 4)))

    return {
      forward(x) {
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
