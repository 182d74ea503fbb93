/**
 * docs/openapi.yaml is valid OpenAPI 3.1 and says what the gateway does; docs/compatibility.md names every capability.
 */
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { Validator } from '@seriousme/openapi-schema-validator'
import { Ajv2020 } from 'ajv/dist/2020.js'
import { parse } from 'yaml'
import { ERRORS } from '../../core/canon/errors.ts'
import { compatibility } from '../../docs/generate/compatibility.ts'
import { openApi, openApiYaml } from '../../docs/generate/openapi.ts'
import { dialects } from '../../providers/index.ts'
import { listed, surfaces } from '../../surfaces/index.ts'
import { bodyOf, PATHS, SURFACES } from '../e2e/conversations.ts'
import { startGateway, type TestGateway } from '../e2e/harness.ts'

const DOCS = join(import.meta.dirname, '../../docs')
const document: any = openApi()

let t: TestGateway
before(async () => {
  t = await startGateway()
})
after(() => t.close())

test('the files are current: npm run generate', () => {
  assert.equal(readFileSync(join(DOCS, 'openapi.yaml'), 'utf8') === openApiYaml(), true, 'docs/openapi.yaml')
  assert.equal(readFileSync(join(DOCS, 'compatibility.md'), 'utf8') === compatibility(), true, 'docs/compatibility.md')
  assert.deepEqual(parse(openApiYaml()), JSON.parse(JSON.stringify(document)))
})

test('docs/openapi.yaml is valid OpenAPI 3.1', async () => {
  const validator = new Validator()
  const result = await validator.validate(structuredClone(document))
  assert.deepEqual(result.errors ?? [], [])
  assert.equal(result.valid, true)
  assert.equal(validator.version, '3.1')
  const broken = structuredClone(document)
  broken.paths['/v1/models'].get.responses = []
  assert.equal((await new Validator().validate(broken)).valid, false, 'the validator does look')
})

/** A schema of the document, compiled. */
function compile(name: string) {
  const ajv = new Ajv2020({ strict: false, allErrors: true })
  ajv.addSchema({ $id: 'doc', components: document.components })
  return ajv.compile({ $ref: `doc#/components/schemas/${name}` })
}

test('[GEN-1] requests and replies of the gateway are as described', async () => {
  const tools = [{ name: 'f', schema: { type: 'object', properties: { a: { type: 'string' } } } }]
  for (const surface of SURFACES) {
    const described = surfaces[surface]!
    const request = compile(`${described.reply.name}Request`)
    const reply = compile(described.reply.name)
    for (const text of [
      'hi',
      '[[sim: call f {"a":"b"}]] x',
      '[[sim: refuse "No."]] x',
      '[[sim: reason 2]] x',
      '[[sim: tokens 3000]] x',
    ]) {
      const body = JSON.parse(
        JSON.stringify(bodyOf(surface, 'eb1-preview', [{ system: 'S' }, { user: text, image: true }], { tools })),
      )
      assert.ok(request(body), JSON.stringify(request.errors))
      const response = await t.post(PATHS[surface], body)
      assert.equal(response.status, 200)
      assert.ok(reply(await response.json()), `${surface}: ${JSON.stringify(reply.errors)}`)
    }
    const unknown: any = bodyOf(surface, 'eb1-preview', [{ user: 'x' }], { more: { foo: 1 } })
    assert.equal(request(JSON.parse(JSON.stringify(unknown))), false, 'unknown members are refused')
    const error = compile(described.errorReply.name)
    const refused = await t.post(PATHS[surface], unknown)
    assert.ok(document.paths[PATHS[surface]].post.responses[refused.status])
    assert.ok(error(await refused.json()), JSON.stringify(error.errors))
  }
  const models = compile('ModelList')
  const list = await fetch(`${t.url}/v1/models`, { headers: { authorization: 'Bearer sk-test-0001-secret' } })
  assert.ok(models(await list.json()), JSON.stringify(models.errors))
  const count = compile('TokenCount')
  const counted = await t.post('/v1/messages/count_tokens', bodyOf('messages', 'eb1-preview', [{ user: 'x' }]))
  assert.ok(count(await counted.json()))
})

test('[ERR-1] every code of the error table is in the description, under its status', () => {
  const { responses } = document.paths['/v1/messages'].post
  for (const [code, { status }] of Object.entries(ERRORS))
    assert.ok(responses[status].description.includes(`\`${code}\``), code)
})

test('every member of every surface’s schema is in the document', () => {
  for (const { reply, requestSchema } of listed) {
    const described = Object.keys(document.components.schemas[`${reply.name}Request`].properties)
    assert.deepEqual(described, Object.keys(requestSchema['properties'] as object))
  }
})

test('docs/compatibility.md has a column for each dialect, and no empty cell', () => {
  const text = compatibility()
  for (const name of Object.keys(dialects)) assert.ok(text.includes(` ${name} |`), name)
  for (const line of text.split('\n').filter(l => l.startsWith('|')))
    assert.doesNotMatch(line, /\| {2,}\||undefined|null/)
})
