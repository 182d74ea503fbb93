/** Streams that are read again: of stored responses, and of those that run and were asked to be readable (RESP-8, 9). */
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import type OpenAI from 'openai'
import { eventually } from '../eventually.ts'
import { behave, type FakeUpstream, startFakeUpstream } from '../fake-upstream/server.ts'
import { LISTENERS } from '../listeners.ts'
import { KEY, startGateway, type TestGateway } from './harness.ts'
import { SocketClient } from './socket-client.ts'

type Event = OpenAI.Responses.ResponseStreamEvent

const MODEL = 'eb1-preview'
const SIX = '[[sim: text "one two three four five six"]] x'
const RESUMABLE = { 'x-sluice-resumable': 'true' }
const OTHER = { authorization: 'Bearer sk-other-0001-secret' }

for (const listener of LISTENERS) {
  describe(listener, () => {
    let t: TestGateway
    let upstream: FakeUpstream

    before(async () => {
      upstream = await startFakeUpstream()
      t = await startGateway({
        gateway: { listener },
        providers: `  one: { dialect: openai-chat, base_url: "${upstream.url}" }`,
        models: `  ${MODEL}: { context_window: 400000, price: { input: 1.25, output: 10.00 }, backends: [{ provider: one, model: sim-aaaa }] }`,
      })
    })
    after(async () => {
      await t.close()
      await upstream.close()
    })

    /** The upstream sends this many events, then waits for `go`. */
    function gated(events = 4) {
      const { promise: gate, resolve: go } = Promise.withResolvers<void>()
      upstream.script = async turn => {
        const reply = await turn.open()
        for (const event of reply.events.slice(0, events)) await turn.chunk(event)
        await gate
        for (const event of reply.events.slice(events)) if (!(await turn.chunk(event))) return
        await turn.end()
      }
      return go
    }
    const free = () => {
      upstream.script = behave
    }
    const body = (input = SIX, more: object = {}) => ({ model: MODEL, input, stream: true, ...more })
    const get = (path: string, headers: Record<string, string> = {}) =>
      fetch(`${t.url}/v1/responses/${path}`, { headers: { authorization: `Bearer ${KEY}`, ...headers } })
    const split = (sse: string): string[] => sse.split(/(?<=\n\n)/)
    const rowOf = async (response: Response) =>
      (await t.ledger()).filter(row => row.request_id === response.headers.get('x-request-id'))

    /** Begins a stream, reads its first frames, and leaves. */
    async function begun(headers: Record<string, string> = RESUMABLE, input = SIX) {
      const leaving = new AbortController()
      const response = await fetch(`${t.url}/v1/responses`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', authorization: `Bearer ${KEY}`, ...headers },
        body: JSON.stringify(body(input)),
        signal: leaving.signal,
      })
      assert.equal(response.status, 200)
      const reader = response.body!.getReader()
      let text = ''
      const decoder = new TextDecoder()
      while (!/"delta":"[^"]*two/.test(text)) text += decoder.decode((await reader.read()).value, { stream: true })
      const id = /resp_\w+/.exec(text)![0]
      return { id, response, text: text.slice(0, text.lastIndexOf('\n\n') + 2), leave: () => leaving.abort() }
    }

    test('[RESP-8] a finished stream has the same bytes from any event on; the SDK gets the same response', async () => {
      free()
      const input = '[[sim: reason 2; text "Hello é 😀 there"; call get_weather {"city":"Oslo"}]] x'
      const tools = [{ type: 'function' as const, name: 'get_weather', parameters: {}, strict: false }]
      const more = { tools, reasoning: { summary: 'auto' as const } }
      const first = split(await (await t.post('/v1/responses', body(input, more))).text())
      const id = /resp_\w+/.exec(first[0]!)![0]
      assert.ok(first.length > 20, first.join(''))
      const reply = await get(`${id}?stream=true`)
      assert.equal(reply.headers.get('content-type'), 'text/event-stream; charset=utf-8')
      assert.equal(await reply.text(), first.join(''))
      for (let seen = 0; seen < first.length; seen++) {
        const rest = await (await get(`${id}?stream=true&starting_after=${seen}`)).text()
        assert.equal(rest, first.slice(seen + 1).join(''))
      }
      const client = t.openai()
      const stored: any = await client.responses.retrieve(id)
      const events: Event[] = []
      const query = { stream: true, starting_after: 4, include_obfuscation: false } as const
      for await (const event of await client.responses.retrieve(id, query)) events.push(event)
      assert.deepEqual(
        events.map(({ sequence_number }) => sequence_number),
        first.slice(5).map((_, i) => i + 5),
      )
      const again: any = await client.responses.stream({ response_id: id, starting_after: 4 }).finalResponse()
      assert.deepEqual(again.output_text, stored.output_text)
      assert.deepEqual(again.usage, stored.usage)
      assert.equal(again.output.length, stored.output.length)
    })

    test('[RESP-8] a response that was not streamed, and one made over a WebSocket, can be read as streams', async () => {
      free()
      const client = t.openai()
      const whole: any = await client.responses.create({ model: MODEL, input: SIX })
      const again: any = await client.responses.stream({ response_id: whole.id }).finalResponse()
      assert.deepEqual([again.output_text, again.id], ['one two three four five six', whole.id])
      const rest = await (await get(`${whole.id}?stream=true&starting_after=3`)).text()
      assert.match(rest, /^event: response\.output_text\.delta\ndata: \{"type":"[\w.]+","sequence_number":4,/)
    })

    test('[RESP-8] [RESP-9] over a WebSocket, too: read again when it has ended, and while it runs without its socket', {
      skip: listener === 'node',
    }, async () => {
      free()
      const socket = await SocketClient.open(t, { headers: RESUMABLE })
      socket.create(SIX)
      const sent = await socket.response()
      const { id } = sent.at(-1)!['response'] as { id: string }
      const parsed = async (reply: Response) =>
        split(await reply.text())
          .filter(frame => !frame.startsWith(':'))
          .map(frame => JSON.parse(frame.slice(frame.indexOf('{'))))
      const strip = ({ headers: _, ...frame }: Record<string, unknown>) => frame
      assert.deepEqual(await parsed(await get(`${id}?stream=true`)), sent.map(strip))

      const go = gated()
      socket.create(SIX)
      const first = [await socket.next(), await socket.next()]
      const { id: running } = first[0]!['response'] as { id: string }
      const reader = await get(`${running}?stream=true&starting_after=1`)
      socket.close()
      go()
      const rest = await parsed(reader)
      assert.deepEqual(
        [...first, ...rest].map(frame => frame.sequence_number),
        Array.from({ length: first.length + rest.length }, (_, i) => i),
      )
      assert.equal(rest.at(-1).response.output[0].content[0].text, 'one two three four five six')
    })

    test('[RESP-8] refusals: a place that is none, one that is not there, unknown ids, rights', async () => {
      free()
      const { id } = (await (await t.post('/v1/responses', body(SIX, { stream: false }))).json()) as { id: string }
      const refused = async (path: string, headers = {}) => {
        const reply = await get(path, headers)
        const { error } = (await reply.json()) as any
        return [reply.status, error.code, error.param]
      }
      for (const place of ['-1', 'x', '1.5', '', '99999999999999999999'])
        assert.deepEqual(await refused(`${id}?stream=true&starting_after=${place}`), [
          400,
          'invalid_value',
          'starting_after',
        ])
      assert.deepEqual(await refused(`${id}?stream=true&starting_after=9`), [400, 'invalid_value', 'starting_after'])
      const end = await get(`${id}?stream=true&starting_after=8`)
      assert.deepEqual([end.status, await end.text()], [200, ''])
      const unknown = [404, 'response_not_found', null]
      assert.deepEqual(await refused(`resp_${'a'.repeat(24)}?stream=true`), unknown)
      assert.deepEqual(await refused(`${id}?stream=true`, OTHER), unknown)
    })

    test('[RESP-9] a stream that runs is read from any event on, also after its client left; it is billed once, in full', async () => {
      const go = gated()
      const { id, response, text, leave } = await begun()
      const seen = split(text).length - 1
      const object = (await (await get(id)).json()) as any
      assert.deepEqual([object.status, object.output[0].status], ['in_progress', 'in_progress'])
      const readers = await Promise.all([
        get(`${id}?stream=true&starting_after=${seen}`),
        get(`${id}?stream=true`),
        get(`${id}?stream=true&starting_after=0`),
      ])
      leave()
      const late = await get(`${id}?stream=true&starting_after=1`)
      assert.equal((await get(`${id}?stream=true`, OTHER)).status, 404)
      const gone = new AbortController()
      const leaver = await fetch(`${t.url}/v1/responses/${id}?stream=true`, {
        headers: { authorization: `Bearer ${KEY}` },
        signal: gone.signal,
      })
      await leaver.body!.getReader().read()
      gone.abort()
      go()
      const [rest, whole, fromOne] = await Promise.all(readers.map(reader => reader.text()))
      assert.equal(split(whole!).at(-1)!.startsWith('event: response.completed\n'), true)
      assert.equal(text + rest!.replace(/^: keep-alive\n\n/, ''), whole)
      assert.equal(fromOne, split(whole!).slice(1).join(''))
      assert.equal(await late.text(), split(whole!).slice(2).join(''))
      await eventually(() => t.gateway.ingress.running.size === 0)
      assert.equal(await (await get(`${id}?stream=true`)).text(), whole)
      const rows = await rowOf(response)
      assert.deepEqual(
        rows.map(row => [row.outcome, row.output]),
        [['completed', 6]],
      )
      assert.equal(((await (await get(id)).json()) as any).output[0].content[0].text, 'one two three four five six')
    })

    test('[RESP-9] without the header, or without a head, a client that leaves ends its request', async () => {
      const go = gated()
      const { id, response, leave } = await begun({ 'x-sluice-resumable': 'false' })
      assert.equal((await get(`${id}?stream=true`)).status, 404)
      leave()
      await eventually(() => t.gateway.ingress.running.size === 0)
      assert.equal((await rowOf(response))[0]!.outcome, 'client_gone')
      go()

      const stalled = upstream.whenStalled()
      upstream.script = turn => turn.stall()
      const leaving = new AbortController()
      const asked = t.gateway.ingress.running.size
      const early = fetch(`${t.url}/v1/responses`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', authorization: `Bearer ${KEY}`, ...RESUMABLE },
        body: JSON.stringify(body()),
        signal: leaving.signal,
      }).catch(() => undefined)
      await stalled
      leaving.abort()
      await early
      await eventually(() => t.gateway.ingress.running.size === asked)
      const last = (await t.ledger()).at(-1)!
      assert.deepEqual([last.outcome, last.cost], ['client_gone', 0])
    })

    test('[RESP-9] deleted while it runs, it is unknown at once, ends its readers, and stops when its client has left', async () => {
      const go = gated()
      const { id, response, leave } = await begun()
      const reader = await get(`${id}?stream=true`)
      leave()
      await eventually(async () => (await get(id)).status === 200)
      const remove = (headers: Record<string, string>) =>
        fetch(`${t.url}/v1/responses/${id}`, { method: 'DELETE', headers })
      assert.equal((await remove(OTHER)).status, 404)
      assert.equal((await remove({ authorization: `Bearer ${KEY}` })).status, 200)
      const read = await reader.text()
      assert.match(
        split(read).at(-1)!,
        /^event: error\ndata: \{"type":"error","sequence_number":\d+,"code":"response_not_found"/,
      )
      await eventually(() => t.gateway.ingress.running.size === 0)
      assert.deepEqual([(await get(id)).status, (await get(`${id}?stream=true`)).status], [404, 404])
      const [row] = await rowOf(response)
      assert.equal(row!.outcome, 'client_gone')
      assert.ok(row!.cost > 0)
      go()
    })

    test('[RESP-9] deleted while its client reads on, it ends whole for that one and is not stored', async () => {
      const go = gated()
      const { id, response } = await begun()
      const client = t.openai()
      await client.responses.delete(id)
      go()
      await eventually(() => t.gateway.ingress.running.size === 0)
      assert.equal((await rowOf(response))[0]!.outcome, 'completed')
      assert.equal((await get(id)).status, 404)
      const next = await t.post('/v1/responses', body('and?', { previous_response_id: id }))
      assert.equal(next.status, 400)
    })

    test('[RESP-9] one that fails ends its readers as its client; it is not known afterwards', async () => {
      const go = gated()
      const { id, leave } = await begun()
      upstream.script = behave
      const reader = await get(`${id}?stream=true`)
      leave()
      for (const x of t.gateway.ingress.running) if (x.surface) x.expire()
      const read = split(await reader.text())
      assert.deepEqual(
        read.slice(-2).map(frame => frame.slice(7, frame.indexOf('\n'))),
        ['error', 'response.failed'],
      )
      await eventually(() => t.gateway.ingress.running.size === 0)
      assert.equal((await get(`${id}?stream=true`)).status, 404)
      go()
    })

    test('[RESP-9] [IDEM-1] a request that ran on is replayed whole by its Idempotency-Key', async () => {
      const go = gated()
      const key = { 'idempotency-key': `again-${listener}` }
      const { id, response, leave } = await begun({ ...RESUMABLE, ...key })
      const reader = await get(`${id}?stream=true`)
      leave()
      go()
      const whole = await reader.text()
      await eventually(() => t.gateway.ingress.running.size === 0)
      const replay = await t.post('/v1/responses', body(), { ...RESUMABLE, ...key })
      assert.equal(replay.headers.get('x-original-request-id'), response.headers.get('x-request-id'))
      assert.equal(await replay.text(), whole)
    })

    test('[RESP-9] one that has ended and is still being stored is known', async () => {
      const go = gated()
      const { id } = await begun()
      const { records } = t.gateway.store
      const put = records.put.bind(records)
      const { promise: written, resolve: write } = Promise.withResolvers<void>()
      records.put = (org, kind, ...rest) =>
        kind === 'reply' ? written.then(() => put(org, kind, ...rest)) : put(org, kind, ...rest)
      const reader = await get(`${id}?stream=true`)
      go()
      const whole = await reader.text()
      assert.equal(await (await get(`${id}?stream=true`)).text(), whole)
      assert.equal(((await (await get(id)).json()) as any).status, 'completed')
      write()
      await eventually(async () => (await records.get('acme', 'reply', id, Date.now())) !== null)
      records.put = put
      assert.equal(await (await get(`${id}?stream=true`)).text(), whole)
    })

    test('[RESP-9] the header is checked, and asks for nothing where nothing is streamed', async () => {
      free()
      const refused = async (value: string, more: object) => {
        const reply = await t.post('/v1/responses', body(SIX, more), { 'x-sluice-resumable': value })
        const { error } = (await reply.json()) as any
        return [reply.status, error?.code, error?.param]
      }
      assert.deepEqual(await refused('yes', {}), [400, 'bad_request', 'x-sluice-resumable'])
      assert.deepEqual(await refused('true', { store: false }), [400, 'invalid_value', 'store'])
      assert.deepEqual(await refused('true', { stream: false }), [200, undefined, undefined])
    })
  })
}
