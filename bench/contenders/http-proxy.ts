/**
 * Contender: http-proxy-3 alone on node:http, with keep-alive connections. Its argument is the port of the upstream. It
 * prints `listening PORT`.
 */
import http from 'node:http'
import type { AddressInfo } from 'node:net'
import { createProxyServer } from 'http-proxy-3'

const agent = new http.Agent({ keepAlive: true, maxSockets: 8192, maxFreeSockets: 8192 })
const proxy = createProxyServer({ target: `http://127.0.0.1:${process.argv[2]}`, agent })
proxy.on('error', (_error, _req, res) => res.destroy())
const server = http.createServer((req, res) => proxy.web(req, res))
server.keepAliveTimeout = 60_000
server.listen(0, '127.0.0.1', () => console.log(`listening ${(server.address() as AddressInfo).port}`))
