/**
 * A new surface needs only a folder and one line in surfaces/index.ts. With no other change, the toy surface can be
 * configured, serves requests, bills them, writes refusals, works in `try`, and is in the documentation.
 */
import assert from 'node:assert/strict'
import { readFile, writeFile } from 'node:fs/promises'
import { after, before, test } from 'node:test'
import { Validator } from '@seriousme/openapi-schema-validator'
import { parse } from 'yaml'
import type { TestGateway } from '../e2e/harness.ts'
import { changeLine } from './one-line.ts'

changeLine(
  'surfaces/index.ts',
  'const all = [',
  'const all = [toy, ',
  "import { toy } from '../test/registries/toy-surface/index.ts'",
)

let g: TestGateway

before(async () => {
  const { defaultYaml, startGateway } = await import('../e2e/harness.ts')
  g = await startGateway({
    yaml: url =>
      defaultYaml(url, { plugins: { validation: '{ unknown_fields: { toy: strip } }' } }).replace(
        'routes:\n',
        'routes:\n  - { match: POST /v1/toy, surface: toy, pipeline: completions }\n',
      ),
  })
})
after(() => g?.close())

// The configuration has one model for each dialect of the default configuration.
for (const model of ['eb1-preview', 'eb1-efficient-preview', 'eb1-fast-preview', 'eb1-frontier-preview'])
  test(`requests are read, and replies of ${model} written, in the toy surface`, async () => {
    const whole: any = await (await g.post('/v1/toy', { model, say: 'hello' })).json()
    assert.ok(whole.said.length > 0)
    assert.ok(whole.tokens > 0)
    const streamed = await (await g.post('/v1/toy', { model, say: 'hello', stream: true })).text()
    const lines = streamed.split('\n\n').filter(line => line.startsWith('data: '))
    const events = lines.map(line => JSON.parse(line.slice(6)))
    assert.deepEqual(events.pop(), { tokens: whole.tokens })
    assert.equal(events.map(event => event.said).join(''), whole.said)
    assert.ok((await g.ledger()).some(row => row.surface === 'toy' && row.model === model))
  })

test('a fault of the request, a path below it and an unknown model are refused in its form', async () => {
  for (const [path, body, code] of [
    ['/v1/toy', { model: 'eb1-preview', say: 7 }, 'invalid_type'],
    ['/v1/toy', { model: 'nobody', say: 'x' }, 'model_not_found'],
    ['/v1/toy/more', {}, 'not_found'],
  ] as const) {
    const refused: any = await (await g.post(path, body)).json()
    assert.equal(refused.oops, code)
  }
})

test('a path that nobody serves is refused with the paths that are, its own among them', async () => {
  const refused: any = await (await g.post('/v1/nothing', {})).json()
  assert.match(refused.error.message, /POST \/v1\/chat\/completions, \/v1\/toy, .* and .*\.$/)
})

test('the validation plugin has its option for unknown fields', async () => {
  const stripped = await g.post('/v1/toy', { model: 'eb1-preview', say: 'x', more: 1 })
  assert.equal(stripped.status, 200)
  assert.equal(stripped.headers.get('x-sluice-stripped'), 'more')
  await stripped.text()
})

test('sluice try asks it, and reads its stream', async () => {
  const { sluice } = await import('../cli/capture.ts')
  const { KEY } = await import('../e2e/harness.ts')
  const ran = await sluice('try', '--config', g.file, '--url', g.url, '--key', KEY, '--prompt', 'hello')
  assert.deepEqual([ran.code, ran.err], [0, ''])
  const told = ran.out.slice(ran.out.indexOf('toy  POST '))
  const [, reply, usage] = told.split('\n')
  assert.match(reply!, /^ {2}reply {2}\w/)
  assert.match(usage!, /^ {2}usage {2}0 tokens in, [1-9]/)
})

test('docs/openapi.yaml has its path, request, reply and error; docs/compatibility.md what it takes', async () => {
  const { generated } = await import('../../docs/generate/index.ts')
  const files = generated()
  const document = parse(files['docs/openapi.yaml']!)
  assert.deepEqual((await new Validator().validate(structuredClone(document))).errors ?? [], [])
  const { requestBody, responses } = document.paths['/v1/toy'].post
  const described = ({ content }: any) => {
    const { $ref } = content['application/json'].schema
    return Object.keys(document.components.schemas[$ref.split('/').pop()].properties)
  }
  assert.deepEqual(described(requestBody), ['model', 'say', 'stream'])
  assert.deepEqual(described(responses[200]), ['said', 'tokens'])
  assert.deepEqual(described(responses[429]), ['oops', 'why'])

  const lines = files['docs/compatibility.md']!.split('\n').filter(line => line.startsWith('| '))
  const column = lines[0]!.split('|').indexOf(' Toys ')
  const cell = (feature: string) =>
    lines
      .find(line => line.startsWith(`| ${feature} |`))!
      .split('|')
      [column]!.trim()
  assert.deepEqual(['Text, system text, history', 'Streams', 'seed', 'Audio'].map(cell), [
    'yes',
    'yes',
    '400 `unknown_parameter` at `seed`',
    '–',
  ])
})

test('the configuration names it: in faults and for editors; sluice route knows it', async () => {
  const { load } = await import('../../cli/load.ts')
  const { generated } = await import('../../docs/generate/index.ts')
  assert.match(generated()['config/gateway.schema.json']!, /"toy", "responses"/)
  const { routeReport } = await import('../../cli/route-report.ts')
  const { config, plugins } = await load(g.file)
  const body = JSON.stringify({ model: 'eb1-preview', say: 'x' })
  assert.deepEqual((await routeReport(config!, plugins!, g.file, { surface: 'toy', body })).candidates, [
    'chat/sim-large',
  ])
  await writeFile(g.file, (await readFile(g.file, 'utf8')).replace('surface: toy', 'surface: tay'))
  assert.match((await load(g.file)).errors![0]!.message, /toy/)
})
