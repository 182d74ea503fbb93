/**
 * What a start needs of node:http. An `import` reads every export of a built-in module, and three of this one's load the whole of Node's own undici:
 * 40 ms, for nothing (lib/http.js, WebSocket and its events).
 */
import type * as http from 'node:http'

const built = process.getBuiltinModule('node:http')

export const createServer: typeof http.createServer = built.createServer
export const STATUS_CODES: typeof http.STATUS_CODES = built.STATUS_CODES
