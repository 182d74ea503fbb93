/** Idempotency keys on every surface, buffered and streamed, on both engines. */
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { startSimulator } from '../../providers/simulator/server.ts'
import { engines } from '../stores/redis-server.ts'
import { defaultYaml, KEY, startGateway, type TestGateway, type TestOptions } from './harness.ts'

const surfaces: Record<string, (text: string, more?: object) => object> = {
  '/v1/chat/completions': (text, more) => ({
    model: 'eb1-preview',
    messages: [{ role: 'user', content: text }],
    max_tokens: 300,
    ...more,
  }),
  '/v1/messages': (text, more) => ({
    model: 'eb1-preview',
    messages: [{ role: 'user', content: text }],
    max_tokens: 300,
    ...more,
  }),
  '/v1/responses': (text, more) => ({ model: 'eb1-preview', input: text, max_output_tokens: 300, ...more }),
}
const CHAT = '/v1/chat/completions'
const chat = surfaces[CHAT]!

interface Answer {
  status: number
  headers: Headers
  text: string
}
async function post(t: TestGateway, path: string, body: object, key: string): Promise<Answer> {
  const response = await t.post(path, body, { 'idempotency-key': key })
  return { status: response.status, headers: response.headers, text: await response.text() }
}
/** A record is written behind the reply: until it is there, the first use counts as running. */
async function again(t: TestGateway, path: string, body: object, key: string): Promise<Answer> {
  for (;;) {
    const answer = await post(t, path, body, key)
    if (answer.status !== 409 || answer.headers.get('retry-after') === null) return answer
  }
}
/** What belongs to the reply, and not to one sending of it. Limits are those of the moment. */
const replyHeaders = (headers: Headers) =>
  [...headers].filter(
    ([name]) =>
      !/^(x-)?request-id$|^x-ratelimit-|^date$|^x-idempotent-replay$|^x-original-request-id$|^connection$|^keep-alive$|^content-length$|^transfer-encoding$/.test(
        name,
      ),
  )
const errorOf = ({ text }: Answer) => JSON.parse(text).error

for (const [engine, skip, newUrl] of engines()) {
  describe(engine, { skip }, () => {
    async function using(options: TestOptions, run: (t: TestGateway) => Promise<void>): Promise<void> {
      const t = await startGateway({
        yaml: sim => defaultYaml(sim, { ...options, store: `{ url: "${newUrl()}", timeout: 10s }` }),
      })
      try {
        await run(t)
      } finally {
        await t.close()
      }
    }

    test('[IDEM-1] every surface, buffered and streamed: status, headers and bytes again; nothing runs, nothing is billed', () =>
      using({ organization: '    limits: { requests_per_day: 1000 }' }, async t => {
        for (const [path, body] of Object.entries(surfaces)) {
          for (const stream of [false, true]) {
            const key = `${path} ${stream}`.replace(' ', '-')
            const first = await post(t, path, body('once', { stream }), key)
            assert.equal(first.status, 200, first.text)
            const executed = t.simulator.requests.length
            const rows = (await t.ledger()).length
            const second = await again(t, path, body('once', { stream }), key)
            assert.equal(second.text, first.text)
            assert.deepEqual(replyHeaders(second.headers), replyHeaders(first.headers))
            assert.equal(second.status, 200)
            assert.equal(second.headers.get('x-idempotent-replay'), 'true')
            assert.equal(second.headers.get('x-original-request-id'), first.headers.get('x-request-id'))
            assert.notEqual(second.headers.get('x-request-id'), first.headers.get('x-request-id'))
            assert.equal(t.simulator.requests.length, executed)
            assert.equal((await t.ledger()).length, rows)
            // The same body on another endpoint is another request.
            const other = Object.keys(surfaces).find(p => p !== path)!
            const conflict = await post(t, other, body('once', { stream }), key)
            if (conflict.status !== 400) assert.equal(conflict.status, 409)
          }
        }
      }))

    test('[IDEM-2] of 20 simultaneous first uses one runs; the others are told to wait; another body is refused for good', () =>
      using({}, async t => {
        const body = chat('[[sim: delay 700ms]] x')
        const answers = await Promise.all(Array.from({ length: 20 }, () => post(t, CHAT, body, 'same')))
        assert.equal(t.simulator.requests.length, 1)
        // One that came when the first had ended has its reply.
        const waiting = answers.filter(({ status }) => status === 409)
        assert.equal(answers.length - waiting.length, answers.filter(({ status }) => status === 200).length)
        assert.ok(waiting.length > 0)
        for (const answer of waiting) {
          assert.equal(errorOf(answer).code, 'idempotency_key_conflict')
          assert.ok(Number(answer.headers.get('retry-after')) >= 1)
          assert.equal(answer.headers.get('x-should-retry'), null)
        }
        assert.equal((await again(t, CHAT, body, 'same')).status, 200)
        assert.equal(t.simulator.requests.length, 1)
        const other = await post(t, CHAT, chat('y'), 'same')
        assert.equal(other.status, 409)
        assert.equal(other.headers.get('x-should-retry'), 'false')
        assert.equal(other.headers.get('retry-after'), null)
      }))

    test('[IDEM-1] a cut stream is replayed as it was cut; one that delivered nothing may run again', () =>
      using({}, async t => {
        const body = chat('[[sim: tokens 40; cut 10]] x', { stream: true })
        const first = await post(t, CHAT, body, 'cut')
        assert.match(first.text, /"error"/)
        assert.doesNotMatch(first.text, /\[DONE\]/)
        const executed = t.simulator.requests.length
        const second = await again(t, CHAT, body, 'cut')
        assert.equal(second.text, first.text)
        assert.equal(second.headers.get('x-idempotent-replay'), 'true')
        assert.equal(t.simulator.requests.length, executed)
        const failing = chat('[[sim: status 500]] x')
        const failed = await post(t, CHAT, failing, 'nothing')
        assert.ok(failed.status >= 500)
        const before = t.simulator.requests.length
        const rerun = await again(t, CHAT, failing, 'nothing')
        assert.equal(rerun.headers.get('x-idempotent-replay'), null)
        assert.ok(t.simulator.requests.length > before)
      }))

    test('[IDEM-3] a first use that was killed counts as running after the restart, and does not run twice', async t => {
      const folder = await mkdtemp(join(tmpdir(), 'sluice-idem-'))
      const simulator = await startSimulator({ port: 0 })
      const url = newUrl()
      await writeFile(
        join(folder, 'gateway.yaml'),
        defaultYaml(simulator.url, { store: `{ url: "${url}", timeout: 10s }` }),
      )
      const main = new URL('../../cli/main.ts', import.meta.url).pathname
      const start = async () => {
        const child = spawn(process.execPath, [...process.execArgv, main, 'start', '--config', 'gateway.yaml'], {
          cwd: folder,
          stdio: ['ignore', 'pipe', 'ignore'],
        })
        const ended = new Promise(resolve => child.once('exit', resolve))
        let printed = ''
        const address = await new Promise<string>((resolve, reject) => {
          child.once('exit', () => reject(new Error(`ended: ${printed}`)))
          child.stdout!.on('data', data => {
            printed += data
            const found = /http:\/\/127\.0\.0\.1:\d+/.exec(printed)
            if (found) resolve(found[0])
          })
        })
        const kill = (signal: NodeJS.Signals) => {
          child.kill(signal)
          return ended
        }
        t.after(() => kill('SIGKILL'))
        const ask = () =>
          fetch(address + CHAT, {
            method: 'POST',
            headers: {
              'content-type': 'application/json',
              authorization: `Bearer ${KEY}`,
              'idempotency-key': 'killed',
            },
            body: JSON.stringify(chat('[[sim: tokens 200; pace 100ms]] x', { stream: true })),
          })
        return { ask, kill }
      }
      t.after(async () => {
        await simulator.close()
        await rm(folder, { recursive: true, force: true })
      })
      const first = await start()
      const running = await first.ask()
      await running.body!.getReader().read()
      // In Redis the lease runs from the last renewal, and a busy machine may take as long to start a gateway: there
      // the one that follows is up before. The embedded store counts a new lease from its start, and takes one process.
      const next = engine === 'sqlite' ? undefined : await start()
      await first.kill('SIGKILL')
      const second = next ?? (await start())
      const answer = await second.ask()
      const { error } = (await answer.json()) as any
      assert.equal(answer.status, 409)
      assert.equal(error.code, 'idempotency_key_conflict')
      assert.ok(Number(answer.headers.get('retry-after')) >= 1)
      assert.equal(simulator.requests.length, 1)
      await second.kill('SIGTERM')
    })
  })
}
