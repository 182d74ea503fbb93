/** The `ws` package as playwright-core brings it along: frames, pings and reading are in a test's hands. */
import { createRequire } from 'node:module'

export const { ws: WS, wsServer: WSServer } = createRequire(import.meta.url)('playwright-core/lib/utilsBundle') as {
  ws: any
  wsServer: any
}
export { WS as WebSocket }
