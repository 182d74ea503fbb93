/**
 * [GEN-7] Every byte of a representative run: replies, refusals, failures of each kind from each dialect, streams, cut
 * streams, model lists. On top of what the harness looks for in every test (leak-scan.ts), nothing here may name a
 * vendor, a dialect, a provider or a price.
 */
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { type AddressInfo, connect, createServer } from 'node:net'
import { after, before, describe, test } from 'node:test'
import { bodyOf, DIALECTS, type DialectName, PATHS, SURFACES, type SurfaceName, type Tool } from './conversations.ts'
import { ShiftedClock, startGateway, type TestGateway } from './harness.ts'
import { LeakScan } from './leak-scan.ts'

const clock = new ShiftedClock()
let t: TestGateway
before(async () => {
  t = await startGateway({
    plugins: { upstream: '{ attempts: 1, breaker: { failures: 100000, error_rate: 1, window: 1ms, open_for: 1ms } }' },
    gateway: { clock },
    extra: 'plans:\n  tiny: { limits: { requests_per_minute: 1 } }',
  })
})
after(() => t.close())

/** Vendors, their products and the parts of a gateway. What the prompts of this file say is none of them. */
const VENDORS =
  /openai|anthropic|claude|gemini|google|azure|gpt-|simulat|provider\b(?!_unavailable)|backend\b.*\bsim|sluice(?!-)|undici|sqlite|\bprice|\bcost\b/i
/** The clients' own settings, which a message may name (AUTH-2), and what the word of the table says. */
const ALLOWED =
  /ANTHROPIC_AUTH_TOKEN|@anthropic-ai\/sdk|Anthropic clients|"owned_by":"[^"]+"|platform or upstream provider/g

const seen: { where: string; text: string }[] = []

async function take(where: string, response: Response): Promise<string> {
  let text = ''
  try {
    for await (const chunk of response.body ?? []) text += Buffer.from(chunk).toString()
  } catch {
    // A cut stream ends like this; what came before counts.
  }
  // A backend that asked for a pause gets it: by now it is over.
  clock.shift += 1000
  const whole = `${JSON.stringify([...response.headers])}\n${text}`
  seen.push({ where, text: whole })
  const found = VENDORS.exec(whole.replace(ALLOWED, ''))
  assert.equal(found, null, `${where}: ${found?.[0]} in ${whole}`)
  assert.deepEqual(t.leaks.found, [], where)
  return text
}

const TOOL: Tool = { name: 'look', schema: { type: 'object', properties: { q: { type: 'string' } } } }
const REASON: Record<SurfaceName, Record<string, unknown>> = {
  chat: { reasoning_effort: 'high' },
  responses: { reasoning: { effort: 'high', summary: 'auto' }, include: ['reasoning.encrypted_content'] },
  messages: { thinking: { type: 'adaptive' } },
}
/** Says nothing of its own: the built-in text would name the simulator. */
const quiet = (directives: string): string => `[[sim: ${directives}; text "A quiet reply of some words."]] x`
const KINDS = ['server', 'overloaded', 'rate', 'quota', 'context', 'policy', 'auth', 'timeout', 'invalid']
const STATUSES = [400, 401, 402, 403, 404, 408, 413, 422, 429, 500, 502, 503, 504, 529]

for (const [dialect, model] of Object.entries(DIALECTS) as [DialectName, string][]) {
  describe(dialect, () => {
    for (const surface of SURFACES) {
      const ask = (text: string, stream: boolean, tools?: Tool[], more = {}) =>
        t.post(PATHS[surface], bodyOf(surface, model, [{ user: text }], { tools, more: { stream, ...more } }))

      test(`[GEN-7] ${surface}: replies`, async () => {
        for (const stream of [false, true]) {
          await take('text', await ask(quiet('tokens 5'), stream))
          await take(
            'reasoning and calls',
            await ask(quiet('reason 2; call look {"q":"a"}; call look {"q":"b"}'), stream, [TOOL], REASON[surface]),
          )
          await take('hidden reasoning', await ask(quiet('hidden 50'), stream, undefined, REASON[surface]))
          await take('refusal', await ask('[[sim: refuse "No."]] x', stream))
          await take(
            'length',
            await ask(
              quiet('tokens 40'),
              stream,
              undefined,
              surface === 'responses' ? { max_output_tokens: 16 } : { max_tokens: 4 },
            ),
          )
          await take('unknown finish', await ask(quiet('finish something_new'), stream))
          await take('no usage', await ask(quiet('usage none'), stream))
        }
      })

      test(`[GEN-7] ${surface}: failures of each kind and status`, async () => {
        for (const [i, kind] of KINDS.entries())
          await take(kind, await ask(quiet(`status 400 code ${kind}`), i % 2 === 0))
        const forms = ['', 'html', 'empty']
        for (const [i, status] of STATUSES.entries())
          await take(`${status}`, await ask(quiet(`status ${status} ${forms[i % 3]} retry-after 3`), i % 2 === 0))
      })

      test(`[GEN-7] ${surface}: streams that break`, async () => {
        for (const kind of KINDS) {
          const text = await take(
            `in-band ${kind}`,
            await ask(
              `[[sim: tokens 20; error ${kind} after 4]] x`.replace(
                'tokens 20',
                'text "one two three four five six seven eight"',
              ),
              true,
            ),
          )
          assert.match(text, /"error"/)
        }
        for (const fault of [
          'cut 5',
          'close 5',
          'end 5',
          'cut byte 300',
          'malformed json after 3',
          'malformed event after 3',
          'malformed utf8 after 3',
        ]) {
          await take(fault, await ask(quiet(fault), true))
          await take(fault, await ask(quiet(fault), false))
        }
      })
    }
  })
}

const url = 'https://pages.example/a.png'
/** No backend of the model takes it. */
const IMAGE_BY_URL: Record<SurfaceName, Record<string, unknown>> = {
  chat: { messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url } }] }], max_tokens: undefined },
  responses: { input: [{ role: 'user', content: [{ type: 'input_image', image_url: url }] }], max_tokens: undefined },
  messages: { messages: [{ role: 'user', content: [{ type: 'image', source: { type: 'url', url } }] }] },
}

test('[GEN-7] refusals of the gateway itself, model lists, counts and paths', async () => {
  for (const surface of SURFACES) {
    const post = async (body: unknown, headers = {}) => take(surface, await t.post(PATHS[surface], body, headers))
    await post('{')
    await post({ model: 'nope' })
    await post({ ...bodyOf(surface, 'nope', [{ user: 'x' }]) })
    await post(bodyOf(surface, 'eb1-preview', [{ user: 'x' }], { more: { foo: 1 } }))
    const unfit = await post({ model: 'eb1-frontier-preview', max_tokens: 9, ...IMAGE_BY_URL[surface] })
    assert.match(unfit, /request_requirements_unsatisfied/)
    await post({}, { authorization: 'Bearer sk-wrong-0000' })
    await post({}, { authorization: 'Basic x' })
    await post('x', { 'content-type': 'text/plain' })
    await post(bodyOf(surface, 'eb1-preview', [{ user: 'x' }]), { 'x-excluded-models': ',' })
  }
  await take(
    'x-api-key',
    await fetch(`${t.url}/v1/messages`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-api-key': 'k' },
      body: '{}',
    }),
  )
  await take('count', await t.post('/v1/messages/count_tokens', bodyOf('messages', 'eb1-preview', [{ user: 'x' }])))
  for (const path of ['/v1/models', '/v1/nothing', '/v24b/v1/models', '/v1/messages/nothing', '/']) {
    await take(path, await fetch(`${t.url}${path}`, { headers: { authorization: 'Bearer sk-test-0001-secret' } }))
  }
})

test('[GEN-7] the scan reads along on every connection, and puts together what chunks and packets cut', async () => {
  const { leaks } = t
  for (const ask of [
    () => fetch(`${t.url}/v1/nothing`).then(response => response.text()),
    async () => {
      const socket = connect(Number(new URL(t.url).port), '127.0.0.1')
      socket.write('GET /v1/nothing HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n')
      await once(socket.resume(), 'close')
    },
  ]) {
    const before = leaks.scanned
    await ask()
    assert.ok(leaks.scanned > before)
  }
  const cut = createServer(socket => {
    socket.write('HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n8\r\nby sim-l\r\n')
    setImmediate(() => socket.end('4\r\narge\r\n0\r\n\r\n'))
  }).listen(0, '127.0.0.1')
  await once(cut, 'listening')
  const scan = new LeakScan(`http://127.0.0.1:${(cut.address() as AddressInfo).port}`, () => t.gateway.config)
  try {
    assert.equal(await (await fetch(`http://127.0.0.1:${(cut.address() as AddressInfo).port}`)).text(), 'by sim-large')
    assert.equal(scan.found.length, 1)
    assert.throws(() => scan.close(), /by sim-large/)
  } finally {
    cut.close()
  }
})

test('[GEN-7] the scan sees what it is there to see', () => {
  assert.ok(seen.length > 600, `${seen.length} replies looked at`)
  assert.ok(t.leaks.scanned > 500_000)
  const { found } = t.leaks
  const leaks = [
    '"id":"chatcmpl-sim0123456789abcdef"',
    '"responseId":"sim0123456789abcdef"',
    '"id":"toolu_sim0123456789"',
    'served by sim-large',
    t.simulator.url,
    'chat/sim-large',
    '"encrypted_content":"gAAAAAx"',
    '"thoughtSignature":"x"',
    'connect ECONNREFUSED',
    'The simulated provider had a fault: server',
  ]
  for (const leak of leaks) {
    const before = found.length
    t.leaks.look(leak, 'self-test')
    assert.ok(found.length > before, leak)
  }
  found.length = 0
})
