/**
 * `sluice replay` against a gateway: the same exchanges, which run beside each other and end late, are sent to a gateway
 * with wide limits and to one with narrow ones. A replay of the first one's ledger with the limits of the second refuses
 * what the second has refused.
 */
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { ManualClock } from '../../core/tools/clock.ts'
import { startGateway } from '../e2e/harness.ts'
import { Random } from '../random.ts'
import { sluice } from './capture.ts'

const NOVEMBER = Date.UTC(2025, 10, 1)
const WIDE = { requests_per_minute: 10_000, concurrent_requests: 1000, monthly_spend_usd: 1000 }

interface Ask {
  name: string
  words: number
  cap: number | undefined
  output: number
}
/** In order of time (ms from the beginning). No two are at one time, so that their order is certain. */
type Step = { at: number; ask: Ask; begins: boolean }

function stepsOf(random: Random, count: number): Step[] {
  const taken = new Set<number>()
  const free = (at: number): number => {
    while (taken.has(at)) at++
    taken.add(at)
    return at
  }
  let time = 0
  return Array.from({ length: count }, (_, i): Step[] => {
    time += random.chance(0.2) ? random.below(30_000) : random.below(2000)
    const cap = random.chance(0.3) ? undefined : 100 + random.below(900)
    const output = 1 + random.below(100)
    const ask = { name: `ask ${i}`, words: 1 + random.below(600), cap, output }
    const begins = free(time)
    return [
      { at: begins, ask, begins: true },
      { at: free(begins + 1 + random.below(15_000)), ask, begins: false },
    ]
  })
    .flat()
    .sort((a, b) => a.at - b.at)
}

/** An upstream whose replies wait for `answer`. */
async function upstream(t: TestContext) {
  const waiting = new Map<string, ServerResponse>()
  const asked = new Map<string, () => void>()
  const server = createServer(async (request, response) => {
    let body = ''
    for await (const piece of request) body += piece
    const name = /ask \d+/.exec(body)![0]
    waiting.set(name, response)
    asked.get(name)!()
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.after(() => {
    server.closeAllConnections()
    server.close()
  })
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    /** Call it before the request is sent. */
    asked: (name: string) => new Promise<void>(resolve => void asked.set(name, resolve)),
    answer(name: string, output: number): void {
      const response = waiting.get(name)!
      waiting.delete(name)
      const message = { role: 'assistant', content: 'word '.repeat(output) }
      response.setHeader('content-type', 'application/json')
      response.end(
        JSON.stringify({
          ...{ id: 'c', object: 'chat.completion', created: 1, model: 'm' },
          choices: [{ index: 0, message, finish_reason: 'stop' }],
        }),
      )
    },
  }
}

interface Ran {
  /** By the name of what was asked: the code of its refusal. */
  refused: Map<string, string>
  /** By its id, in the ledger. */
  names: Map<string, string>
  yaml: string
}

async function run(t: TestContext, steps: readonly Step[], limits: object, database: string): Promise<Ran> {
  const clock = new ManualClock(NOVEMBER)
  const provider = await upstream(t)
  const gateway = await startGateway({
    ...{ organization: `    limits: ${JSON.stringify(limits)}`, store: `"sqlite:${database}"`, gateway: { clock } },
    providers: `  chat: { dialect: openai-chat, base_url: "${provider.url}" }`,
    models:
      '  eb1-preview: { context_window: 400000, price: { input: 1.25, output: 10 }, backends: [{ provider: chat, model: m, cost: { input: 1, output: 5 } }] }',
    plugins: { upstream: '{ first_byte_timeout: 10m }' },
  })
  const ran: Ran = { refused: new Map(), names: new Map(), yaml: readFileSync(gateway.file, 'utf8') }
  const running = new Map<string, Promise<Response>>()
  for (const { at, ask, begins } of steps) {
    const { name, words, cap, output } = ask
    clock.advance(NOVEMBER + at - clock.now())
    if (begins) {
      const asked = provider.asked(name)
      const content = `${name}:${' river'.repeat(words)}`
      const reply = gateway.post('/v1/chat/completions', {
        ...{ model: 'eb1-preview', messages: [{ role: 'user', content }] },
        ...(cap !== undefined && { max_completion_tokens: cap }),
      })
      const first = await Promise.race([reply, asked])
      if (!first) running.set(name, reply)
      else ran.refused.set(name, ((await first.json()) as { error: { code: string } }).error.code)
    } else if (running.has(name)) {
      provider.answer(name, output)
      const reply = await running.get(name)!
      assert.equal(reply.status, 200, await reply.text())
      ran.names.set(reply.headers.get('x-request-id')!, name)
    }
  }
  await gateway.close()
  return ran
}

const NARROW: readonly ((random: Random) => object)[] = [
  random => ({ concurrent_requests: 2 + random.below(3) }),
  random => ({ requests_per_minute: 5 + random.below(10), concurrent_requests: 5 }),
  random => ({ tokens_per_minute: 6000 + random.below(6000) }),
  random => ({ output_tokens_per_minute: 4100 + random.below(3000), requests_per_day: 40 }),
  random => ({ daily_spend_usd: (2 + random.below(4)) / 100 }),
]

for (const [round, narrower] of NARROW.entries())
  test(`what a gateway refuses, by ${Object.keys(narrower(new Random(1))).join(' and ')}`, async t => {
    const random = new Random(round + 1)
    const dir = mkdtempSync(join(tmpdir(), 'sluice-replay-'))
    t.after(() => rmSync(dir, { recursive: true, force: true }))
    const steps = stepsOf(random, 60)
    const limits = { ...WIDE, ...narrower(random) }
    const wide = await run(t, steps, WIDE, join(dir, 'wide.db'))
    assert.deepEqual([...wide.refused], [])
    const narrow = await run(t, steps, limits, join(dir, 'narrow.db'))
    assert.ok(narrow.refused.size > 0 && narrow.refused.size < 60, String(narrow.refused.size))

    const [plans, refusals] = [join(dir, 'plans.yaml'), join(dir, 'refused.jsonl')]
    writeFileSync(plans, `organizations: { acme: { limits: ${JSON.stringify(limits)} } }\n`)
    const replay = async (yaml: string, ...args: string[]) => {
      const file = join(dir, 'gateway.yaml')
      writeFileSync(file, yaml)
      const ran = await sluice('replay', '--month', '2025-11', '--json', '--refusals', refusals, ...args, file)
      assert.equal(ran.code, 0, ran.err)
      const lines = readFileSync(refusals, 'utf8').split('\n').slice(0, -1)
      return { report: JSON.parse(ran.out), refused: lines.map(line => JSON.parse(line)) }
    }
    const found = await replay(wide.yaml, '--plans', plans)
    assert.deepEqual(
      found.refused.map(({ request_id, code }) => [wide.names.get(request_id), code]),
      [...narrow.refused],
    )
    // What is left is the ledger of the narrow gateway, to the nano-dollar: tokens, revenue, cost.
    const left = await replay(narrow.yaml)
    assert.deepEqual(left.refused, [])
    assert.deepEqual(left.report.after, left.report.before)
    assert.deepEqual(found.report.after, left.report.before)
  })
