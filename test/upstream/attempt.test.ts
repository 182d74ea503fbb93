import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Dispatcher } from 'undici'
import type { Decoder } from '../../core/ports/dialect.ts'
import { ManualClock } from '../../core/tools/clock.ts'
import type { Outbound } from '../../plugins/shared/slots.ts'
import { Attempt, type AttemptOwner, type AttemptSink } from '../../plugins/translation/attempt.ts'
import type { ReplyHandler } from '../../plugins/upstream/http1/client.ts'
import type { ProviderPool } from '../../plugins/upstream/pools.ts'
import { SseReader } from '../../providers/sse.ts'
import { backend } from '../plugins/kit.ts'

test('[STR-4] a reply that was whole before its reader went on does not resume its connection, which serves another by then', () => {
  const calls: string[] = []
  const controller = {
    aborted: false,
    pause: () => void calls.push('pause'),
    resume: () => void calls.push('resume'),
    abort: () => void calls.push('abort'),
  } as unknown as Dispatcher.DispatchController
  let handler!: ReplyHandler
  const pool = { auth: null, dispatcher: { dispatch: (_: unknown, given: ReplyHandler) => (handler = given) } }
  const decoder: Decoder = {
    done: false,
    frame(_, data, push) {
      push({ type: 'text', text: data })
      Object.assign(this, { done: data === 'last' })
    },
    body() {},
    end: push => push({ type: 'finish', reason: 'stop' }),
  }
  const outbound = {
    request: { path: '', method: 'POST', headers: {} },
    decoder: () => decoder,
    frames: () => new SseReader(),
  } as unknown as Outbound
  const clocks = { idle: 1e6, ceiling: 1e6, firstByte: 1e6, headWait: 1e6, drain: 0 }
  const owner: AttemptOwner = {
    answered() {},
    silent() {},
    failed() {},
    oversized() {},
    over: () => void calls.push('over'),
  }
  const sink: AttemptSink = {
    emit() {},
    flush: () => false,
    end: () => void calls.push('end'),
    fail: assert.fail,
    headSent: true,
    sendHead() {},
  }
  const call = { backend: backend(), outbound, own: {}, clocks, exchangeMono: 0, begun: false, maxReply: 1024 }
  const attempt = new Attempt(call, new ManualClock(), owner, sink)
  attempt.start(pool as unknown as ProviderPool)
  handler.onRequestStart?.(controller, null)
  handler.onResponseStart?.(controller, 200, { 'content-type': 'text/event-stream' })
  // One read may bring more than the piece at which the reader was full.
  handler.onResponseData?.(controller, Buffer.from('data: first\n\n'))
  handler.onResponseData?.(controller, Buffer.from('data: last\n\n'))
  handler.onResponseEnd?.(controller, {})
  assert.deepEqual(
    calls,
    ['pause', 'resume', 'over', 'end'],
    'what is left of the body is read, so that the connection can be kept',
  )
  attempt.resume()
  assert.equal(calls.length, 4)
})
