/** Sends the stream of a response to one more client (RESP-8). */
import { asGatewayError } from '../../core/canon/errors.ts'
import { type Exchange, type GatewayError, loopTurn } from '../../core/plugin.ts'
import { SSE_HEADERS } from '../../core/ports/surface.ts'
import { errorEvent } from '../../surfaces/responses/encode.ts'
import { ClientPace } from '../shared/client-pace.ts'
import type { ReadableResponse } from '../shared/readable.ts'

/** What is made in one event-loop turn: UTF-16 units, and events. Some 1 ms. */
const SLICE_UNITS = 64 * 1024
const SLICE_EVENTS = 2048

const utf8 = new TextEncoder()

/**
 * Sends what the client does not have, at the pace at which it reads; of a response that runs, until it ends. Each slice
 * is made when the client has taken the one before.
 * @param after the number of the last event that the client has; -1 for none
 * @param response the caller holds it for the client, and this gives it back
 */
export function sendStream(x: Exchange, response: ReadableResponse, after: number): undefined {
  const pace = new ClientPace(x)
  const leave = response.follow(() => pace.wake())
  x.respondHead(200, SSE_HEADERS)
  run()
    .catch(error => x.fail(asGatewayError(error)))
    .finally(() => {
      leave()
      response.release()
    })
  return undefined

  async function run(): Promise<void> {
    const reader = response.read(after)
    const caughtUp = () => reader.sequence >= response.visible
    let silent = true
    for (;;) {
      await loopTurn(x)
      if (x.closed) return
      let piece = ''
      for (let i = 0; i < SLICE_EVENTS && piece.length < SLICE_UNITS && !response.cut && !caughtUp(); i++)
        piece += reader.next(response.visible)
      if (response.cut) piece = errorFrame(response.cut, x.id, reader.sequence)
      const over = response.cut !== undefined || (response.ended && caughtUp())
      // The head leaves with the first byte, and the client waits for it.
      if (silent && piece === '' && caughtUp() && !over) piece = ': keep-alive\n\n'
      if (piece !== '') {
        silent = false
        pace.send(utf8.encode(piece))
      }
      if (over) return x.end()
      await pace.until(() => !caughtUp() || response.cut !== undefined || response.ended)
      if (x.closed) return
    }
  }
}

function errorFrame(error: GatewayError, requestId: string, sequence: number): string {
  return `event: error\ndata: {"type":"error","sequence_number":${sequence},${errorEvent(error, requestId)}}\n\n`
}
