/** Conversations that repeat themselves, through a listening gateway: on each API, over a reload, and where it is seen. */
import assert from 'node:assert/strict'
import { readFileSync, writeFileSync } from 'node:fs'
import { after, before, test } from 'node:test'
import { inWords } from '../../cli/trace.ts'
import { defaultYaml, startGateway, type TestGateway } from './harness.ts'

const OPTIONS = { delay: '1ms', slow_repeats: 3, slow_usd: 0, refuse_repeats: 6, refuse_usd: 0.00005 }
const yamlWith = (url: string, options: object) =>
  defaultYaml(url).replace(
    'token-estimate, web-search',
    `token-estimate, runaway: ${JSON.stringify(options)}, web-search`,
  )

let t: TestGateway
before(async () => {
  t = await startGateway({ yaml: url => yamlWith(url, OPTIONS) })
})
after(() => t.close())

const tool = { name: 'run', description: 'Runs the tests.' }
const parameters = { type: 'object', properties: {} }
/** What each API calls a conversation whose agent has made the same call `n` times, and once more one of its own. */
const APIS: Record<string, { path: string; body(task: string, results: readonly string[]): object }> = {
  chat: {
    path: '/v1/chat/completions',
    body: (task, results) => ({
      tools: [{ type: 'function', function: { ...tool, parameters } }],
      messages: [
        { role: 'user', content: task },
        ...results.flatMap((content, i) => [
          {
            role: 'assistant',
            content: `Attempt ${i}`,
            tool_calls: [{ id: `call_${i}`, type: 'function', function: { name: 'run', arguments: '{}' } }],
          },
          { role: 'tool', tool_call_id: `call_${i}`, content },
        ]),
      ],
    }),
  },
  messages: {
    path: '/v1/messages',
    body: (task, results) => ({
      max_tokens: 100,
      tools: [{ ...tool, input_schema: parameters }],
      messages: [
        { role: 'user', content: task },
        ...results.flatMap((content, i) => [
          { role: 'assistant', content: [{ type: 'tool_use', id: `toolu_${i}`, name: 'run', input: {} }] },
          { role: 'user', content: [{ type: 'tool_result', tool_use_id: `toolu_${i}`, content }] },
        ]),
      ],
    }),
  },
  responses: {
    path: '/v1/responses',
    body: (task, results) => ({
      tools: [{ type: 'function', ...tool, parameters, strict: false }],
      input: [
        { role: 'user', content: task },
        ...results.flatMap((output, i) => [
          { type: 'function_call', call_id: `call_${i}`, name: 'run', arguments: '{}' },
          { type: 'function_call_output', call_id: `call_${i}`, output },
        ]),
      ],
    }),
  },
}
const MODEL = 'eb1-preview'
const FAILS = '1 failing'

async function ask(api: string, task: string, results: readonly string[], stream = false) {
  const { path, body } = APIS[api]!
  const response = await t.post(path, { model: MODEL, stream, ...body(task, results) })
  const text = await response.text()
  const id = response.headers.get('x-request-id')!
  return {
    status: response.status,
    headers: response.headers,
    text,
    id,
    slowed: response.headers.get('x-sluice-slowed'),
  }
}
/** An agent that makes the same call, with the same result, until it is refused. */
async function circle(api: string, task: string, stream = false) {
  const answers = []
  for (let n = 1; n < 20; n++) {
    const answer = await ask(api, task, Array(n).fill(FAILS), stream)
    answers.push(answer)
    if (answer.status !== 200) break
  }
  return answers
}

for (const api of Object.keys(APIS)) {
  for (const stream of [false, true]) {
    test(`${api}, ${stream ? 'streamed' : 'buffered'}: slowed, refused in the form of the API, and free by something new`, async () => {
      const task = `Fix ${api} ${stream}`
      const answers = await circle(api, task, stream)
      assert.deepEqual(
        answers.map(({ status, slowed }) => slowed ?? status),
        [200, 200, 200, 200, ...[3, 4, 5].map(n => `repeats=${n}, delay_ms=1`), 429],
      )
      const last = answers.at(-1)!
      const { error } = JSON.parse(last.text)
      assert.equal(error.code, 'conversation_repeats')
      assert.equal(error.details.retry, 'later')
      assert.deepEqual(
        [last.headers.get('x-should-retry'), Number(last.headers.get('retry-after')) >= 600],
        ['false', true],
      )
      // The agent has changed something, and its test passes.
      const changed = [...Array(answers.length).fill(FAILS), '1 passing']
      assert.equal((await ask(api, task, changed, stream)).status, 200)
      assert.equal((await ask(api, `${task} too`, [FAILS], stream)).status, 200)
    })
  }
}

test('a refusal has no row and takes nothing; log, metrics, trace and the dashboard say what became of each', async () => {
  const rows = (await t.ledger()).length
  const answers = await circle('chat', 'Fix the metrics')
  assert.equal((await t.ledger()).length - rows, answers.length - 1)
  const scrape = await (await fetch(`${t.gateway.adminAddress}/metrics`)).text()
  const counted = (name: string) =>
    Number(new RegExp(`^${name.replace(/[{}]/g, '\\$&')} (\\d+)$`, 'm').exec(scrape)![1])
  assert.ok(counted('sluice_slowed_total{route="POST /v1/chat/completions"}') >= 3)
  assert.ok(counted('sluice_refused_total{route="POST /v1/chat/completions",code="conversation_repeats"}') >= 1)
  const traced = async (id: string) => {
    const memory = (await (await fetch(`${t.gateway.adminAddress}/trace?id=${id}`)).json()) as any
    return inWords({ request_id: id, log: [], ledger: null, memory, missing: {} }).replaceAll(/\s+/g, ' ')
  }
  assert.match(await traced(answers.at(-2)!.id), /slowed by 1 ms, on purpose/)
  assert.match(await traced(answers.at(-1)!.id), /429 refused \(conversation_repeats\).*next Send something new/)
  const line = (id: string) => t.log.find(({ fields, message }) => message === 'exchange' && fields.request_id === id)!
  assert.equal(line(answers.at(-2)!.id).fields.slowed_ms, 1)
  assert.equal(line(answers[0]!.id).fields.slowed_ms, undefined)
  const said = t.log.filter(
    ({ message, fields }) => /repeats itself/.test(message) && fields.request_id === answers.at(-2)!.id,
  )
  assert.deepEqual(
    said.map(({ level, fields, message }) => [
      level,
      fields.organization,
      fields.key,
      fields.model,
      fields.repeats,
      message,
    ]),
    [['warn', 'acme', 'key_test', MODEL, 6, 'a conversation repeats itself and is refused']],
  )
})

test('a reload keeps what was counted; one that exempts the key lifts it at once', async () => {
  const answers = await circle('responses', 'Fix the reload')
  const again = () => ask('responses', 'Fix the reload', Array(answers.length).fill(FAILS))
  const reload = async (options: object) => {
    const text = readFileSync(t.file, 'utf8')
    writeFileSync(t.file, text.replace(/runaway: \{.*?\}/, `runaway: ${JSON.stringify(options)}`))
    await t.gateway.reload()
  }
  await reload({ ...OPTIONS, delay: '2ms' })
  assert.equal((await again()).status, 429)
  await reload({ ...OPTIONS, exempt: ['acme/key_test'] })
  assert.equal((await again()).status, 200)
  await reload(OPTIONS)
  assert.equal((await again()).status, 429)
})

test('counting tokens of it is not refused', async () => {
  const body = APIS['messages']!.body('Count', Array(5).fill(FAILS))
  for (let i = 0; i < 12; i++) {
    const response = await t.post('/v1/messages/count_tokens', { ...body, model: MODEL })
    assert.equal(response.status, 200)
  }
})
