/** `sluice models`: what is written into the file, whose words win, and what `check` says. The catalogue is the real one. */
import assert from 'node:assert/strict'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { parse } from 'yaml'
import { differences } from '../../cli/models.ts'
import { sluice } from './capture.ts'

const FILE = `version: 2
store: "sqlite::memory:"
pipelines: { models: [auth, models] }
routes: [{ match: GET /v1/models, pipeline: models }]
providers:
  anthropic: { dialect: anthropic-messages, base_url: https://api.anthropic.com/v1, api_key: k }
  mine: { dialect: openai-chat, base_url: http://127.0.0.1:9/v1 }
models:
  first: # the first one
    context_window: 1000
    price: { input: 1, output: 2 }
    backends: [{ provider: anthropic, model: claude-sonnet-4-5 }] # its backend

# who calls
organizations: { acme: { plan: tier1 } }
`

async function edited(...args: string[]) {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-models-'))
  const file = join(folder, 'gateway.yaml')
  try {
    writeFileSync(file, FILE)
    const ran = await sluice('models', ...args, '--config', file)
    return { ...ran, text: readFileSync(file, 'utf8') }
  } finally {
    rmSync(folder, { recursive: true })
  }
}

test('add: window and price come from the catalogue, and all other bytes of the file stay', async () => {
  const { code, err, text } = await edited('add', 'anthropic/claude-opus-4-5', '--max-output', '64000')
  assert.equal(code, 0, err)
  const { 'claude-opus-4-5': model } = parse(text).models
  assert.equal(model.context_window, 200_000)
  assert.equal(model.max_output_tokens, 64_000)
  assert.ok(model.price.input > 0 && model.price.output > model.price.input)
  assert.deepEqual(model.backends, [{ provider: 'anthropic', model: 'claude-opus-4-5' }])
  assert.match(text, /# @pydantic\/genai-prices \d/)
  assert.match(err, /price_book/)
  const [head, tail] = FILE.split(' # its backend\n')
  assert.ok(text.startsWith(`${head} # its backend\n`) && text.endsWith(tail!), text)
})

test("add: the operator's own words win, and with all of them any model may be added", async () => {
  const own = await edited('add', 'anthropic/claude-opus-4-5', '--id', 'big', '--context', '5000', '--price', '7,8')
  assert.deepEqual(parse(own.text).models.big.price, { input: 7, output: 8 })
  assert.equal(parse(own.text).models.big.context_window, 5000)
  const unknown = await edited('add', 'mine/home-made', '--context', '5000', '--price', '0,0')
  assert.equal(unknown.code, 0, unknown.err)
  assert.equal(parse(unknown.text).models['home-made'].context_window, 5000)
})

test('add: what cannot be added leaves the file as it is', async () => {
  const cases: [string[], RegExp][] = [
    [['mine/home-made'], /has no mine\/home-made: name --context and --price/],
    [['nobody/x'], /no provider 'nobody'/],
    [['anthropic/claude-opus-4-5', '--id', 'first'], /already a model 'first'/],
    [['anthropic/claude-opus-4-5', '--price', 'a,b'], /price/],
    [['anthropic/claude-opus-4-5', '--context', '-1'], /./],
    [['claude'], /PROVIDER\/NAME/],
  ]
  for (const [args, message] of cases) {
    const { code, err, text } = await edited('add', ...args)
    assert.notEqual(code, 0, args.join(' '))
    assert.match(err, message)
    assert.equal(text, FILE)
  }
})

test('check: names what differs, and succeeds when nothing does', async () => {
  const { code, out: folded } = await edited('check')
  const out = folded.replaceAll(/\s+/g, ' ')
  assert.equal(code, 1)
  assert.match(out, /first.*anthropic\/claude-sonnet-4-5.*context_window is 1000, in the catalogue 200000/)
  assert.match(out, /price input is 1, in the catalogue 3/)
  assert.match(out, /price output is 2, in the catalogue 15/)

  const config = (price: number) => ({
    providers: { p: { name: 'p', base_url: 'https://p.example' } },
    models: {
      m: {
        id: 'm',
        context_window: 9,
        price: { input: price, output: 300_000 },
        backends: [{ provider: 'p', model: 'm' }],
      },
    },
  })
  // 0.1 + 0.2 is not 0.3 in binary: prices are compared as the file keeps them.
  const known = { window: 9, input: 0.1 + 0.2, output: 0.3, tier: undefined, deprecated: false }
  assert.deepEqual(
    differences(config(300_000) as never, () => known),
    [],
  )
  assert.equal(differences(config(300_001) as never, () => known).length, 1)
  assert.match(differences(config(300_000) as never, () => null)[0]![2]!, /not in the catalogue/)
  assert.match(differences(config(300_000) as never, () => ({ ...known, deprecated: true }))[0]![2]!, /deprecated/)
})
