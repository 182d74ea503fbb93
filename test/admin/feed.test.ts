/** The feed: one snapshot a second for all pages, nothing while there is none, and figures that add up. */
import assert from 'node:assert/strict'
import { EventEmitter } from 'node:events'
import type { ServerResponse } from 'node:http'
import { test } from 'node:test'
import { AccountReader } from '../../admin/accounts.ts'
import { Feed } from '../../admin/feed.ts'
import { Quantiles } from '../../admin/quantiles.ts'
import { KEPT, RecentExchanges } from '../../admin/recent.ts'
import type { Snapshot, Snapshots } from '../../admin/snapshot.ts'
import { UseByKey } from '../../admin/usage.ts'
import type { Store } from '../../core/ports/store.ts'
import { ManualClock } from '../../core/tools/clock.ts'
import { startGateway, type TestGateway } from '../e2e/harness.ts'
import { eventually } from '../eventually.ts'
import { LIMITS, request } from './load.ts'

class FakePage extends EventEmitter {
  frames: any[] = []
  writableLength = 0
  ended = false
  writeHead() {
    return this
  }
  flushHeaders() {}
  write(text: string) {
    this.frames.push(JSON.parse(text.slice('data: '.length)))
    return true
  }
  end() {
    this.ended = true
  }
}
const page = () => {
  const fake = new FakePage()
  return { fake, response: fake as unknown as ServerResponse }
}

function fakeSnapshots() {
  const calls = { start: 0, stop: 0, take: 0, tick: 0, close: 0 }
  const snapshots = {
    async start() {
      calls.start++
    },
    stop: () => void calls.stop++,
    tick: () => void calls.tick++,
    close: () => void calls.close++,
    take: () => ({ n: ++calls.take, recent: ['new'] }) as unknown as Snapshot,
    whole: (snapshot: Snapshot) => ({ ...snapshot, recent: ['all'] }) as unknown as Snapshot,
  }
  return { calls, snapshots: snapshots as unknown as Snapshots }
}

test('without a page only the charts’ point is taken; with several, one snapshot for all of them', async () => {
  const clock = new ManualClock()
  const { calls, snapshots } = fakeSnapshots()
  const feed = new Feed(snapshots, clock)
  clock.advance(5000)
  assert.deepEqual(calls, { start: 0, stop: 0, take: 0, tick: 5, close: 0 })

  const [a, b] = [page(), page()]
  assert.equal(await feed.join(a.response), true)
  assert.deepEqual(a.fake.frames, [{ n: 1, recent: ['all'] }], 'the first at once, with what is kept')
  await feed.join(b.response)
  clock.advance(3000)
  assert.deepEqual(calls, { start: 1, stop: 0, take: 4, tick: 8, close: 0 })
  assert.deepEqual(
    a.fake.frames.map(frame => frame.recent[0]),
    ['all', 'new', 'new', 'new'],
  )
  assert.deepEqual(
    b.fake.frames.map(frame => [frame.n, frame.recent[0]]),
    [
      [2, 'all'],
      [3, 'new'],
      [4, 'new'],
    ],
  )
  assert.equal(feed.pages, 2)

  a.fake.emit('close')
  b.fake.emit('close')
  assert.equal(calls.stop, 1)
  clock.advance(5000)
  assert.deepEqual([calls.take, calls.tick], [4, 13])
  feed.close()
  assert.deepEqual([calls.close, clock.pending], [1, 0])
})

test('a page that takes nothing is passed over and keeps no memory; too many pages are refused; close ends them', async () => {
  const clock = new ManualClock()
  const { snapshots } = fakeSnapshots()
  const feed = new Feed(snapshots, clock)
  const slow = page()
  await feed.join(slow.response)
  slow.fake.writableLength = 5 << 20
  clock.advance(10_000)
  assert.equal(slow.fake.frames.length, 1)
  slow.fake.writableLength = 0
  clock.advance(1000)
  assert.equal(slow.fake.frames.length, 2)
  for (let i = 1; i < 20; i++) assert.equal(await feed.join(page().response), true)
  assert.equal(await feed.join(page().response), false)
  feed.close()
  assert.equal(slow.fake.ended, true)
  assert.equal(clock.pending, 0)
})

test('the last hundred of all and the last hundred that went wrong are kept, in order', () => {
  const recent = new RecentExchanges()
  const add = (outcome: string) =>
    recent.add({
      id: '',
      at: 0,
      route: '',
      model: '',
      unknownModel: '',
      backend: '',
      organization: '',
      key: '',
      status: 0,
      outcome,
      code: '',
      param: '',
      cause: '',
      client: '',
      durationMs: 0,
      ttfbMs: null,
      input: 0,
      output: 0,
      cost: 0,
      failed: [],
      passedOver: [],
      slowedMs: 0,
      taken: null,
      timeline: null,
    })
  for (let i = 0; i < 30; i++) add('refused')
  for (let i = 0; i < 1000; i++) add('completed')
  const all = recent.since(0)
  assert.equal(all.length, 30 + KEPT)
  assert.deepEqual(
    all.map(record => record.seq),
    [...Array.from({ length: 30 }, (_, i) => i + 1), ...Array.from({ length: KEPT }, (_, i) => 931 + i)],
  )
  assert.deepEqual(
    recent.since(1028).map(record => record.seq),
    [1029, 1030],
  )
  for (let i = 0; i < 500; i++) add('upstream_error')
  assert.equal(recent.since(0).length, KEPT)
  assert.equal(recent.last, 1530)
})

test('quantiles are within three in a hundred, whatever the order of magnitude, and start anew when taken', () => {
  const quantiles = new Quantiles()
  assert.deepEqual(quantiles.take([0.5, 0.99]), [null, null])
  for (const unit of [0.05, 3, 700, 20_000]) {
    for (let i = 1; i <= 1000; i++) quantiles.observe(unit * i)
    const [p50, p99] = quantiles.take([0.5, 0.99])
    assert.ok(Math.abs(p50! / (unit * 500) - 1) < 0.03, `${p50}`)
    assert.ok(Math.abs(p99! / (unit * 990) - 1) < 0.03, `${p99}`)
  }
  quantiles.observe(0)
  assert.ok(quantiles.take([0.5])[0]! < 0.011)
  quantiles.observe(1e12)
  assert.ok(Number.isFinite(quantiles.take([0.5])[0]!))
})

/** Frames of a real feed. */
async function follow(g: TestGateway) {
  const answer = await fetch(`${g.gateway.adminAddress}/feed`)
  const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader()
  let rest = ''
  return {
    async next(): Promise<Snapshot> {
      while (!rest.includes('\n\n')) {
        const { done, value } = await reader.read()
        if (done) throw new Error('the feed ended')
        rest += value
      }
      const end = rest.indexOf('\n\n')
      const text = rest.slice('data: '.length, end)
      rest = rest.slice(end + 2)
      return JSON.parse(text) as Snapshot
    },
    close: () => reader.cancel(),
  }
}

test('a snapshot tells what happened: counts, limits, spend, backends, plugins, exchanges with their timelines', async () => {
  const g = await startGateway({ organization: LIMITS })
  try {
    for (let i = 0; i < 20; i++) await request(g, i)
    await eventually(() => g.gateway.ingress.running.size === 0)
    const feed = await follow(g)
    const first = await feed.next()
    assert.equal(first.recent.length, 20)
    assert.equal(first.recent.filter(record => record.outcome === 'refused').length, 2)
    const acme = first.accounts.rows.find(row => row.id === 'acme')!
    const limit = (dimension: string, per: string, model?: string) =>
      acme.limits.find(row => row.dimension === dimension && row.per === per && row.model === model)!
    const rows = await g.ledger()
    const spent = rows.reduce((sum, row) => sum + row.cost, 0)
    assert.ok(spent > 0)
    assert.deepEqual(limit('spend', 'day'), { dimension: 'spend', per: 'day', capacity: 2e9, used: spent })
    assert.deepEqual(limit('spend', 'month'), { dimension: 'spend', per: 'month', capacity: 30e9, used: spent })
    assert.ok(limit('requests', 'minute').used >= 0 && limit('requests', 'minute').used <= 18)
    assert.equal(limit('concurrency', '').used, 0)
    // A minute's bucket is soon full again; a day's is not.
    assert.ok(limit('tokens', 'minute', 'eb1-preview').used < limit('tokens', 'day').used)
    assert.ok(limit('tokens', 'minute').used <= limit('tokens', 'day').used)
    assert.equal(acme.use.requests, 20)
    assert.equal(acme.use.cost, spent)
    assert.deepEqual(
      acme.keys.map(key => [key.id, key.status, key.use.requests]),
      [['key_test', 'active', 20]],
    )

    const timed = first.recent.find(record => record.timeline !== null && record.outcome === 'completed')!
    const phases = timed.timeline!.map(entry => `${entry.plugin} ${entry.phase}`)
    for (const wanted of [
      'auth onRequest',
      ' body',
      'upstream forward',
      'upstream upstream',
      'upstream reply',
      'usage-capture onEvent',
      'header-stamp onResponseHead',
      'usage-capture onSettle',
    ])
      assert.ok(phases.includes(wanted), `${wanted} in ${phases}`)
    for (const { at, ms } of timed.timeline!) assert.ok(at >= 0 && ms >= 0)
    const waited = timed.timeline!.find(entry => entry.phase === 'upstream')!
    const reply = timed.timeline!.find(entry => entry.phase === 'reply')!
    // Sums of clock reads: the last digits are rounded.
    assert.ok(waited.at + waited.ms <= reply.at + 1e-6, 'the reply begins when the wait has ended')

    for (let i = 20; i < 30; i++) await request(g, i)
    const seen: Snapshot[] = []
    const recent = () => seen.flatMap(snapshot => snapshot.recent).length
    while (recent() < 10) seen.push(await feed.next())
    seen.push(await feed.next())
    assert.equal(recent(), 10, 'each once')
    const { today } = seen.at(-1)!
    assert.equal(today.refused, 3)
    assert.ok(today.ttfb99! > 0)
    const sum = (read: (snapshot: Snapshot) => number) => seen.reduce((total, snapshot) => total + read(snapshot), 0)
    assert.ok(sum(snapshot => snapshot.live.ok) > 0)
    assert.ok(sum(snapshot => snapshot.live.refused) > 0)
    assert.ok(
      seen.some(
        snapshot => snapshot.live.duration.p99! >= snapshot.live.duration.p50! && snapshot.live.duration.p50! > 0,
      ),
    )
    const chain = seen.at(-1)!.chains.find(row => row.name === 'completions')!
    assert.ok(Math.abs(chain.links.reduce((total, link) => total + link.share, 0) - 1) < 0.02)
    assert.ok(chain.links.find(link => link.id === 'usage-capture')!.share > 0, 'response hooks count too')
    const backend = seen.at(-1)!.backends.find(row => row.id === 'chat/sim-large')!
    assert.deepEqual(
      [backend.models, backend.breaker, backend.inFlight],
      [['eb1-preview', 'eb1-delta-preview'], 'closed', 0],
    )
    assert.ok(backend.attemptsTotal > 0)
    await feed.close()
  } finally {
    await g.close()
  }
})

test('an open breaker and a stream under way are seen; /accounts finds by organization, plan and key', async () => {
  const g = await startGateway({ plugins: { upstream: '{ breaker: { failures: 3, open_for: 60s }, attempts: 1 }' } })
  try {
    const ask = (content: string, model: string) => ({ model, stream: true, messages: [{ role: 'user', content }] })
    for (let i = 0; i < 3; i++)
      await (await g.post('/v1/chat/completions', ask('[[sim: status 500]] x', 'eb1-preview-fast'))).text()
    await g.ledger()
    const open = await g.post('/v1/chat/completions', ask('[[sim: stall 3]] x', 'eb1-preview'))
    const feed = await follow(g)
    const { backends, live, providers, impacts, incidents, today, ready } = await feed.next()
    assert.deepEqual(
      backends.map(row => [row.id, row.breaker, row.inFlight]).filter(row => row[1] !== 'closed' || row[2] !== 0),
      [
        ['chat/sim-large', 'closed', 1],
        ['messages/sim-fast', 'open', 0],
      ],
    )
    assert.deepEqual([live.streams, live.exchanges], [1, 1])
    // Why, since when and until when it is left out; how many got no answer, and who.
    const { out } = backends.find(row => row.id === 'messages/sim-fast')!
    assert.deepEqual([out!.why, out!.scope, out!.code], ['failures', 'organization', 'upstream_server_error'])
    assert.ok(out!.until > out!.since && /^req_/.test(out!.requestId))
    assert.ok(backends.every(row => (row.out === null) === (row.breaker === 'closed')))
    assert.deepEqual(
      impacts.map(row => [row.backend, row.all, row.wrong, row.organizations]),
      [['messages/sim-fast', 3, 3, [['acme', 3]]]],
    )
    assert.deepEqual(
      incidents.map(row => [row.code, row.backend, row.fault, row.count]),
      [['upstream_server_error', 'messages/sim-fast', true, 3]],
    )
    assert.deepEqual([ready.ok, ready.since > 0, today.ledger!.failed], [true, true, 3])
    assert.equal(providers.find(row => row.provider === 'chat')!.inFlight, 1)
    await open.body!.cancel()
    await eventually(() => g.gateway.ingress.running.size === 0)
    for (;;) {
      const next = await feed.next()
      if (next.live.streams === 0 && next.backends.every(row => row.inFlight === 0)) break
    }
    await feed.close()

    const find = async (text: string) =>
      ((await (await fetch(`${g.gateway.adminAddress}/accounts?find=${text}`)).json()) as any).rows.map(
        (row: any) => row.id,
      )
    assert.deepEqual(await find('ACM'), ['acme'])
    assert.deepEqual(await find('key_other'), ['other'])
    assert.deepEqual((await find('custom')).sort(), ['acme', 'other'])
    assert.deepEqual(await find('nobody'), [])
  } finally {
    await g.close()
  }
})

test('accounts: at most fifty at once, the busiest first; a store that fails leaves the page standing', async () => {
  const g = await startGateway()
  try {
    const { config } = g.gateway
    const acme = config.organizations['acme']!
    const many = {
      ...config,
      organizations: Object.fromEntries(Array.from({ length: 300 }, (_, i) => [`org${i}`, { ...acme, id: `org${i}` }])),
    }
    const use = new UseByKey()
    for (let i = 0; i < 60; i++) for (let j = 0; j <= i; j++) use.add(`org${i}`, 'key_test', 1, 1, 1)
    const accounts = await new AccountReader(g.gateway.store, use).read(many, '', Date.now())
    assert.deepEqual([accounts.rows.length, accounts.total, accounts.failed], [50, 300, false])
    assert.deepEqual(
      accounts.rows.slice(0, 2).map(row => [row.id, row.use.requests]),
      [
        ['org59', 60],
        ['org58', 59],
      ],
    )
    const limited = { ...acme, limits: { ...acme.limits, requests_per_minute: 5 } }
    const down = { limits: { peek: () => Promise.reject(new Error('down')) } } as unknown as Store
    const failed = await new AccountReader(down, use).read(
      { ...config, organizations: { acme: limited } },
      '',
      Date.now(),
    )
    assert.deepEqual([failed.rows, failed.failed], [[], true])
    for (let i = 0; i < 5000; i++) use.add(`other${i}`, 'key_test', 1, 1, 1)
    assert.deepEqual([[...use.organizations()].length, use.total('org59').requests], [5000, 0])
  } finally {
    await g.close()
  }
})
