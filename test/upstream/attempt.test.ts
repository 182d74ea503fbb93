import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { AttemptCall, CallSink, WireHandler } from '../../core/plugin.ts'
import type { Decoder } from '../../core/ports/dialect.ts'
import { ManualClock } from '../../core/tools/clock.ts'
import { Ticker } from '../../core/tools/ticker.ts'
import { Attempt } from '../../plugins/translation/attempt.ts'
import type { Written } from '../../plugins/translation/written.ts'
import { SseReader } from '../../providers/sse.ts'
import { backend } from '../plugins/kit.ts'

test('[STR-4] a reply that was whole before its reader went on does not resume its connection, which serves another by then', () => {
  const calls: string[] = []
  const controller = {
    aborted: false,
    pause: () => void calls.push('pause'),
    resume: () => void calls.push('resume'),
    abort: () => void calls.push('abort'),
  }
  let handler!: WireHandler
  const decoder: Decoder = {
    done: false,
    frame(_, data, push) {
      push({ type: 'text', text: data })
      Object.assign(this, { done: data === 'last' })
    },
    body() {},
    end: push => push({ type: 'finish', reason: 'stop' }),
  }
  const written = {
    wire: { headers: {}, own: {} },
    decoder: () => decoder,
    frames: () => new SseReader(),
  } as unknown as Written
  const clock = new ManualClock()
  const ticker = new Ticker(clock, 250)
  const sink: CallSink = {
    emit() {},
    flush: () => false,
    end: () => void calls.push('end'),
    fail: assert.fail,
    headSent: true,
    clientGone: false,
    closed: false,
    sendHead() {},
  }
  const call = {
    backend: backend(),
    clocks: { idle: 1e6, ceiling: 1e6, firstByte: 1e6, headWait: 1e6, drain: 0 },
    startedMono: 0,
    maxReply: 1024,
    facts: { clock },
    report: { served: undefined, tookPrompt: () => void calls.push('took the prompt') },
  } as unknown as AttemptCall
  const attempt = new Attempt(call, written, sink, ticker).start((_, given) => {
    handler = given
  })
  handler.onRequestStart(controller)
  handler.onResponseStart(controller, 200, { 'content-type': 'text/event-stream' })
  // One read may bring more than the piece at which the reader was full.
  handler.onResponseData(controller, Buffer.from('data: first\n\n'))
  handler.onResponseData(controller, Buffer.from('data: last\n\n'))
  handler.onResponseEnd(controller)
  assert.deepEqual(
    calls,
    ['pause', 'resume', 'took the prompt', 'end'],
    'what is left of the body is read, so that the connection can be kept',
  )
  attempt.resume()
  assert.equal(calls.length, 4)
  assert.equal(ticker.size, 0, 'its clocks are off')
})
