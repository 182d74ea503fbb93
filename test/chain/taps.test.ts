/** What taps are told is what the client was sent: status, headers, the same bytes, and whether they were all. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Taps } from '../../core/engine/exchange/taps.ts'
import { answer, deny, type Exchange, GatewayError, type SentTap } from '../../core/plugin.ts'
import { asks, part, run, terminal } from './harness.ts'

const replies: Record<string, (x: Exchange) => void> = {
  'a stream': x => {
    x.emit({ type: 'text', text: 'grün' })
    x.flush()
    x.emit({ type: 'text', text: 'two' })
    x.end()
  },
  'a stream that fails': x => {
    x.emit({ type: 'text', text: 'one' })
    x.fail(new GatewayError('upstream_server_error', { message: 'no more' }))
  },
  'a head without events': x => {
    x.sendHead()
    x.end()
  },
  'an error': x => x.fail(new GatewayError('upstream_server_error', { message: 'none' })),
  'an answer of the gateway’s own': x => x.reply(answer(200, { grün: true })),
  'a refusal': x => x.reply(deny('invalid_value', { message: 'no' })),
  bytes: x => {
    x.respondHead(206, [['content-type', 'text/plain']])
    x.emit({ type: 'bytes', bytes: new Uint8Array([97, 98, 99]) })
    x.end()
  },
  'bytes that break off': x => {
    x.respondHead(200, [])
    x.emit({ type: 'bytes', bytes: new Uint8Array([97, 98, 99]) })
    x.fail(new GatewayError('upstream_server_error', { message: 'no more' }))
  },
}

for (const stream of [true, false]) {
  for (const [name, say] of Object.entries(replies)) {
    test(`taps see ${name} as it was sent, ${stream ? 'streamed' : 'buffered'}`, async () => {
      let status = 0
      let headers: readonly (readonly [string, string])[] = []
      let sent = ''
      const ends: boolean[] = []
      const utf8 = new TextDecoder()
      const listens = part('listens', {
        onRequest(x) {
          x.onSent({
            head(s, h) {
              assert.equal(sent, '', 'the head comes first')
              status = s
              headers = h
            },
            bytes: bytes => void (sent += utf8.decode(bytes, { stream: true })),
            end: whole => void ends.push(whole),
          })
          return undefined
        },
      })
      const r = await run([asks({ stream }), listens, terminal(say)])
      await r.settled
      assert.ok(r.incoming.sent !== '')
      assert.equal(sent, r.incoming.sent)
      assert.equal(status, r.incoming.status)
      assert.deepEqual(new Map(headers), r.incoming.sentHeaders)
      assert.deepEqual(ends, [r.incoming.ending === 'whole'])
    })
  }
}

test('a tap that breaks hears no more; the others hear all of it', () => {
  const faults: unknown[] = []
  const taps = new Taps(error => void faults.push(error))
  const heard: string[] = []
  const listens = (name: string): SentTap => ({
    head: () => void heard.push(`${name} head`),
    bytes: bytes => void heard.push(`${name} ${new TextDecoder().decode(bytes)}`),
    end: whole => void heard.push(`${name} ${whole}`),
  })
  const breaks = listens('second')
  breaks.bytes = () => {
    throw new Error('full')
  }
  taps.add(listens('first'))
  taps.add(breaks)
  taps.add(listens('third'))
  taps.head(200, [])
  taps.bytes('one')
  taps.bytes(new Uint8Array([50]))
  taps.end(true)
  assert.deepEqual(heard, [
    'first head',
    'second head',
    'third head',
    'first one',
    'third one',
    'first 2',
    'third 2',
    'first true',
    'third true',
  ])
  assert.equal(faults.length, 1)
})
