/**
 * What a release promised, the present code keeps: its configurations start and serve, its plugin loads and each of
 * its hooks runs, and every name that others may depend on is still there. README.md beside this file.
 */
import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { startGateway, type TestGateway } from '../e2e/harness.ts'
import { eventually } from '../eventually.ts'
import { type Names, names } from './names.ts'

const RELEASES = readdirSync(import.meta.dirname, { withFileTypes: true })
  .filter(entry => entry.isDirectory())
  .map(entry => entry.name)

/** Where the configurations name the provider. */
const UPSTREAM = '$' + '{UPSTREAM}'
const authorization = 'Bearer sk-demo'

describe('names', () => {
  let present: Names
  before(async () => {
    present = await names()
  })
  for (const release of RELEASES)
    test(`${release}: none is gone`, () => {
      const promised = JSON.parse(readFileSync(join(import.meta.dirname, release, 'names.json'), 'utf8')) as Names
      for (const [kind, list] of Object.entries(promised) as [keyof Names, string[]][]) {
        const there = new Set(present[kind])
        assert.deepEqual(
          list.filter(name => !there.has(name)),
          [],
          kind,
        )
        assert.ok(list.length > 0, kind)
      }
    })
})

for (const release of RELEASES)
  for (const file of ['gateway.yaml', 'gateway-1.yaml'])
    describe(`${file} of ${release}`, () => {
      const folder = join(import.meta.dirname, release)
      let t: TestGateway
      before(async () => {
        const text = readFileSync(join(folder, file), 'utf8').replaceAll('./plugins/', `${folder}/plugins/`)
        t = await startGateway({ yaml: url => text.replaceAll(UPSTREAM, url) })
      })
      after(() => t.close())

      const chat = (content: string, more: object = {}) => ({
        model: 'eb1',
        messages: [{ role: 'user', content }],
        ...more,
      })
      const logged = (message: string) => t.log.filter(entry => entry.message === message)

      test('an exchange is served, streamed and not, and each hook of the plugin runs', async () => {
        for (const stream of [false, true]) {
          const reply = await t.post('/v1/chat/completions', chat('[[sim: text "well"]]', { stream }), {
            authorization,
          })
          const text = await reply.text()
          assert.equal(reply.status, 200, text)
          assert.equal(reply.headers.get('x-greeter'), 'hello acme true true')
          // Until 0.2.0 a plugin rewrote what itself pushed at the end: ' BYE.'.
          assert.match(text, /WELL[\s\S]* Bye\./)
        }
        await eventually(() => logged('greeter settled').length === 2 && logged('greeter released').length === 2)
        for (const { fields } of logged('greeter settled')) {
          assert.equal(fields.outcome, 'completed')
          assert.equal(fields.characters, 'well'.length)
          assert.ok(fields.counted > 0 && fields.cost > 0)
          assert.match(fields.reply, /WELL Bye/)
        }
        assert.ok(logged('watcher settled').every(({ fields }) => fields.events > 0))
        assert.deepEqual(
          logged('greeter sent').map(({ fields }) => fields.whole),
          [true, true],
        )
        assert.match(JSON.stringify(t.simulator.requests.at(-1)!.body), /Be brief\./)
        assert.equal(logged('greeter made')[0]!.fields.known, true)
        assert.deepEqual(
          (await t.ledger()).map(row => [row.organization, row.outcome]),
          [
            ['acme', 'completed'],
            ['acme', 'completed'],
          ],
        )
      })

      test('what the plugin answers itself is answered', async () => {
        const statuses = []
        for (const stop of ['early', 'denied', 'refused', 'thrown']) {
          const reply = await t.post('/v1/chat/completions', chat('x'), { authorization, 'x-stop': stop })
          await reply.text()
          statuses.push(reply.status)
        }
        assert.deepEqual(statuses, [418, 400, 200, 400])
      })

      test('models are listed', async () => {
        const reply = await fetch(`${t.url}/v1/models`, { headers: { authorization } })
        assert.equal(reply.status, 200)
        assert.deepEqual(
          ((await reply.json()) as { data: { id: string }[] }).data.map(({ id }) => id),
          ['eb1'],
        )
      })
    })
