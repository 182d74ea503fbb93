import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  answer,
  deny,
  type Exchange,
  GatewayError,
  type Plugin,
  refuse,
  requestBody,
  type StreamEvent,
  type UpstreamControl,
} from '../../core/plugin.ts'
import { disconnection } from '../../plugins/shared/disconnection.ts'
import { asks, part, run, silent, terminal, turn } from './harness.ts'

const text = (t: string) => ({ type: 'text' as const, text: t })

const says = (what: string) =>
  terminal(x => {
    x.emit(text(what))
    x.end()
  })

/** A plugin that writes each of its hooks into a list. */
function tracer(name: string, seen: string[]) {
  return part(name, {
    onRequest() {
      seen.push(`${name}.request`)
      return undefined
    },
    onResponseHead() {
      seen.push(`${name}.head`)
      return undefined
    },
    onEvent(_, event) {
      seen.push(`${name}.${event.type}`)
      return undefined
    },
    onResponseEnd() {
      seen.push(`${name}.end`)
      return undefined
    },
    onSettle() {
      seen.push(`${name}.settle`)
      return undefined
    },
  })
}

test('requests go down, responses up through those passed and out below', async () => {
  const seen: string[] = []
  const r = await run([
    asks(),
    tracer('a', seen),
    tracer('b', seen),
    terminal(x => {
      x.emit(text('hi'))
      x.end()
    }),
    tracer('c', seen),
    tracer('d', seen),
  ])
  await r.settled
  assert.deepEqual(seen, [
    'a.request',
    'b.request',
    'b.text',
    'a.text',
    'c.text',
    'd.text',
    'b.head',
    'a.head',
    'c.head',
    'd.head',
    'b.end',
    'b.finish',
    'a.end',
    'a.finish',
    'c.end',
    'c.finish',
    'd.end',
    'd.finish',
    'b.settle',
    'a.settle',
    'c.settle',
    'd.settle',
  ])
  assert.equal(r.incoming.ending, 'whole')
})

test('a refusal starts above the plugin that made it, and still meets those below the terminal', async () => {
  const seen: string[] = []
  const r = await run([
    tracer('a', seen),
    part('guard', { onRequest: () => deny('invalid_value', { message: 'no' }) }),
    tracer('b', seen),
    terminal(() => assert.fail('reached')),
    tracer('c', seen),
  ])
  const settlement = await r.settled
  assert.deepEqual(seen, ['a.request', 'a.head', 'c.head', 'a.settle', 'c.settle'])
  assert.equal(r.incoming.status, 400)
  assert.equal(settlement.outcome, 'refused')
})

test('[ERR-2] the request id stands in header and body of a refusal', async () => {
  const r = await run([part('guard', { onRequest: () => deny('invalid_value', { message: 'no' }) }), terminal()])
  await r.settled
  assert.equal(r.incoming.sentHeaders.get('x-request-id'), 'req_test')
  assert.equal(JSON.parse(r.incoming.sent).error.request_id, 'req_test')
})

test('deferred releases run once, last in first out, after every onSettle', async () => {
  const order: string[] = []
  const r = await run([
    asks(),
    part('acquires', {
      onRequest(x) {
        x.defer(() => order.push('first'))
        x.defer(() => order.push('second'))
        return undefined
      },
      onSettle() {
        order.push('settle')
        return undefined
      },
    }),
    terminal(x => x.end()),
  ])
  await r.settled
  r.incoming.abort()
  r.x.end()
  r.x.fail(new GatewayError('internal_error', { message: 'late' }))
  assert.deepEqual(order, ['settle', 'second', 'first'])
  assert.equal(r.settlements.length, 1)
})

test('what is acquired after the client left is given back at once', async () => {
  let go!: () => void
  const released: string[] = []
  const r = await run([
    part('slow', {
      async onRequest(x) {
        await new Promise<void>(resolve => (go = resolve))
        x.defer(() => released.push('given back'))
        return undefined
      },
    }),
    terminal(() => assert.fail('reached')),
  ])
  await turn()
  r.incoming.abort()
  await r.settled
  go()
  await turn()
  assert.deepEqual(released, ['given back'])
  assert.equal(r.settlements[0]!.outcome, 'client_gone')
})

// A client that left while its request waited for a turn (validation, the meter's pool) was logged as `plugin failed` and
// counted as an error of the plugin.
test('what stops because its client has left is no failure of a plugin; what breaks then still is', async t => {
  const logged = t.mock.method(silent, 'error')
  for (const [fails, errors] of [
    [(signal: AbortSignal) => signal.reason, 0],
    [() => new Error('bug'), 1],
  ] as const) {
    const waits = part('waits', {
      onRequest: x =>
        new Promise((_, reject) => {
          const signal = disconnection(x)
          signal.addEventListener('abort', () => reject(fails(signal)))
        }),
    })
    const r = await run([waits, terminal(() => assert.fail('reached'))])
    await turn()
    r.incoming.abort()
    await turn()
    assert.equal((await r.settled).outcome, 'client_gone')
    assert.equal(r.chain.links[0]!.stats.errors, errors)
    assert.equal(logged.mock.callCount(), errors)
  }
})

test('an aborted wait while the client still waits is a failure of the plugin', async () => {
  const gives = part('gives', { onRequest: async () => AbortSignal.abort().throwIfAborted() as undefined })
  const r = await run([gives, terminal(() => assert.fail('reached'))])
  assert.equal((await r.settled).outcome, 'gateway_error')
  assert.equal(r.chain.links[0]!.stats.errors, 1)
})

test('a plugin that throws denies; marked skip it is passed over', async () => {
  const broken = part('broken', {
    onRequest() {
      throw new Error('secret detail')
    },
  })
  const denied = await run([broken, terminal(() => assert.fail('reached'))])
  await denied.settled
  assert.equal(denied.incoming.status, 500)
  assert.doesNotMatch(denied.incoming.sent, /secret detail/)

  const skipped = await run([asks(), broken, terminal(x => x.end())], { skip: ['broken'] })
  assert.equal((await skipped.settled).outcome, 'completed')
  assert.equal(skipped.chain.links[1]!.stats.errors, 1)
})

test('a request hook that returns what is no Reply denies; marked skip it is passed over', async () => {
  const circular: Record<string, unknown> = {}
  circular['self'] = circular
  for (const value of [null, true, 'text', {}, { kind: 'nothing' }]) {
    for (const result of [() => value, async () => value]) {
      const odd = part('odd', { onRequest: result as never })
      const denied = await run([odd, terminal(() => assert.fail('reached'))])
      assert.equal((await denied.settled).outcome, 'gateway_error')
      assert.equal(denied.incoming.status, 500)
      const skipped = await run([asks(), odd, terminal(x => x.end())], { skip: ['odd'] })
      assert.equal((await skipped.settled).outcome, 'completed')
    }
  }
  for (const body of [circular, { n: 1n }]) {
    for (const result of [() => answer(200, body), async () => answer(200, body)]) {
      const denied = await run([part('odd', { onRequest: result }), terminal(() => assert.fail('reached'))])
      assert.equal((await denied.settled).outcome, 'gateway_error')
      assert.equal(denied.incoming.status, 500)
      assert.equal(denied.incoming.answers, 1)
    }
  }
})

test('a stream hook that throws ends the stream with an error frame, never a clean end', async () => {
  const r = await run([
    asks(),
    part('broken', {
      onEvent(_, event) {
        if (event.type === 'text' && event.text === 'two') throw new Error('bug')
        return undefined
      },
    }),
    terminal(x => {
      x.emit(text('one'))
      x.emit(text('two'))
      x.emit(text('three'))
      x.end()
    }),
  ])
  await r.settled
  assert.equal(r.incoming.ending, 'whole', 'the frame must arrive: the connection is not cut under it')
  const events = r.events()
  assert.equal(events.at(-1).type, 'error')
  assert.deepEqual(
    events.filter(e => e.type === 'text').map(e => e.text),
    ['one'],
  )
})

test('no hook hears of an exchange that a broken hook has ended', async () => {
  const seen: string[] = []
  const r = await run([
    asks(),
    tracer('above', seen),
    part('broken', {
      onResponseEnd() {
        throw new Error('bug')
      },
    }),
    terminal(x => {
      x.emit(text('one'))
      x.emit({ type: 'usage', usage: { input: 1, output: 1 } as never })
      x.end()
    }),
    tracer('below', seen),
  ])
  assert.equal((await r.settled).outcome, 'gateway_error')
  assert.deepEqual(seen.slice(seen.indexOf('above.settle')), ['above.settle', 'below.settle'])
})

test('[STR-6] a rewriter that keeps the finish back ends the stream with an error frame; one that holds meanwhile may send it later', async () => {
  const forgets = part('forgets', {
    rewriteEvent(_, event, push) {
      if (event.type !== 'finish') push(event)
      return undefined
    },
  })
  const r = await run([asks(), forgets, says('one')])
  assert.equal((await r.settled).outcome, 'gateway_error')
  assert.equal(r.events().at(-1).type, 'error')

  const later = part('later', {
    rewriteEvent(x, event, push) {
      if (event.type !== 'finish') return void push(event) as undefined
      const release = x.hold()
      setImmediate(() => {
        push(event)
        release()
      })
      return undefined
    },
  })
  const whole = await run([asks(), later, says('one')])
  assert.equal((await whole.settled).outcome, 'completed')
  assert.deepEqual(
    whole.events().map(e => e.type),
    ['start', 'text', 'finish'],
  )
})

test('a rewriter that breaks after it has pushed, and is passed over, says nothing twice', async () => {
  const r = await run(
    [
      asks(),
      part('broken', {
        rewriteEvent(_, event, push) {
          if (event.type === 'text') push(text(event.text.toUpperCase()))
          throw new Error('bug')
        },
      }),
      says('one'),
    ],
    { skip: ['broken'] },
  )
  assert.equal((await r.settled).outcome, 'completed')
  assert.deepEqual(
    r.events().map(e => e.text ?? e.type),
    ['start', 'ONE', 'finish'],
  )
})

// A finish that a broken rewriter had answered with a push was dropped with the event that the push replaces: the whole
// reply then ended with an error frame.
test('a rewriter that breaks at the finish, after it has pushed, does not keep the finish from the client', async () => {
  const atFinish = (...pushed: StreamEvent[]) =>
    part('broken', {
      rewriteEvent(_, event, push) {
        if (event.type !== 'finish') return push(event) as undefined
        for (const one of pushed) push(one)
        throw new Error('bug')
      },
    })
  for (const [pushed, sent] of [
    [[text('two')], ['start', 'one', 'two', 'finish']],
    [
      [text('two'), { type: 'finish', reason: 'stop' }],
      ['start', 'one', 'two', 'finish'],
    ],
  ] as [StreamEvent[], string[]][]) {
    const r = await run([asks(), atFinish(...pushed), says('one')], { skip: ['broken'] })
    assert.equal((await r.settled).outcome, 'completed')
    assert.deepEqual(
      r.events().map(e => e.text ?? e.type),
      sent,
    )
  }
})

// What a plugin pushed at the end of a reply began at the first response hook: plugins that the reply had already
// passed saw a text that goes to nobody behind them, the pusher rewrote its own text, and a rewriter that withholds text
// until the finish, as one that masks does, could push it past a plugin that stands after it.
test('what onResponseEnd pushes goes on from the next plugin, past its own rewriter and all before', async () => {
  const seen: string[] = []
  const looks = (name: string) =>
    part(name, {
      onEvent(_, event) {
        seen.push(`${name}:${event.type === 'text' ? event.text : event.type}`)
        return undefined
      },
    })
  const brackets = (name: string, at?: string) =>
    part(name, {
      rewriteEvent(_, event, push) {
        push(event.type === 'text' ? text(`${name}[${event.text}]`) : event)
        return undefined
      },
      onResponseEnd(_, push) {
        if (at) push(text(at))
        return undefined
      },
    })
  const silently = part('ends', {
    onResponseEnd(_, push) {
      push(text('end'))
      return undefined
    },
  })
  const r = await run([
    asks(),
    brackets('a'),
    silently,
    looks('above'),
    brackets('b', 'tail'),
    looks('between'),
    says('hi'),
    brackets('c', 'out'),
    looks('below'),
  ])
  await r.settled
  assert.deepEqual(
    r.events().flatMap(e => e.text ?? []),
    ['c[a[b[hi]]]', 'c[a[tail]]', 'c[a[end]]', 'out'],
  )
  assert.deepEqual(seen, [
    ...['between:hi', 'above:b[hi]', 'below:c[a[b[hi]]]'],
    // The finish comes to a plugin's place, and then its text of the end goes on.
    ...['between:finish', 'above:tail', 'below:c[a[tail]]', 'above:finish'],
    ...['below:c[a[end]]', 'below:out', 'below:finish'],
  ])
})

// A rewriter keeps the end of a text back until the finish. What a plugin after it pushed at the end went first, and the
// client read "Bob hi".
test('what a rewriter keeps back until the finish leaves before what the next plugin pushes at the end', async () => {
  let kept = ''
  const keepsBack = part('keeps', {
    rewriteEvent(_, event, push) {
      if (event.type === 'text') kept += event.text
      else {
        if (event.type === 'finish') push(text(kept))
        push(event)
      }
      return undefined
    },
  })
  const signs = part('signs', {
    onResponseEnd(_, push) {
      push(text('Bob'))
      return undefined
    },
  })
  const r = await run([asks(), signs, keepsBack, says('hi')])
  await r.settled
  assert.deepEqual(
    r.events().flatMap(e => e.text ?? []),
    ['hi', 'Bob'],
  )
})

// The bytes that a plugin pushed at the end went through the hooks of plugins that the reply had already passed.
test('bytes that are pushed at the end of a reply of bytes go on from the next plugin', async () => {
  const seen: string[] = []
  const looks = (name: string, at?: string) =>
    part(name, {
      onChunk(_, bytes) {
        seen.push(`${name}:${Buffer.from(bytes)}`)
        return undefined
      },
      onResponseEnd(_, push) {
        if (at) push({ type: 'bytes', bytes: Buffer.from(at) })
        return undefined
      },
    })
  const sends = terminal(x => {
    x.respondHead(200, [])
    x.emit({ type: 'bytes', bytes: Buffer.from('hi') })
    x.end()
  })
  const r = await run([looks('a'), looks('b', 'tail'), looks('c'), sends, looks('d')])
  await r.settled
  assert.equal(r.incoming.sent, 'hitail')
  assert.deepEqual(seen, ['c:hi', 'b:hi', 'a:hi', 'd:hi', 'a:tail', 'd:tail'])
})

test('a tap that breaks hears no more, and the exchange ends as ever', async () => {
  for (const breaks of ['head', 'bytes', 'end'] as const) {
    const heard: string[] = []
    const note = (what: string) => () => {
      heard.push(what)
      if (what === breaks) throw new Error('bug')
    }
    const r = await run([
      asks(),
      part('taps', {
        onRequest(x) {
          x.onSent({ head: note('head'), bytes: note('bytes'), end: note('end') })
          return undefined
        },
      }),
      says('one'),
    ])
    assert.equal((await r.settled).outcome, 'completed', breaks)
    assert.equal(r.incoming.ending, 'whole')
    assert.equal(heard.at(-1), breaks)
  }
})

test('a plugin without hooks, or with a stream hook that would wait, does not start; all that did are closed', async () => {
  const closed: string[] = []
  const closes = (name: string) =>
    part(name, {
      close() {
        closed.push(name)
        throw new Error('bug')
      },
    })
  const starts = (plugin: Plugin) => run([closes('one'), closes('two'), plugin, terminal()])
  for (const hook of ['onEvent', 'rewriteEvent', 'onResponseHead', 'onError'])
    await assert.rejects(
      starts(part('waits', { [hook]: async () => undefined })),
      new RegExp(`'waits'.*${hook} is async`),
    )
  await assert.rejects(starts(part('bare', undefined as never)), /'bare' does not start: create returned no hooks/)
  assert.deepEqual(closed.slice(-2), ['two', 'one'])
})

test('a plugin that never comes up does not start, and one that never closes is not waited for', async t => {
  t.mock.timers.enable({ apis: ['setTimeout'] })
  const forever = new Promise<never>(() => {})
  const closed: string[] = []
  const first = part('first', { close: () => void closed.push('first') })
  const stuck = part('stuck', { close: () => forever })
  const starting = run([first, stuck, { ...part('late', {}), create: () => forever }, terminal()])
  for (const ms of [30_000, 10_000]) {
    for (let i = 0; i < 5; i++) await turn()
    t.mock.timers.tick(ms)
  }
  await assert.rejects(starting, /'late' does not start: create was not done within 30 s/)
  assert.deepEqual(closed, ['first'])
})

test('holds are counted, keep what follows from leaving, and pause the upstream', async () => {
  const releases: (() => void)[] = []
  const calls: string[] = []
  let reached!: Exchange
  const control: UpstreamControl = {
    pause: () => void calls.push('pause'),
    resume: () => void calls.push('resume'),
    abort: () => undefined,
  }
  const r = await run([
    asks(),
    part('holder', {
      onEvent(x, event) {
        if (event.type === 'finish') releases.push(x.hold(), x.hold())
        return undefined
      },
    }),
    terminal(x => {
      reached = x
      x.control(control)
      x.emit(text('one'))
      x.end()
    }),
  ])
  await turn()
  assert.ok(reached)
  assert.deepEqual(
    r.events().map(e => e.type),
    ['start', 'text'],
  )
  releases[0]!()
  releases[0]!()
  assert.equal(r.incoming.ending, 'open', 'one release, called twice, undoes one hold')
  releases[1]!()
  await r.settled
  assert.equal(r.events().at(-1).type, 'finish')
  assert.equal(r.incoming.ending, 'whole')
  assert.equal(calls[0], 'pause')
})

test('[STR-6] what the end was held for fails: the text leaves, then a frame, and no end', async () => {
  const r = await run([
    asks(),
    part('holder', {
      onEvent(x, event) {
        if (event.type !== 'finish') return undefined
        const release = x.hold()
        setImmediate(() => {
          x.fail(new GatewayError('provider_unavailable', { message: 'not stored' }))
          release()
        })
        return undefined
      },
    }),
    terminal(x => {
      x.emit(text('one'))
      x.end()
    }),
  ])
  const settlement = await r.settled
  assert.deepEqual(
    r.events().map(e => e.type),
    ['start', 'text', 'error'],
  )
  assert.equal(settlement.error?.code, 'provider_unavailable')
})

test('[STR-6] a failure after the head is a frame, and nothing after it', async () => {
  const r = await run([
    asks(),
    terminal(x => {
      x.emit(text('one'))
      x.flush()
      x.fail(new GatewayError('provider_unavailable', { message: 'gone' }))
      x.emit(text('late'))
      x.end()
    }),
  ])
  const settlement = await r.settled
  assert.deepEqual(
    r.events().map(e => e.type),
    ['start', 'text', 'error'],
  )
  assert.equal(r.incoming.ending, 'whole', 'the frame must arrive: the connection is not cut under it')
  assert.equal(settlement.outcome, 'upstream_error')
  assert.equal(settlement.delivered, true)
})

// The report of a reply that was cut has no finish with which it could pass: without it the bill knew nothing of hidden
// reasoning and of what was cached.
test('[BILL-3] what the provider reported of a reply that is cut passes before the end is told, once', async () => {
  const ends: [how: string, end: (x: Exchange, leave: () => void) => void][] = [
    ['a failure', x => x.fail(new GatewayError('provider_unavailable', { message: 'cut' }))],
    ['a client that leaves', (_, leave) => leave()],
    ['its own end', x => x.end()],
  ]
  for (const [how, end] of ends) {
    const seen: string[] = []
    let reached!: Exchange
    const r = await run([
      asks(),
      terminal(x => void (reached = x)),
      part('below', {
        onEvent(_, event) {
          if (event.type === 'usage') seen.push(JSON.stringify(event.usage))
          return undefined
        },
        onSettle() {
          seen.push('settled')
          return undefined
        },
      }),
    ])
    await turn()
    reached.emit(text('one'))
    reached.emit({ type: 'usage', usage: { prompt: 3 } })
    reached.emit({ type: 'usage', usage: { reasoning: 7 } })
    reached.flush()
    end(reached, () => r.incoming.abort())
    await r.settled
    assert.deepEqual(seen, ['{"prompt":3,"reasoning":7}', 'settled'], how)
  }
})

test('a failure before the head is a reply with its status', async () => {
  const r = await run([asks(), terminal(x => x.fail(new GatewayError('gateway_timeout', { message: 'slow' })))])
  await r.settled
  assert.equal(r.incoming.status, 504)
  assert.equal(r.incoming.sentHeaders.get('retry-after'), '5')
})

test('onError may answer otherwise', async () => {
  const r = await run([
    asks(),
    part('softener', { onError: () => ({ kind: 'json', status: 203, body: { soft: true } }) }),
    terminal(x => x.fail(new GatewayError('upstream_server_error', { message: 'x' }))),
  ])
  await r.settled
  assert.equal(r.incoming.status, 203)
})

test('a gateway-authored refusal is a reply of the surface with zero usage', async () => {
  const r = await run([
    asks(),
    part('safety', { onRequest: () => refuse('I can’t help with that.') }),
    terminal(() => assert.fail('reached')),
  ])
  const settlement = await r.settled
  assert.deepEqual(
    r.events().map(e => e.type),
    ['start', 'refusal', 'finish'],
  )
  assert.equal(r.events().at(-1).usage.output, 0)
  assert.equal(settlement.outcome, 'refused')
})

test('rewriteEvent replaces an event by none, one or many, and those behind it see the result', async () => {
  const below: string[] = []
  const r = await run([
    asks(),
    part('doubles', {
      rewriteEvent(_, event, push) {
        if (event.type === 'text' && event.text === 'drop') return undefined
        push(event)
        if (event.type === 'text') push({ type: 'text', text: event.text.toUpperCase() })
        return undefined
      },
    }),
    terminal(x => {
      x.emit(text('a'))
      x.emit(text('drop'))
      x.end()
    }),
    part('below', {
      onEvent(_, event) {
        if (event.type === 'text') below.push(event.text)
        return undefined
      },
    }),
  ])
  await r.settled
  assert.deepEqual(below, ['a', 'A'])
})

test('the client leaves: the upstream is aborted, the exchange settles once', async () => {
  const calls: string[] = []
  const r = await run([
    asks(),
    terminal(x => {
      x.control({ pause() {}, resume() {}, abort: reason => void calls.push(reason) as undefined })
      x.emit(text('one'))
      x.flush()
    }),
  ])
  await turn()
  r.incoming.abort()
  const settlement = await r.settled
  assert.deepEqual(calls, ['client_gone'])
  assert.equal(settlement.outcome, 'client_gone')
  assert.equal(settlement.delivered, true)
})

test('a draining upstream settles at its own end, as client_gone', async () => {
  const seen: string[] = []
  let reached!: Exchange
  const r = await run([
    asks(),
    terminal(x => {
      reached = x
      x.control({ pause() {}, resume() {}, abort: () => 'draining' })
      x.emit(text('one'))
      x.flush()
    }),
    part('watch', {
      onEvent(_, event) {
        seen.push(event.type)
        return undefined
      },
    }),
  ])
  await turn()
  r.incoming.abort()
  assert.equal(r.settlements.length, 0)
  reached.emit(text('two'))
  reached.end()
  assert.equal((await r.settled).outcome, 'client_gone')
  assert.deepEqual(seen, ['text', 'text', 'finish'])
})

test('[BILL-3] a drain is not held back by the client that left, even where the upstream goes on at once', async () => {
  let reached!: Exchange
  let goesOn = false
  const r = await run([
    asks(),
    terminal(x => {
      reached = x
      const abort = () => {
        x.emit(text('two'))
        goesOn = x.flush()
        return 'draining' as const
      }
      x.control({ pause() {}, resume() {}, abort })
      x.emit(text('one'))
    }),
  ])
  await turn()
  r.incoming.fast = false
  assert.equal(reached.flush(), false)
  r.incoming.abort()
  assert.equal(goesOn, true)
  reached.end()
  assert.equal((await r.settled).outcome, 'client_gone')
})

test('[STR-4] a slow reader pauses the upstream until it drains', async () => {
  const calls: string[] = []
  let reached!: Exchange
  const r = await run([
    asks(),
    terminal(x => {
      reached = x
      x.control({
        pause: () => void calls.push('pause'),
        resume: () => void calls.push('resume'),
        abort: () => undefined,
      })
      x.emit(text('one'))
    }),
  ])
  await turn()
  r.incoming.fast = false
  assert.equal(reached.flush(), false)
  r.incoming.drain()
  assert.deepEqual(calls, ['resume'])
  reached.end()
  await r.settled
})

test('[STR-5] keep-alives go out in silence, and only then', async () => {
  let reached!: Exchange
  const r = await run([
    asks(),
    terminal(x => {
      reached = x
      x.emit(text('one'))
      x.flush()
    }),
  ])
  await turn()
  r.clock.advance(14_000)
  assert.equal(r.events().filter(e => e.type === 'keep-alive').length, 0)
  r.clock.advance(2_000)
  assert.equal(r.events().filter(e => e.type === 'keep-alive').length, 1)
  reached.end()
  await r.settled
  assert.equal(r.clock.pending <= 1, true)
})

test('needing the body waits for it just above; too large a body is 413', async () => {
  const reader = part(
    'reader',
    {
      body: { maxBytes: 10, timeoutMs: 1000 },
      onRequest(x) {
        assert.equal(Buffer.from(x.get(requestBody)).toString(), 'small')
        return undefined
      },
    },
    { needs: [requestBody] },
  )
  const ok = await run([asks(), reader, terminal(x => x.end())], { request: { body: 'small' } })
  assert.equal((await ok.settled).outcome, 'completed')
  const large = await run([asks(), reader, terminal(() => assert.fail('reached'))], {
    request: { body: 'x'.repeat(11) },
  })
  await large.settled
  assert.equal(large.incoming.status, 413)
})

test('a body that is too large is answered past the plugins that the request has entered, and no others', async () => {
  const seen: string[] = []
  const looks = (name: string, more: Partial<Plugin> = {}) =>
    part(
      name,
      {
        body: { maxBytes: 3, timeoutMs: 1000 },
        onRequest: () => undefined,
        onResponseHead(_, head) {
          seen.push(`${name} ${head.status}`)
          return undefined
        },
      },
      more,
    )
  const r = await run([looks('a'), looks('b'), looks('reads', { needs: [requestBody] }), says('hi'), looks('below')], {
    request: { method: 'POST', body: 'four' },
  })
  await r.settled
  assert.deepEqual(seen, ['b 413', 'a 413', 'below 413'])
})

test('the counters of a plugin begin at zero and count its calls', async () => {
  const r = await run([asks(), part('quiet', {}), says('hi')])
  await r.settled
  const zero = { calls: 0, refusals: 0, errors: 0, sampledCalls: 0, sampledMs: 0, sampledReplyMs: 0 }
  assert.deepEqual(r.chain.links[1]!.stats, zero)
  assert.equal(r.chain.links[0]!.stats.calls, 1)
})

test('a bytes reply passes chunks untouched and ends whole', async () => {
  const sizes: number[] = []
  const r = await run([
    terminal(x => {
      x.respondHead(200, [['content-type', 'application/octet-stream']])
      x.emit({ type: 'bytes', bytes: new TextEncoder().encode('abc') })
      x.flush()
      x.end()
    }),
    part('watch', {
      onChunk(_, bytes) {
        sizes.push(bytes.length)
        return undefined
      },
    }),
  ])
  assert.equal((await r.settled).outcome, 'completed')
  assert.equal(r.incoming.sent, 'abc')
  assert.deepEqual(sizes, [3])
})

test('a head hook that ends its exchange: one answer, and no head after it', async () => {
  // The head of the stream was sent all the same: a second head behind the error, which a listener throws at.
  let once = true
  const r = await run([
    asks(),
    part('ends', {
      onResponseHead(x) {
        if (once) {
          once = false
          x.fail(new GatewayError('upstream_server_error', { message: 'not this head' }))
        }
        return undefined
      },
    }),
    says('one'),
  ])
  assert.equal((await r.settled).outcome, 'upstream_error')
  assert.equal(r.incoming.answers, 1)
  assert.equal(r.incoming.status, 502)
  assert.doesNotMatch(r.incoming.sent, /one/)
})

test('an exchange that fails by what was held resumes no upstream, and says nothing that came behind the failure', async () => {
  // The upstream that had been told to stop was told to go on again.
  const calls: string[] = []
  let release!: () => void
  const r = await run([
    asks(),
    terminal(x => {
      x.control({
        pause: () => void calls.push('pause'),
        resume: () => void calls.push('resume'),
        abort: () => void calls.push('abort') as undefined,
      })
      x.emit(text('one'))
      release = x.hold()
      x.emit({ type: 'error', error: new GatewayError('upstream_server_error', { message: 'no more' }) })
      x.emit(text('late'))
    }),
  ])
  await turn()
  release()
  await r.settled
  assert.deepEqual(calls, ['pause', 'abort'])
  assert.deepEqual(
    r.events().map(e => e.type),
    ['start', 'text', 'error'],
  )
})

// ---- a stream that runs on without its client -----------------------------------------------------------------------

/** A chain whose request runs on, with what its watch and its upstream are told. */
async function runningOn(more: Plugin[] = []) {
  const told: string[] = []
  const upstream: string[] = []
  let takeBack = () => {}
  const watching = part('watching', {
    onRequest(x) {
      takeBack = x.runOn({
        more: () => void told.push('more') as undefined,
        end: whole => void told.push(whole ? 'whole' : 'cut') as undefined,
      })
      return undefined
    },
  })
  let x!: Exchange
  const held = terminal(reached => {
    x = reached
    x.control({
      pause: () => void upstream.push('pause'),
      resume: () => void upstream.push('resume'),
      abort: reason => void upstream.push(reason) as undefined,
    })
  })
  const r = await run([asks({ stream: true }), watching, ...more, held])
  await turn()
  const say = (what: string) => {
    x.emit(text(what))
    return x.flush()
  }
  const finish = () => {
    x.emit({ type: 'finish', reason: 'stop' })
    x.end()
  }
  return { r, x, told, upstream, say, finish, takeBack: () => takeBack() }
}

test('a stream that runs on ends as if its client were there, and sends it nothing more', async () => {
  const { r, x, told, upstream, say, finish } = await runningOn()
  say('one')
  const sent = r.incoming.sent
  r.incoming.abort()
  assert.equal(say('two'), true)
  assert.deepEqual([x.clientGone, x.closed, upstream.includes('client_gone')], [false, false, false])
  assert.deepEqual(told, ['more', 'more'])
  finish()
  const { outcome, delivered } = await r.settled
  assert.deepEqual([outcome, delivered, r.incoming.sent], ['completed', true, sent])
  assert.deepEqual(told, ['more', 'more', 'whole'])
})

test('a slow client that leaves holds the rest back no longer: not the upstream, and not the end', async () => {
  const { r, told, upstream, say, finish } = await runningOn()
  r.incoming.fast = false
  assert.equal(say('one'), false)
  r.incoming.abort()
  assert.deepEqual(upstream, ['resume'])
  finish()
  assert.deepEqual([(await r.settled).outcome, told.at(-1)], ['completed', 'whole'])

  const waiting = await runningOn()
  waiting.r.incoming.fast = false
  waiting.say('one')
  waiting.finish()
  assert.equal(waiting.x.closed, false)
  waiting.r.incoming.abort()
  assert.deepEqual([(await waiting.r.settled).outcome, waiting.told.at(-1)], ['completed', 'whole'])
})

test('running on is for a stream whose head was sent, and can be taken back before or after its client left', async () => {
  const early = await runningOn()
  early.r.incoming.abort()
  assert.deepEqual([(await early.r.settled).outcome, early.told], ['client_gone', ['cut']])

  for (const first of ['leave', 'take back'] as const) {
    const { r, told, upstream, say, takeBack } = await runningOn()
    say('one')
    if (first === 'leave') r.incoming.abort()
    takeBack()
    if (first === 'take back') {
      assert.equal(upstream.includes('client_gone'), false)
      r.incoming.abort()
    }
    assert.deepEqual(
      [(await r.settled).outcome, upstream.at(-1), told],
      ['client_gone', 'client_gone', ['more', 'cut']],
    )
  }
})

test('whoever watches a stream is told that it was cut when its outcome could not be written', async () => {
  const failing = part('failing', { onSettle: () => Promise.reject(new Error('no store')) })
  const { r, told, say, finish } = await runningOn([failing])
  say('one')
  r.incoming.abort()
  finish()
  await r.settled
  assert.deepEqual(told, ['more', 'cut'])
})

test('keep-alives of a stream that runs on go on without its client', async () => {
  const { r, told, say, finish } = await runningOn()
  say('one')
  r.incoming.abort()
  r.clock.advance(20_000)
  assert.deepEqual(told, ['more', 'more'])
  finish()
  await r.settled
})
