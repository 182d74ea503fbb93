/**
 * A key gets only what it could have asked for itself: the reply of an Idempotency-Key, and a retained response that it
 * reads, deletes or continues, may be of another key of its organization with more rights.
 *
 * The bug: any key of the organization was given all of it. A key for one small model read the replies of the largest,
 * and a key without streaming replayed streams.
 */
import assert from 'node:assert/strict'
import { writeFile } from 'node:fs/promises'
import { describe, test } from 'node:test'
import { engines } from '../stores/redis-server.ts'
import { defaultYaml, sha256, startGateway, type TestGateway } from './harness.ts'
import { SocketClient } from './socket-client.ts'

const LARGE = 'eb1-preview'
const SMALL = 'eb1-efficient-preview'

/** Keys of the organization beside the one that may all, and what each may. */
const KEYS = {
  small: `models: [${SMALL}]`,
  large: `models: [${LARGE}]`,
  buffered: 'streaming: false',
  toolless: 'capabilities: [images]',
  still: 'limits: { requests_per_minute: 0 }',
}
type KeyName = keyof typeof KEYS
const secretOf = (name: KeyName) => `sk-test-${name}-secret`
const as = (name: KeyName) => ({ authorization: `Bearer ${secretOf(name)}` })

for (const [engine, skip, newUrl] of engines()) {
  describe(engine, { skip }, () => {
    async function using(run: (t: TestGateway, yaml: (edit?: [string, string]) => string) => Promise<void>) {
      const store = newUrl()
      let simulator = ''
      const yaml = (edit: [string, string] = ['', '']) =>
        defaultYaml(simulator, { store: `{ url: "${store}", timeout: 10s }` })
          .replace(/^ {6}- \{ id: key_test.*\n/m, line =>
            Object.entries(KEYS).reduce(
              (lines, [name, rights]) =>
                `${lines}      - { id: key_${name}, sha256: "${sha256(secretOf(name as KeyName))}", ${rights} }\n`,
              line,
            ),
          )
          .replace(edit[0], edit[1])
      const t = await startGateway({
        gateway: { listener: 'uws' },
        yaml: url => {
          simulator = url
          return yaml()
        },
      })
      try {
        await run(t, yaml)
      } finally {
        await t.close()
      }
    }

    const ask = async (t: TestGateway, body: object, headers: Record<string, string> = {}) => {
      const response = await t.post('/v1/responses', { model: LARGE, ...body }, headers)
      const text = await response.text()
      return { status: response.status, text, json: text.startsWith('{') ? JSON.parse(text) : undefined, response }
    }
    type Answer = Awaited<ReturnType<typeof ask>>
    /** A record is written behind the reply: until it is there, the first use counts as running. */
    const replay = async (t: TestGateway, body: object, headers: Record<string, string>): Promise<Answer> => {
      for (;;) {
        const answer = await ask(t, body, headers)
        if (answer.status !== 409) return answer
      }
    }
    const at = async (t: TestGateway, method: string, id: string, name?: KeyName) => {
      const headers = name ? as(name) : { authorization: 'Bearer sk-test-0001-secret' }
      const response = await fetch(`${t.url}/v1/responses/${id}`, { method, headers })
      return { status: response.status, json: (await response.json()) as any }
    }
    const refused = ({ status, json }: { status: number; json: any }) => [status, json.error.code]
    const OTHER_MODEL = [403, 'model_not_available']

    test('[IDEM-1] [AUTH-4] a replay needs the rights of the request, and is refused in its words', () =>
      using(async t => {
        const tools = [{ type: 'function', name: 'look', parameters: { type: 'object', properties: {} } }]
        const plain = { input: 'hello' }
        const stream = { input: 'hello', stream: true }
        const tooled = { input: 'hello', tools }
        const cases: [what: string, body: object, allowed: KeyName[], denied: KeyName[]][] = [
          ['plain', plain, ['large', 'buffered', 'toolless', 'still'], ['small']],
          ['stream', stream, ['large', 'still'], ['small', 'buffered']],
          ['tooled', tooled, ['large', 'buffered'], ['small', 'toolless']],
        ]
        for (const [what, body, allowed, denied] of cases) {
          const first = await ask(t, body, { 'idempotency-key': what })
          assert.equal(first.status, 200)
          for (const name of denied) {
            const asItself = await ask(t, body, as(name))
            const answer = await replay(t, body, { 'idempotency-key': what, ...as(name) })
            assert.equal(answer.status, asItself.status, `${what} ${name}`)
            const { request_id: _, ...error } = answer.json.error
            const { request_id: __, ...own } = asItself.json.error
            assert.deepEqual(error, own)
            assert.equal(answer.response.headers.get('x-idempotent-replay'), null)
          }
          // A replay takes from no limit, so a key without requests gets it as well.
          for (const name of allowed) {
            const answer = await replay(t, body, { 'idempotency-key': what, ...as(name) })
            assert.deepEqual([answer.status, answer.text], [200, first.text], `${what} ${name}`)
          }
        }
        assert.equal((await ask(t, plain, as('still'))).status, 429)
      }))

    test('[RESP-6] [RESP-7] [AUTH-4] GET and DELETE need the rights of the request', () =>
      using(async t => {
        const tools = [{ type: 'function', name: 'look', parameters: { type: 'object', properties: {} } }]
        const { id } = (await ask(t, { input: 'hello', tools })).json
        const items = `${id}/input_items`
        for (const [method, path] of [
          ['GET', id],
          ['GET', items],
          ['DELETE', id],
        ] as const) {
          assert.deepEqual(refused(await at(t, method, path, 'small')), OTHER_MODEL)
          const toolless = await at(t, method, path, 'toolless')
          assert.deepEqual(refused(toolless), [400, 'request_requirements_unsatisfied'])
        }
        const got = await at(t, 'GET', id, 'large')
        assert.deepEqual([got.status, got.json.id], [200, id])
        // The members are those that the client got, and no others.
        assert.equal(Object.keys(got.json)[0], 'id')
        assert.equal('asked' in got.json, false)
        assert.equal((await at(t, 'GET', id, 'buffered')).status, 200)
        assert.equal((await at(t, 'GET', items, 'buffered')).json.data[0].content[0].text, 'hello')
        assert.equal((await at(t, 'DELETE', id, 'large')).status, 200)
        assert.equal((await at(t, 'GET', id, 'large')).status, 404)
      }))

    test('[RESP-2] [AUTH-4] a response of another model is not continued, nor one that continues such a one', () =>
      using(async t => {
        const first = (await ask(t, { input: 'one' })).json.id
        const second = (await ask(t, { model: SMALL, input: 'two', previous_response_id: first })).json.id
        for (const previous_response_id of [first, second]) {
          const answer = await ask(t, { model: SMALL, input: 'three', previous_response_id }, as('small'))
          assert.deepEqual(refused(answer), OTHER_MODEL)
          assert.equal(answer.json.error.param, 'previous_response_id')
          // Its size is not told either.
          const counted = await t.post(
            '/v1/responses/input_tokens',
            { model: SMALL, input: '', previous_response_id },
            as('small'),
          )
          assert.deepEqual(refused({ status: counted.status, json: await counted.json() }), OTHER_MODEL)
        }
        assert.deepEqual(refused(await at(t, 'GET', second, 'small')), OTHER_MODEL)
        const own = (await ask(t, { model: SMALL, input: 'one' }, as('small'))).json.id
        const next = await ask(
          t,
          { model: 'eb1-preview-efficient', input: 'two', previous_response_id: own },
          as('small'),
        )
        assert.equal(next.status, 200)
        assert.equal((await ask(t, { model: LARGE, input: 'three', previous_response_id: second })).status, 200)
      }))

    test('a model that was renamed is known by its alias; what one left that is gone can only be deleted', () =>
      using(async (t, yaml) => {
        const { id } = (await ask(t, { model: SMALL, input: 'one' }, as('small'))).json
        const large = (await ask(t, { input: 'one' }, { 'idempotency-key': 'k' })).json.id
        const renamed = yaml([`  ${SMALL}: { aliases: [eb1-preview-efficient],`, `  eb9: { aliases: [${SMALL}],`])
        await writeFile(
          t.file,
          renamed.replace(`  ${LARGE}: {`, '  eb8: {').replace(`models: [${LARGE}]`, 'models: [eb8]'),
        )
        assert.equal((await t.gateway.reload()).applied, true)
        assert.equal((await at(t, 'GET', id, 'small')).status, 200)
        const next = await ask(t, { model: 'eb9', input: 'two', previous_response_id: id }, as('small'))
        assert.equal(next.status, 200)

        const gone = [404, 'model_not_found']
        assert.deepEqual(refused(await at(t, 'GET', large)), gone)
        assert.deepEqual(refused(await replay(t, { input: 'one' }, { 'idempotency-key': 'k' })), gone)
        const continued = await ask(t, { model: 'eb8', input: 'two', previous_response_id: large })
        assert.deepEqual(refused(continued), gone)
        assert.equal((await at(t, 'DELETE', large)).status, 200)
      }))

    test('over a WebSocket: what other keys stored, and what the connection keeps, once the key may less', () =>
      using(async (t, yaml) => {
        const stored = (await ask(t, { input: 'one' })).json.id
        const small = await SocketClient.open(t, { headers: as('small') })
        small.send({ type: 'response.create', model: SMALL, input: 'two', previous_response_id: stored })
        const error = (await small.response()).at(-1)!
        assert.deepEqual([error['status'], error['error'].code], OTHER_MODEL)
        small.close()

        const large = await SocketClient.open(t, { headers: as('large') })
        const answer = async (body: object) => {
          large.send({ type: 'response.create', model: LARGE, store: false, ...body })
          return (await large.response()).at(-1)!
        }
        const own = (await answer({ input: 'one' }))['response'].id
        assert.equal((await answer({ input: 'two', previous_response_id: own })).type, 'response.completed')
        await writeFile(t.file, yaml([`models: [${LARGE}]`, `models: [${SMALL}]`]))
        assert.equal((await t.gateway.reload()).applied, true)
        const late = await answer({ model: SMALL, input: 'two', previous_response_id: own })
        assert.deepEqual([late['status'], late['error'].code], OTHER_MODEL)
        large.close()
      }))
  })
}
