/** Every preset: the file that `sluice init` writes of it checks, and it serves against the simulator in its form. */
import assert from 'node:assert/strict'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { init } from '../../cli/init.ts'
import { load } from '../../cli/load.ts'
import { PRESETS } from '../../providers/presets.ts'
import { defaultYaml, startGateway } from './harness.ts'

const folder = mkdtempSync(join(tmpdir(), 'sluice-presets-'))
after(() => rmSync(folder, { recursive: true, force: true }))
const SET = ['region=us-east-1', 'project=p-1', 'location=global', 'resource=res']
const settings = SET.map(text => text.replace('=', ': ')).join(', ')
const quiet = { out() {}, err() {} }

for (const [name, { of, settings: needed, variable }] of Object.entries(PRESETS)) {
  test(`${name}: init writes a file that checks`, async () => {
    const file = join(folder, `${name}.yaml`)
    const set = SET.filter(text => needed?.some(setting => text.startsWith(setting))).flatMap(text => ['--set', text])
    const args = [file, '--provider', name, '--model', 'm=model-1', '--price', '1,2', ...set]
    assert.equal(await init.run(args, quiet as any), 0)
    const { errors, config } = await load(file, { env: variable ? { [variable]: 'k' } : {} })
    assert.deepEqual(errors, undefined)
    const [provider] = Object.values(config!.providers)
    assert.ok(!/[{}]/.test(provider!.base_url), provider!.base_url)
    if (needed) {
      const text = readFileSync(file, 'utf8')
      for (const setting of needed) assert.match(text, new RegExp(`${setting}: "`))
    }
  })

  for (const [dialect, members] of Object.entries(of)) {
    test(`${name} with ${dialect} serves, buffered and streamed`, async context => {
      // The path of the service, at the simulator; what it needs of a cloud comes from a key.
      const path = String(members['base_url']).replace(/^https?:\/\/[^/]+/, '')
      const own = path.replace('{project}', 'p-1').replace('{location}', 'global')
      const running = await startGateway({
        yaml: url =>
          defaultYaml(url, {
            providers: `  one: { preset: ${name}, dialect: ${dialect}, base_url: "${url}${own.replace('/inference', '').replace('/api', '')}", api_key: key-of-one, ${settings} }`,
            models:
              '  m: { context_window: 400000, max_output_tokens: 8000, price: { input: 1, output: 1 }, backends: [{ provider: one, model: model-1 }] }',
          }),
      })
      context.after(() => running.close())
      for (const stream of [false, true]) {
        const body = { model: 'm', max_tokens: 50, seed: 7, stream, messages: [{ role: 'user', content: 'hello' }] }
        const response = await running.post('/v1/chat/completions', body)
        const text = await response.text()
        assert.equal(response.status, 200, text)
        assert.match(text, /"finish_reason":"(stop|length)"/)
      }
      const sent = running.simulator.requests.at(-1)!
      if (name === 'mistral') {
        assert.equal(sent.json!['max_tokens'], 50)
        for (const member of ['seed', 'stream_options', 'max_completion_tokens']) assert.ok(!(member in sent.json!))
      }
      assert.ok(Object.values(sent.headers).some(value => String(value).includes('key-of-one')))
    })
  }
}

test('docs/providers.md has a section for each preset, with the documentation that it comes from', () => {
  const page = readFileSync(join(import.meta.dirname, '../../docs/providers.md'), 'utf8')
  for (const name of Object.keys(PRESETS))
    assert.match(page, new RegExp(`\\n### ${name}\\n\\n(?:(?!\\n#)[^])*\`https://`), name)
})

test('the words of the operator win, and what a preset lacks is named', async () => {
  const { loadText, lines, small } = await import('../config/load-text.ts')
  const { dialects } = await import('../../providers/index.ts')
  const read = (provider: string) =>
    loadText(small({ providers: `providers:\n  local: { ${provider} }` }), { presets: PRESETS, dialects })
  const faults = async (provider: string) => lines((await read(provider)).errors).join('\n')
  assert.match(await faults('preset: grok'), /there is no preset 'grok'; did you mean 'groq'/)
  assert.match(await faults('preset: vertex'), /the preset vertex needs project and location/)
  assert.match(await faults('preset: groq, dialect: gemini'), /the preset groq is for openai-chat/)
  const { config } = await read('preset: groq, base_url: "http://mine/v1", api_key: k')
  const { base_url, dialect } = config!.providers['local']!
  assert.deepEqual([base_url, dialect], ['http://mine/v1', 'openai-chat'])
  const own = await read('preset: bedrock, region: eu-west-1')
  const bedrock = own.config!.providers['local']!
  assert.deepEqual(bedrock.auth, { kind: 'aws', region: 'eu-west-1', service: 'bedrock' })
  assert.equal(bedrock.base_url, 'https://bedrock-runtime.eu-west-1.amazonaws.com')
  const vertex = (await read('preset: vertex, project: p, location: global')).config!.providers['local']!
  assert.equal(vertex.base_url, 'https://aiplatform.googleapis.com/v1/projects/p/locations/global')
})
