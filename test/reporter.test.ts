/**
 * What a run of the tests shows. Warnings of uWebSockets.js that mean nothing here filled the output, and hid those
 * that mean something.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import report from './reporter.ts'

async function shown(...messages: string[]): Promise<string> {
  async function* events() {
    for (const message of messages) yield { type: 'test:stderr', data: { message } }
  }
  let text = ''
  for await (const piece of report(events())) text += piece
  return text
}

test('the warning for a handshake that waited is counted, and every other line is shown', async () => {
  const warning =
    'Warning: uWS.HttpResponse writes must be made from within a corked callback. See documentation for uWS.HttpResponse.cork and consult the user manual.\n'
  assert.equal(
    await shown(warning, `${warning}something else\n${warning}`),
    'something else\n3 WebSocket handshakes outside of a cork, as they are meant to be (docs/listeners.md)\n',
  )
  assert.equal(await shown('Warning: of another kind', '\n'), 'Warning: of another kind\n')
})
