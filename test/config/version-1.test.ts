/** `version: 1` of gateway.yaml: what it implies, and that it is the house that version 2 writes out. */
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { lines, loadText, small } from './load-text.ts'

const ROUTES =
  'routes:\n  - { match: POST /v1/responses, surface: responses, pipeline: p }\n  - { match: POST /v1/messages/count_tokens, surface: messages, pipeline: c }'
const house = (version: 1 | 2, p: string[], c: string[], sections = '') =>
  small({
    version: `version: ${version}`,
    pipelines: `pipelines:\n  p: [${p.join(', ')}]\n  c: [${c.join(', ')}]`,
    routes: ROUTES,
    more: sections,
  })

const TAIL = ['admission', 'translation', 'upstream', 'usage-capture']
const one = (sections = '') =>
  house(
    1,
    ['auth', 'validation', 'conversation', 'token-estimate', 'routing', ...TAIL],
    ['auth', 'validation', 'conversation', 'token-estimate', 'count-tokens'],
    sections,
  )
const two = (webSearch = 'web-search', media = 'media') =>
  house(
    2,
    [
      ...['auth', 'validation', 'model-access', 'conversation', 'compaction', 'token-estimate'],
      ...[webSearch, media, 'routing', ...TAIL],
    ],
    ['auth', 'validation', 'model-access', 'conversation', 'compaction', 'token-estimate', 'count-tokens'],
  )

/** What a chain is built of, places in the file aside. */
async function built(text: string) {
  const { config, errors } = await loadText(text)
  assert.deepEqual(lines(errors), [])
  const chains = Object.entries(config!.pipelines).map(([name, entries]) => [
    name,
    entries.map(({ at: _, implied: __, ...entry }) => entry),
  ])
  return { ...config!, version: 0, pipelines: Object.fromEntries(chains), routes: 0, models: 0, providers: 0 }
}

describe('one house', () => {
  test('without options is the same in both versions', async () => {
    assert.deepEqual(await built(one()), await built(two()))
  })
  test('with the sections of version 1 has the options of version 2', async () => {
    assert.deepEqual(
      await built(
        one(
          'web_search: { provider: local, max_turns: 3 }\nmedia: { fetch: [a.example], max_bytes: 1MiB, timeout: 2s }',
        ),
      ),
      await built(
        two(
          '{ web-search: { provider: local, max_turns: 3 } }',
          '{ media: { fetch: [a.example], max_bytes: 1MiB, timeout: 2s } }',
        ),
      ),
    )
  })
})

test('version 1 implies the three at fixed places, and says that they are implied', async () => {
  const { config } = await loadText(one())
  const shown = config!.pipelines['p']!.map(({ id, implied }) => (implied ? `(${id})` : id))
  assert.deepEqual(shown.slice(2, 9), [
    '(model-access)',
    'conversation',
    '(compaction)',
    'token-estimate',
    '(web-search)',
    '(media)',
    'routing',
  ])
})

test('version 1 implies them once, under a name that is free, and needs nothing more for them', async () => {
  const { config } = await loadText(one().replace(', admission', ', { plugin: admission, id: media }'))
  assert.equal(config!.pipelines['p']![7]!.id, 'implied-media')
  const { errors } = await loadText(one().replace('auth, validation, conversation, token-estimate, routing', 'routing'))
  assert.ok(errors!.length > 0)
  for (const line of lines(errors)) assert.match(line, / (routing|admission|translation|upstream) needs /)
})

test('version 1 does not take them as lines: their place is fixed', async () => {
  const { errors } = await loadText(one().replace('routing,', 'media, routing,'))
  assert.deepEqual(lines(errors), [
    'gateway.yaml:3:55  media is implied by version: 1 and is not written; remove this line, or start the file with version: 2 and write model-access, compaction, web-search, media (docs/configuration.md)',
  ])
})

describe('version 2', () => {
  test('names the line that is missing', async () => {
    const without = async (plugin: string) => lines((await loadText(two().replaceAll(`${plugin}, `, ''))).errors)
    // These take their own capability away, and nothing else.
    for (const plugin of ['compaction', 'media', 'web-search'])
      assert.equal((await loadText(two().replaceAll(`${plugin}, `, ''))).errors, undefined, plugin)
    const moved = two().replace('web-search, ', '').replace('routing, ', 'routing, web-search, ')
    assert.match(
      lines((await loadText(moved)).errors)[0]!,
      /routing reads 'hostedSearch', which web-search fills, but it is listed below/,
    )
    assert.match(
      (await without('model-access'))[0]!,
      /conversation needs 'parsedConversation', which nothing above fills\. Add model-access above\.$/,
    )
  })
  test('refuses the sections with the line to write instead', async () => {
    const { errors } = await loadText(`${two()}media: { fetch: [a.example] }\nweb_search: { provider: simulator }\n`)
    assert.deepEqual(
      lines(errors).map(line => line.replace(/^\S+ +/, '')),
      [
        "the section 'media' belongs to version 1; since version 2 its keys are options of the plugin media: write `- media: { … }` above routing, and remove the section",
        "the section 'web_search' belongs to version 1; since version 2 its keys are options of the plugin web-search: write `- web-search: { … }` above routing, and remove the section",
      ],
    )
  })
  test('checks who answers searches at the line that names it', async () => {
    const { errors } = await loadText(two('{ web-search: { provider: lokal } }'))
    assert.deepEqual(lines(errors), [
      "gateway.yaml:3:81  web-search: there is no provider 'lokal'; did you mean 'local'?",
    ])
  })
})
