/** init, try and usage: from an empty folder to a bill. */
import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, type TestContext, test } from 'node:test'
import { parse } from 'yaml'
import { ownCommand } from '../../cli/arguments.ts'
import { buildGateway } from '../../cli/gateway.ts'
import { silent } from '../../cli/log.ts'
import { startSimulator } from '../../providers/simulator/server.ts'
import { findProgram } from '../ensure-deps.ts'
import { folder, sluice, YAML } from './capture.ts'

const MAIN = join(import.meta.dirname, '../../cli/main.ts')
const LAUNCHER = join(import.meta.dirname, '../../bin/sluice.mjs')
const PROVIDERS = ['OPENAI_API_KEY', 'ANTHROPIC_API_KEY', 'GEMINI_API_KEY']
const VARIABLES = [...PROVIDERS, 'SLUICE_API_KEY', 'SLUICE_SECRET', 'SLUICE_ADMIN_TOKEN']

function empty(t: TestContext): string {
  const dir = mkdtempSync(join(tmpdir(), 'sluice-init-'))
  t.after(() => rmSync(dir, { recursive: true, force: true }))
  return join(dir, 'gateway.yaml')
}

/** The environment has these of the variables and no other. */
function environment(t: TestContext, set: Record<string, string>): void {
  const before = VARIABLES.map(name => [name, process.env[name]] as const)
  for (const name of VARIABLES) delete process.env[name]
  Object.assign(process.env, set)
  t.after(() => {
    for (const [name, value] of before) {
      if (value === undefined) delete process.env[name]
      else process.env[name] = value
    }
  })
}

const secretOf = (out: string) => /^ {2}(sk-\S{40,})$/m.exec(out)![1]!

test('init takes the providers that the environment has, and what it writes checks', async t => {
  environment(t, { OPENAI_API_KEY: 'real-openai', GEMINI_API_KEY: 'real-gemini' })
  const file = empty(t)
  const made = await sluice('init', file)
  assert.deepEqual([made.code, made.err], [0, ''])
  const text = readFileSync(file, 'utf8')
  assert.deepEqual(Object.keys(parse(text).providers), ['openai', 'gemini'])
  assert.deepEqual(
    Object.values<any>(parse(text).models).map(model => model.max_output_tokens),
    [128_000, 65_536],
  )
  assert.ok(!text.includes('real-'), 'no key of a provider in the file')
  assert.ok(!text.includes(secretOf(made.out)), 'no key of a client in the file')
  const checked = await sluice('check', file)
  assert.deepEqual([checked.code, checked.err], [0, ''])
  assert.match(checked.out, /is good/)
})

// Its "Next" told to export another secret, which cannot open what the present one has sealed on the same store.
test('init keeps secrets that are set', async t => {
  const exported = (out: string) => [...out.matchAll(/export (\w+)=/g)].map(([, name]) => name)
  const init = async () => (await sluice('init', empty(t), '--admin', '0.0.0.0:9090')).out
  environment(t, {})
  const without = await init()
  assert.deepEqual(exported(without), ['SLUICE_SECRET', 'SLUICE_ADMIN_TOKEN'])
  assert.doesNotMatch(without, /already/)
  environment(t, { SLUICE_SECRET: 's'.repeat(32) })
  const secret = await init()
  assert.deepEqual(exported(secret), ['SLUICE_ADMIN_TOKEN'])
  assert.match(secret, /^SLUICE_SECRET is set already: keep it\.$/m)
  environment(t, { SLUICE_SECRET: 's'.repeat(32), SLUICE_ADMIN_TOKEN: 't'.repeat(32) })
  const both = await init()
  assert.deepEqual(exported(both), [])
  assert.match(both, /^SLUICE_SECRET and SLUICE_ADMIN_TOKEN are set already: keep them\.$/m)
})

// `check` warned of a web search that nobody had asked for.
test('init for a server of one’s own: with its figures, check has nothing to say', async t => {
  environment(t, {})
  const file = empty(t)
  const made = await sluice(
    ...['init', file, '--base-url', 'http://127.0.0.1:11434/v1', '--model', 'own=llama'],
    ...['--context', '8192', '--max-output', '4096'],
  )
  assert.deepEqual([made.code, made.err], [0, ''])
  const checked = await sluice('check', file)
  assert.deepEqual([checked.code, checked.err], [0, ''])
})

test('init without any variable takes the simulator', async t => {
  environment(t, {})
  const file = empty(t)
  assert.equal((await sluice('init', file)).code, 0)
  assert.deepEqual(Object.keys(parse(readFileSync(file, 'utf8')).providers), ['simulator'])
})

// Its quote had `compaction` and its completions had not: a Responses request that asks for a compaction was quoted as
// admitted, and refused when it was sent.
test('init writes the plugins and routes of the quickstart', async t => {
  environment(t, {})
  const file = empty(t)
  assert.equal((await sluice('init', file)).code, 0)
  const [made, quickstart] = [file, join(import.meta.dirname, '../../gateway.yaml')].map(path =>
    parse(readFileSync(path, 'utf8')),
  )
  assert.deepEqual(made.pipelines, quickstart.pipelines)
  assert.deepEqual(made.routes, quickstart.routes)
})

test('init by flags', async t => {
  environment(t, {})
  const file = empty(t)
  const made = await sluice(
    'init',
    file,
    ...['--provider', 'openai', '--provider', 'anthropic', '--organization', 'acme', '--store', 'redis://cache:6379'],
    ...['--model', 'smart=anthropic/claude-x', '--model', 'fast=openai/gpt-x', '--price', '1.5,6'],
  )
  assert.equal(made.code, 0)
  assert.match(made.err, /OPENAI_API_KEY is not set[\s\S]*ANTHROPIC_API_KEY is not set/)
  const yaml = parse(readFileSync(file, 'utf8'))
  assert.equal(yaml.store, 'redis://cache:6379')
  assert.deepEqual(Object.keys(yaml.organizations), ['acme'])
  assert.deepEqual(yaml.models.smart.backends, [{ provider: 'anthropic', model: 'claude-x' }])
  assert.deepEqual(yaml.models.fast.price, { input: 1.5, output: 6 })
  // What is not known is not made up: `check` asks for it.
  assert.equal(yaml.models.smart.max_output_tokens, undefined)
  assert.match(made.err, /claude-x: it is not known how much it writes at most\. Set max_output_tokens of smart/)
  assert.match((await sluice('check', file)).err, /smart has no max_output_tokens/)
  assert.equal(yaml.providers.openai.api_key, ['$', '{OPENAI_API_KEY}'].join(''))
})

test('init --listen and --admin: where it listens, and a token for admin pages that the network can reach', async t => {
  environment(t, {})
  const file = empty(t)
  const read = () => parse(readFileSync(file, 'utf8')).server
  const ours = await sluice('init', file, '--listen', '[::1]:8081', '--admin', 'localhost:9091')
  assert.equal(ours.code, 0, ours.err)
  assert.deepEqual(read(), { listen: '[::1]:8081', admin: 'localhost:9091' })
  assert.doesNotMatch(ours.out, /SLUICE_ADMIN_TOKEN/)

  const open = await sluice('init', file, '--force', '--listen', '0.0.0.0:80', '--admin', ':9091')
  assert.equal(open.code, 0, open.err)
  const token = ['$', '{SLUICE_ADMIN_TOKEN}'].join('')
  assert.deepEqual(read(), { listen: '0.0.0.0:80', admin: { listen: ':9091', token } })
  assert.match(open.out, /export SLUICE_ADMIN_TOKEN=[0-9a-f]{64}\n/)
  assert.equal((await sluice('check', file)).code, 0)

  const before = readFileSync(file, 'utf8')
  const none = await sluice('init', file, '--force', '--admin', 'localhost')
  assert.deepEqual(
    [none.code, none.err.split('\n')[0]],
    [2, 'sluice init: --admin localhost is no address; write one such as 127.0.0.1:8080 or 0.0.0.0:8080'],
  )
  const twice = await sluice('init', file, '--force', '--listen', '127.0.0.1:9090')
  assert.equal(twice.code, 1)
  assert.match(twice.err, /cannot share port 9090/)
  assert.equal(readFileSync(file, 'utf8'), before, 'nothing is written')
})

test('init --base-url: any OpenAI-compatible server, of one’s own or on the network', async t => {
  environment(t, {})
  const simulator = await startSimulator({ port: 0 })
  t.after(() => simulator.close())
  const file = empty(t)
  const url = `${simulator.url}/v1`
  const made = await sluice('init', file, '--base-url', url, '--model', 'llama=llama3.2', '--store', 'sqlite::memory:')
  assert.equal(made.code, 0)
  assert.match(made.err, /^llama3\.2: it is not known how much it writes at most\. [^\n]*$/)
  const own = parse(readFileSync(file, 'utf8'))
  assert.deepEqual(own.providers, { local: { dialect: 'openai-chat', base_url: url } })
  assert.deepEqual(own.models.llama, {
    context_window: 32_768,
    price: { input: 0, output: 0 },
    backends: [{ provider: 'local', model: 'llama3.2' }],
  })
  writeFileSync(
    file,
    readFileSync(file, 'utf8').replace('127.0.0.1:8080', '127.0.0.1:0').replace('127.0.0.1:9090', '127.0.0.1:0'),
  )
  const gateway = await buildGateway(file, { log: silent, watch: false })
  t.after(() => gateway.close())
  const tried = await sluice('try', '--config', file, '--url', gateway.address, '--key', secretOf(made.out))
  assert.deepEqual([tried.code, tried.err], [0, ''])

  const router = ['--base-url', 'https://openrouter.ai/api/v1', '--model', 'smart=openrouter/vendor/model-1']
  const more = ['--provider', 'simulator', '--price', '1,2', '--context', '128000']
  const written = await sluice('init', file, '--force', ...router, ...more)
  assert.equal(written.code, 0, written.err)
  assert.match(written.err, /OPENROUTER_API_KEY is not set; openrouter needs it/)
  const { providers, models } = parse(readFileSync(file, 'utf8'))
  assert.deepEqual(Object.keys(providers), ['simulator', 'openrouter'])
  assert.equal(providers.openrouter.api_key, ['$', '{OPENROUTER_API_KEY}'].join(''))
  assert.deepEqual(models.smart.backends, [{ provider: 'openrouter', model: 'vendor/model-1' }])
  assert.equal(models.smart.context_window, 128_000)

  const keyed = ['--base-url', 'http://10.0.0.1:8000/v1', '--model', 'a=b', '--key-env', 'VLLM_KEY']
  assert.equal((await sluice('init', file, '--force', ...keyed)).code, 0)
  assert.match(readFileSync(file, 'utf8'), /local: .*VLLM_KEY/)
  for (const wrong of [
    ['--base-url', url],
    ['--base-url', 'ftp://x', '--model', 'a=b'],
    ['--base-url', 'https://openrouter.ai/api/v1', '--model', 'a=b'],
    ['--base-url', url, '--model', 'a=b', '--context', 'many'],
    ['--base-url', url, '--model', 'a=b', '--key-env', 'not a name'],
    ['--key-env', 'X'],
  ])
    assert.equal((await sluice('init', file, '--force', ...wrong)).code, 2, wrong.join(' '))
})

test('init takes windows and prices from the catalogue, and the operator’s own words win', async t => {
  environment(t, { OPENAI_API_KEY: 'x', ANTHROPIC_API_KEY: 'x' })
  const file = empty(t)
  const written = async (...args: string[]) => {
    const { code, err } = await sluice('init', file, '--force', ...args)
    assert.equal(code, 0, err)
    const text = readFileSync(file, 'utf8')
    return { err, text, yaml: parse(text) }
  }
  const opus = ['--provider', 'anthropic', '--model', 'big=claude-opus-4-5']
  const filled = await written(...opus)
  const { price, context_window } = filled.yaml.models.big
  assert.deepEqual([price, context_window], [{ input: 5, output: 25 }, 200_000])
  assert.match(filled.text, /context_window: 200000\n/)
  assert.match(filled.text, /output: 25 } # @pydantic\/genai-prices \d/)
  assert.match(filled.text, /^price_book: "\d{4}-\d\d-\d\d" # .* @pydantic\/genai-prices \d/m)
  assert.equal((await sluice('check', file)).code, 0)

  const own = await written(...opus, '--price', '7,8', '--context', '9000', '--max-output', '1000')
  assert.deepEqual(own.yaml.models.big.price, { input: 7, output: 8 })
  assert.deepEqual([own.yaml.models.big.context_window, own.yaml.models.big.max_output_tokens], [9000, 1000])
  assert.equal(own.yaml.price_book, '1')
  assert.doesNotMatch(own.text, /genai-prices/)

  // The region is part of the address by which the catalogue finds the provider.
  const aws = ['--provider', 'bedrock', '--set', 'region=eu-west-1', '--model', 'm=amazon.nova-pro-v1:0']
  assert.ok((await written(...aws)).yaml.models.m.price.input > 0)
  // What the catalogue says of gpt-5 includes its output: 400,000.
  const usual = await written('--provider', 'openai')
  assert.equal(usual.yaml.models['gpt-5'].context_window, 272_000)
  assert.match(usual.text, /price: { input: 1\.25, output: 10 } # @pydantic/)
  // One price for all lengths is all that a model of the file can have.
  const tiers = await written('--provider', 'gemini', '--model', 'g=gemini-2.5-pro')
  assert.match(tiers.err, /gemini-2\.5-pro: the provider charges more above 200000 tokens/)

  const unknown = ['--provider', 'groq', '--model', 'a=home-made']
  const refused = await sluice('init', file, '--force', ...unknown)
  assert.equal(refused.code, 2)
  assert.match(refused.err, /needs --price: .*, and @pydantic\/genai-prices \S+ does not have it/)
  assert.match((await written(...unknown, '--price', '1,2')).text, /context_window: 32768 # a guess/)
  // The catalogue has this one's price, and no window.
  const half = await written('--provider', 'groq', '--model', 'fast=llama-3.3-70b-versatile')
  assert.deepEqual(half.yaml.models.fast.price, { input: 0.59, output: 0.79 })
  assert.match(half.text, /context_window: 32768 # a guess/)
  assert.equal((await sluice('init', file, '--force', '--provider', 'openai', '--context', '5')).code, 2)
  // A server of one's own costs nothing, whatever its model is called.
  const ollama = await written('--base-url', 'http://groq.example/v1', '--model', 'fast=llama-3.3-70b-versatile')
  assert.deepEqual(ollama.yaml.models.fast.price, { input: 0, output: 0 })
})

test('init without the catalogue, which is optional: it says so, and takes what Sluice or the operator knows', t => {
  const file = empty(t)
  const absent = `import { registerHooks } from 'node:module'
registerHooks({
  resolve(specifier, context, next) {
    if (specifier !== '@pydantic/genai-prices') return next(specifier, context)
    throw Object.assign(new Error('Cannot find package'), { code: 'ERR_MODULE_NOT_FOUND' })
  },
})`
  const init = (...args: string[]) =>
    spawnSync(
      process.execPath,
      [
        ...['--disable-warning=ExperimentalWarning', '--import', `data:text/javascript,${encodeURIComponent(absent)}`],
        ...[MAIN, 'init', file, ...args],
      ],
      { encoding: 'utf8', env: { ...process.env, OPENAI_API_KEY: 'x', GROQ_API_KEY: 'x' } },
    )
  const word = /catalogue of models is not installed.*npm install @pydantic\/genai-prices/
  const usual = init('--provider', 'openai')
  assert.equal(usual.status, 0, usual.stderr)
  assert.match(usual.stderr, word)
  const { models, price_book } = parse(readFileSync(file, 'utf8'))
  assert.deepEqual([models['gpt-5'].price, price_book], [{ input: 1.25, output: 10 }, '1'])

  const groq = ['--force', '--provider', 'groq', '--model', 'fast=llama-3.3-70b-versatile']
  const bare = init(...groq)
  assert.equal(bare.status, 2)
  assert.match(bare.stderr, word)
  assert.match(bare.stderr, /needs --price/)
  const said = init(...groq, '--price', '1,2', '--context', '131072', '--max-output', '32768')
  assert.deepEqual([said.status, said.stderr], [0, ''])
  const simulator = init('--force', '--provider', 'simulator')
  assert.deepEqual([simulator.status, simulator.stderr], [0, ''])
})

// It printed `npx sluice …` everywhere, and outside the checkout npx asks the registry for a package of that name.
test('init prints commands that work where it was called: outside the checkout, in it, and where it is installed', t => {
  const dir = join(empty(t), '..')
  const odd = join(dir, 'a folder')
  mkdirSync(odd)
  const env = { ...process.env, OPENAI_API_KEY: '', ANTHROPIC_API_KEY: '', GEMINI_API_KEY: '' }
  const made = spawnSync(process.execPath, [LAUNCHER, 'init', join(odd, 'my gateway.yaml')], {
    cwd: odd,
    env,
    encoding: 'utf8',
  })
  assert.equal(made.status, 0, made.stderr)
  const command = /^ {2}(.*) start --config (.*)$/m.exec(made.stdout)!
  assert.doesNotMatch(command[1]!, /npx/)
  const typed = spawnSync('sh', ['-c', `${command[1]} check ${command[2]}`], { cwd: odd, env, encoding: 'utf8' })
  assert.deepEqual([typed.status, typed.stderr], [0, ''])
  assert.match(typed.stdout, /is good/)

  assert.equal(ownCommand(join(LAUNCHER, '../..')), 'npx sluice')
  assert.equal(ownCommand(join(LAUNCHER, '../../docs')), 'npx sluice')
  mkdirSync(join(dir, 'node_modules/.bin'), { recursive: true })
  writeFileSync(join(dir, 'node_modules/.bin/sluice'), '')
  assert.equal(ownCommand(odd), 'npx sluice')
})

test('init refuses what it can’t do, and never overwrites unasked', async t => {
  environment(t, {})
  const file = empty(t)
  for (const args of [
    ['--provider', 'nobody'],
    ['--provider', 'openai', '--model', 'fast=gpt-x'],
    ['--provider', 'openai', '--provider', 'gemini', '--model', 'a=b', '--price', '1,2'],
    ['--model', 'a=b', '--price', 'cheap'],
  ]) {
    const { code } = await sluice('init', file, ...args)
    assert.deepEqual([code, existsSync(file)], [2, false], args.join(' '))
  }
  const bad = await sluice('init', file, '--store', 'mysql://nope')
  assert.deepEqual([bad.code, existsSync(file)], [1, false])
  assert.match(bad.err, /store/)
  writeFileSync(file, 'mine')
  assert.equal((await sluice('init', file)).code, 1)
  assert.equal(readFileSync(file, 'utf8'), 'mine')
  assert.equal((await sluice('init', file, '--force')).code, 0)
})

const script = findProgram(['script'])
describe('init on a terminal', { skip: script ? false : 'script (util-linux) is not installed' }, () => {
  /**
   * Types the answers, each when its question stands there, on a terminal that `script` makes.
   * @param answers question and answer; a remark has none
   */
  async function converse(
    file: string,
    answers: readonly (readonly [question: string, answer: string])[],
    args = '',
  ): Promise<{ code: number | null; said: string }> {
    const command = `${process.execPath} --disable-warning=ExperimentalWarning ${MAIN} init ${file} ${args}`
    const child = spawn(script!, ['-qefc', command, '/dev/null'], {
      env: { ...process.env, TERM: 'dumb', OPENAI_API_KEY: 'real-openai' },
      stdio: ['pipe', 'pipe', 'inherit'],
    })
    let said = ''
    let from = 0
    let next = 0
    child.stdout.setEncoding('utf8').on('data', text => {
      said += text
      for (; next < answers.length; next++) {
        const [question, answer] = answers[next]!
        const at = said.indexOf(question, from)
        // A prompt ends in a colon and a space.
        if (at === -1 || (answer !== '' && !said.includes(': ', at))) return
        from = at + question.length
        child.stdin.write(answer)
      }
    })
    const code = await new Promise<number | null>(resolve => child.on('close', resolve))
    assert.equal(next, answers.length, `asked all of it:\n${said}`)
    return { code, said }
  }

  test('it asks for providers, models, store and organization; Enter takes what it offers', async t => {
    environment(t, {})
    const file = empty(t)
    const { code, said } = await converse(file, [
      ['Providers, of openai, anthropic, gemini, simulator [openai]', '\r'],
      ['Models of openai [gpt-5]', '\r'],
      ['gpt-5 is exposed as [gpt-5]', 'smart\r'],
      ['USD per million tokens, input and output [1.25, 10]', '\r'],
      ['Store [sqlite:./data/gateway.db]', '\r'],
      ['Your organization [main]', '\r'],
    ])
    assert.equal(code, 0, said)
    const yaml = parse(readFileSync(file, 'utf8'))
    assert.deepEqual(yaml.models.smart.backends, [{ provider: 'openai', model: 'gpt-5' }])
    assert.deepEqual(Object.keys(yaml.organizations), ['main'])
    assert.match(said, /Your key, shown only this once:\s+sk-\S{40,}/)
    assert.equal((await sluice('check', '--strict', file)).code, 1, 'the provider’s key is not in this environment')
    environment(t, { OPENAI_API_KEY: 'x' })
    assert.equal((await sluice('check', '--strict', file)).code, 0)
  })

  test('a wrong answer is told and asked again; several models, each with its price', async t => {
    environment(t, {})
    const file = empty(t)
    const { code, said } = await converse(file, [
      ['Providers', 'openia\r'],
      ['there is no provider openia', ''],
      ['Providers', 'simulator, gemini\r'],
      ['Models of simulator', 'sim-large sim-small\r'],
      ['sim-large is exposed as', 'same\r'],
      ['sim-large: USD', 'cheap\r'],
      ['cheap is no price', ''],
      ['sim-large: USD', '1,2\r'],
      ['sim-small is exposed as', 'same\r'],
      ['same is taken', ''],
      ['sim-small is exposed as', 'small\r'],
      ['sim-small: USD per million tokens, input and output:', '0.5 4\r'],
      ['Models of gemini [gemini-2.5-flash]', '\r'],
      ['gemini-2.5-flash is exposed as', '\r'],
      ['gemini-2.5-flash: USD', '\r'],
      ['Store', 'mysql://x\r'],
      ['mysql://x is no store', ''],
      ['Store', 'redis://cache:6379\r'],
      ['Your organization', 'acme\r'],
    ])
    assert.equal(code, 0, said)
    assert.match(said, /GEMINI_API_KEY is not set/)
    const yaml = parse(readFileSync(file, 'utf8'))
    assert.deepEqual(Object.keys(yaml.models), ['same', 'small', 'gemini-2.5-flash'])
    assert.deepEqual(yaml.models.small.price, { input: 0.5, output: 4 })
    assert.deepEqual([yaml.store, Object.keys(yaml.organizations)], ['redis://cache:6379', ['acme']])
  })

  test('flags answer beforehand: only the rest is asked', async t => {
    environment(t, {})
    const file = empty(t)
    const { code, said } = await converse(
      file,
      [['Store', '\r']],
      '--provider simulator --model a=sim-large --organization acme',
    )
    assert.equal(code, 0, said)
    assert.doesNotMatch(said, /Providers|Models of|organization \[/)
    assert.deepEqual(Object.keys(parse(readFileSync(file, 'utf8')).models), ['a'])
  })

  for (const [name, key] of [
    ['Ctrl-C', '\x03'],
    ['Ctrl-D', '\x04'],
  ] as const) {
    test(`${name} leaves, without a file and without a stack`, async t => {
      const file = empty(t)
      const { code, said } = await converse(file, [['Providers', key]])
      assert.deepEqual([code, existsSync(file)], [1, false])
      assert.match(said, /nothing is written/)
      assert.doesNotMatch(said, /Abort|\bat\b.*:\d+/)
    })
  }
})

test('try: one streamed request per surface, with usage and cost; usage then sums the same', async t => {
  environment(t, {})
  const file = empty(t)
  const store = join(file, '../gateway.db')
  const secret = secretOf((await sluice('init', file, '--store', `sqlite:${store}`)).out)
  writeFileSync(
    file,
    readFileSync(file, 'utf8').replace('127.0.0.1:8080', '127.0.0.1:0').replace('127.0.0.1:9090', '127.0.0.1:0'),
  )
  const gateway = await buildGateway(file, { log: silent, watch: false })
  t.after(() => gateway.close())

  const ran = await sluice('try', '--config', file, '--url', gateway.address, '--key', secret)
  assert.deepEqual([ran.code, ran.err], [0, ''])
  for (const surface of ['responses', 'chat', 'messages'])
    assert.match(ran.out, new RegExp(`^${surface}  POST http`, 'm'))
  const usages = [...ran.out.matchAll(/usage {2}(\d+) tokens in(?: \(\d+ cached\))?, (\d+) out, (\d+\.\d+) USD/g)]
  assert.equal(usages.length, 3)
  assert.equal([...ran.out.matchAll(/^ {2}reply {2}\S/gm)].length, 3)
  assert.equal([...ran.out.matchAll(/^ {2}id {5}req_/gm)].length, 3)

  await gateway.store.ledger.flush()
  const rows = await gateway.store.ledger.query({})
  assert.equal(rows.length, 3)
  const nano = (text: string) => Math.round(Number(text) * 1e9)
  assert.deepEqual(
    usages.map(([, input, output, usd]) => [Number(input), Number(output), nano(usd!)]).sort(),
    rows.map(row => [row.input, row.output, row.cost]).sort(),
  )

  // In a process of its own: it writes to standard output, and reads beside the running gateway.
  const summed = spawnSync(
    process.execPath,
    ['--disable-warning=ExperimentalWarning', MAIN, 'usage', '--config', file, '--json', '--group-by', 'surface'],
    { encoding: 'utf8' },
  )
  assert.deepEqual([summed.status, summed.stderr], [0, ''])
  assert.match(summed.stdout, /responses/)
  // The file is taken as `check` takes it.
  const named = spawnSync(
    process.execPath,
    ['--disable-warning=ExperimentalWarning', MAIN, 'usage', file, '--json', '--group-by', 'surface'],
    { encoding: 'utf8' },
  )
  assert.equal(named.stdout, summed.stdout)
  const total = rows.reduce((sum, row) => sum + row.cost, 0)
  const costs = [...summed.stdout.matchAll(/"cost":\s*(\d+)/g)].map(match => Number(match[1]))
  assert.ok(costs.includes(total) || costs.reduce((a, b) => a + b, 0) === total, summed.stdout)
})

// Only the first model was asked, so that a wrong key of the second provider was not seen until a client met it.
test('try --all asks every model, and names the providers that it cannot reach', async t => {
  environment(t, {})
  const simulator = await startSimulator({ port: 0, apiKey: 'right' })
  t.after(() => simulator.close())
  const yaml = (second: string) =>
    YAML.replace(
      'base_url: simulator }',
      `base_url: simulator }
  second: { dialect: openai-chat, base_url: "${simulator.url}", api_key: ${second} }
  third: { dialect: openai-chat, base_url: simulator }`,
    ).replace(
      'models:\n  eb1',
      `models:
  plain: { context_window: 4000, max_output_tokens: 50, price: { input: 1, output: 2 }, backends: [{ provider: local, model: m }, { provider: third, model: m }] }
  unlisted: { listed: false, context_window: 4000, price: { input: 1, output: 2 }, backends: [{ provider: third, model: m }] }
  more: { context_window: 4000, price: { input: 1, output: 2 }, backends: [{ provider: second, model: m }] }
  eb1`,
    )
  const { file } = folder(t, yaml('wrong'))
  const gateway = await buildGateway(file, { log: silent, watch: false })
  t.after(() => gateway.close())
  const all = () => sluice('try', '--config', file, '--url', gateway.address, '--all')
  const wrong = await all()
  assert.equal(wrong.code, 1)
  const tried = [...wrong.out.matchAll(/POST \S+ {2}(\S+)$/gm)].map(match => match[1])
  assert.deepEqual(tried, ['plain', 'more', 'eb1-preview'])
  assert.match(wrong.err, /failed: 502 upstream_auth_error/)
  assert.match(wrong.err, /^Not tried, .*: third\.$/m)

  writeFileSync(file, yaml('right'))
  assert.equal((await gateway.reload()).applied, true)
  const right = await all()
  assert.equal(right.code, 0, right.err)
  assert.equal((await sluice('try', '--config', file, '--all', '--model', 'plain')).code, 2)
})

test('try says what went wrong', async t => {
  environment(t, {})
  const { file } = folder(t)
  const gateway = await buildGateway(file, { log: silent, watch: false })
  t.after(() => gateway.close())
  const denied = await sluice('try', '--config', file, '--url', gateway.address, '--key', 'sk-wrong')
  assert.equal(denied.code, 1)
  assert.match(denied.err, /failed: 401 invalid_api_key: .*req_/)
  const demo = await sluice('try', '--config', file, '--url', gateway.address)
  assert.equal(demo.code, 0)
  const gone = await sluice('try', '--config', file, '--url', 'http://127.0.0.1:1', '--timeout', '5')
  assert.equal(gone.code, 1)
  assert.match(gone.err, /is the gateway running\?/)
  assert.equal((await sluice('try', '--config', file, '--model', 'nope')).code, 1)
  writeFileSync(file, YAML.replace(/f77894[0-9a-f]+/, 'a'.repeat(64)))
  const keyless = await sluice('try', '--config', file)
  assert.match(keyless.err, /no key: give --key/)
})
