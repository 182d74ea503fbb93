/**
 * The exports of node:http that a start needs. An `import` would read every export of the built-in module, and three
 * of them load Node's whole bundled undici, which takes 40 ms and serves no purpose here (lib/http.js, WebSocket and
 * its events).
 */
import type * as http from 'node:http'

const built = process.getBuiltinModule('node:http')

export const createServer: typeof http.createServer = built.createServer
export const STATUS_CODES: typeof http.STATUS_CODES = built.STATUS_CODES
