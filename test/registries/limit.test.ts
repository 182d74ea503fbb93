/**
 * A new limit needs only an entry in core/canon/limits.ts. With no other change, the toy limit can be configured, is
 * enforced, is shown, and is stored by both engines.
 */
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import type { TestGateway } from '../e2e/harness.ts'
import { RedisServer, skipWithoutRedis } from '../stores/redis-server.ts'
import { changeLine } from './one-line.ts'

changeLine(
  'core/canon/limits.ts',
  '} as const satisfies Record<string, Counted>',
  'images } as const satisfies Record<string, Counted>',
  "import { images } from '../../test/registries/toy-limit.ts'",
)

const PIXEL =
  'data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='

async function gateway(store: string): Promise<TestGateway> {
  const { defaultYaml, startGateway } = await import('../e2e/harness.ts')
  const organization = '    limits: { images_per_day: 3, requests_per_day: 100 }'
  return startGateway({
    yaml: url => defaultYaml(url, { organization, store: JSON.stringify(store) }),
  })
}

function ask(g: TestGateway, images: number): Promise<Response> {
  const content = [
    { type: 'text', text: 'look' },
    ...Array.from({ length: images }, () => ({ type: 'image_url', image_url: { url: PIXEL } })),
  ]
  return g.post('/v1/chat/completions', { model: 'eb1-preview', messages: [{ role: 'user', content }] })
}

async function holds(g: TestGateway): Promise<void> {
  const first = await ask(g, 2)
  assert.equal(first.status, 200)
  await first.text()
  assert.equal(first.headers.get('x-ratelimit-limit-images-day'), '3')
  assert.equal(first.headers.get('x-ratelimit-remaining-images-day'), '1')
  // The other limits keep their own levels, although they are of the same kind of bucket, and in Redis in the same
  // hash.
  assert.equal(first.headers.get('x-ratelimit-remaining-requests-day'), '99')
  const denied = await ask(g, 2)
  assert.equal(denied.status, 429)
  const { error } = (await denied.json()) as any
  assert.equal(error.code, 'images_limit_exceeded')
  assert.deepEqual([error.retryable, error.details.retry], [true, 'later'])
  assert.match(error.message, /^The limit of 3 images per day of this organization is reached.*raise images_per_day\.$/)
  assert.ok(Number(denied.headers.get('retry-after')) >= 1)
  // More than there is in a whole day: final, without a line for it.
  const never = await ask(g, 4)
  const told = ((await never.json()) as any).error
  assert.deepEqual([never.status, told.code, told.retryable], [429, 'images_limit_exceeded', false])
  assert.deepEqual([never.headers.get('retry-after'), never.headers.get('x-should-retry')], [null, 'false'])
  assert.match(told.message, /limit of 3 images per day.*Waiting does not help.*raise images_per_day\.$/)
  const without = await ask(g, 0)
  assert.equal(without.status, 200)
  assert.equal(without.headers.get('x-ratelimit-remaining-images-day'), '1')
  assert.equal(without.headers.get('x-ratelimit-remaining-requests-day'), '98')
  await without.text()
}

describe('a gateway on sqlite', () => {
  let g: TestGateway
  before(async () => {
    g = await gateway('sqlite::memory:')
  })
  after(() => g?.close())

  test('holds the limit and says so', () => holds(g))

  test('shows it: the models list, metrics', async () => {
    const models = await fetch(`${g.url}/v1/models`, { headers: { authorization: 'Bearer sk-test-0001-secret' } })
    assert.equal(((await models.json()) as any).data[0].limits.images_per_day, 3)
    const metrics = await (await fetch(`${g.gateway.adminAddress}/metrics`)).text()
    assert.match(metrics, /sluice_limit_denials_total\{dimension="images"\} 2/)
  })
})

describe('a gateway on redis', { skip: skipWithoutRedis }, () => {
  let redis: RedisServer
  let g: TestGateway
  before(async () => {
    redis = await RedisServer.start()
    g = await gateway(redis.url)
  })
  after(async () => {
    await g?.close()
    await redis?.stop()
  })

  test('holds the limit and says so', () => holds(g))
})

test('the docs, the editor and the plans know it', async () => {
  const { generated } = await import('../../docs/generate/index.ts')
  const files = generated()
  assert.match(files['config/gateway.schema.json']!, /"images_per_day"/)
  assert.match(files['docs/configuration.md']!, /\| `limits\.images_per_day` \| number \| {2}\| Images per day\. \|/)
  assert.match(
    files['docs/limits.md']!,
    /\| `images_per_day` \| images of admitted requests \| `images_limit_exceeded` \|/,
  )
  assert.match(files['docs/errors.md']!, /`images_limit_exceeded`.*send fewer images/)
})

// Two limits with the same word would share one level in every store.
test('no two limits have the same word for their cells', async () => {
  const { DIMENSIONS } = await import('../../core/canon/limits.ts')
  const words = DIMENSIONS.flatMap(([, { limits }]) => limits.map(({ word }) => word))
  assert.equal(new Set(words).size, words.length, words.join(' '))
})
