/**
 * The programs and settings of clients in docs/: run as they stand against a gateway at the address they name, where
 * their language and packages are here; Python and TOML are read by Python itself, and what they set is tried.
 */
import assert from 'node:assert/strict'
import { execFile, spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, describe, test } from 'node:test'
import { promisify } from 'node:util'
import { buildGateway, type Gateway } from '../../cli/gateway.ts'
import { silent } from '../../cli/log.ts'
import { findProgram } from '../ensure-deps.ts'
import { RedisServer, skipWithoutRedis } from '../stores/redis-server.ts'
import { type Block, blocksOf, QUICKSTART, ROOT } from './pages.ts'

const run = promisify(execFile)
const ADDRESS = 'http://127.0.0.1:8080'
/** Within the project, so that programs find its packages. */
const folder = mkdtempSync(join(ROOT, 'node_modules/.docs-'))

async function serve(store: string): Promise<Gateway> {
  const file = join(folder, `${store.replace(/\W/g, '')}.yaml`)
  writeFileSync(file, QUICKSTART.replace('sqlite:./data/gateway.db', JSON.stringify(store)))
  return buildGateway(file, { log: silent, watch: false, listen: { port: 0 }, admin: false })
}

const gateway = await serve('sqlite::memory:')
after(async () => {
  await gateway.close()
  rmSync(folder, { recursive: true, force: true })
})

/** Answers of the gateway to what settings say. */
async function answers(url: string, key: string, body: object): Promise<void> {
  const response = await fetch(url.replace(ADDRESS, gateway.address), {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${key}` },
    body: JSON.stringify(body),
  })
  assert.equal(response.status, 200, `${url}: ${await response.text()}`)
}

describe('TypeScript', () => {
  const programs = blocksOf('ts').filter(({ at }) => at.startsWith('docs/clients.md'))
  for (const [i, { at, text }] of programs.entries()) {
    test(`${at} runs`, async () => {
      const script = join(folder, `client-${i}.mjs`)
      writeFileSync(script, text.replaceAll(ADDRESS, gateway.address))
      const { stdout } = await run(process.execPath, [script], { timeout: 60_000 })
      assert.ok(stdout.trim().length > 0, at)
    })
  }
  test('one for each package', () => assert.equal(programs.length, 3))
})

test('docs/ledger.md: the consumer of the Redis ledger reads every row once, also after a crash', {
  skip: skipWithoutRedis,
}, async t => {
  const redis = await RedisServer.start()
  t.after(() => redis.stop())
  const shared = await serve(redis.url)
  t.after(() => shared.close())
  const ask = async () => {
    const response = await fetch(`${shared.address}/v1/responses`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: 'Bearer sk-demo' },
      body: JSON.stringify({ model: 'eb1-preview', input: 'Hello' }),
    })
    assert.equal(response.status, 200)
    await response.text()
  }
  for (let i = 0; i < 3; i++) await ask()
  await shared.store.ledger.flush()
  const [block, ...others] = blocksOf('js').filter(({ at }) => at.startsWith('docs/ledger.md'))
  assert.deepEqual(others, [])
  const script = join(folder, 'consumer.mjs')
  /** Books until `book` has been called so often, and ends before the last is acknowledged. */
  const consume = async (count: number) => {
    const book = `const booked = []
async function book(row) {
  booked.push([row.request_id, row.organization, Number(row.cost) > 0])
  if (booked.length < ${count}) return
  console.log(JSON.stringify(booked))
  process.exit()
}
`
    writeFileSync(
      script,
      block!.text.replace('redis://localhost', redis.url).replace('const redis', `${book}const redis`),
    )
    const { stdout } = await run(process.execPath, [script], { timeout: 60_000 })
    return JSON.parse(stdout) as [string, string, boolean][]
  }
  const before = await consume(2)
  // The second was not acknowledged: it comes again, and then the third.
  const after = await consume(2)
  assert.equal(after[0]![0], before[1]![0])
  assert.equal(new Set([...before, ...after].map(([id]) => id)).size, 3)
  assert.ok([...before, ...after].every(([, organization, costs]) => organization === 'demo' && costs))
})

/** Why Python can't help here, or false. tomllib is there from 3.11 on. */
const skip = ((): string | false => {
  const python = findProgram(['python3'])
  if (python === undefined) return 'python3 is not installed: apt-get install -y python3'
  const { status } = spawnSync(python, ['-c', 'import tomllib'])
  return status === 0 ? false : 'python3 is older than 3.11 and has no tomllib'
})()

/** Runs a program with text on its standard input. @returns what it printed, as JSON */
async function python(program: string, input: string): Promise<any> {
  const running = run('python3', ['-c', program])
  running.child.stdin!.end(input)
  return JSON.parse((await running).stdout)
}

/** Keywords with plain values of every call, and the modules that are imported. */
const READ_PYTHON = `
import ast, importlib.util, json, sys
tree = ast.parse(sys.stdin.read())
keywords = {}
for node in ast.walk(tree):
    if isinstance(node, ast.Call):
        for word in node.keywords:
            if isinstance(word.value, ast.Constant):
                keywords[word.arg] = word.value.value
modules = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
print(json.dumps({'keywords': keywords, 'modules': modules, 'installed': all(importlib.util.find_spec(m.split('.')[0]) for m in modules)}))
`

describe('Python', { skip }, () => {
  const programs = blocksOf('python')
  /** Where each package's client sends its requests, below its base URL. */
  const paths: Record<string, [string, string]> = {
    openai: ['/responses', 'input'],
    anthropic: ['/v1/messages', 'messages'],
    langchain_openai: ['/chat/completions', 'messages'],
    langchain_anthropic: ['/v1/messages', 'messages'],
    litellm: ['/chat/completions', 'messages'],
    pydantic_ai: ['/chat/completions', 'messages'],
    agents: ['/responses', 'input'],
    'llama_index.llms.openai_like': ['/chat/completions', 'messages'],
  }
  const used = new Set<string>()

  for (const { at, text } of programs as Block[]) {
    test(`${at} is Python, and what it sets is answered`, async t => {
      const { keywords, modules, installed } = await python(READ_PYTHON, text)
      const [module] = modules
      used.add(module)
      assert.ok(paths[module], `${at}: ${module}`)
      const [path, member] = paths[module]!
      const key = keywords.api_key ?? keywords.auth_token
      await answers((keywords.base_url ?? keywords.api_base) + path, key, {
        // Some name the model without a keyword, and LiteLLM names the API before it.
        model: keywords.model?.replace('openai/', '') ?? 'eb1-preview',
        ...(path === '/v1/messages' && { max_tokens: keywords.max_tokens ?? 100 }),
        [member]: member === 'input' ? 'Hello' : [{ role: 'user', content: 'Hello' }],
      })
      if (!installed) return t.diagnostic(`${modules} not installed: read, not run`)
      const script = join(folder, 'client.py')
      writeFileSync(script, text.replaceAll(ADDRESS, gateway.address))
      const { stdout } = await run('python3', [script], { timeout: 60_000 })
      assert.ok(stdout.trim().length > 0, at)
    })
  }
  test('one for each package', () => assert.deepEqual([...used].sort(), Object.keys(paths).sort()))
})

describe('TOML', { skip }, () => {
  const READ_TOML = 'import json, sys, tomllib; print(json.dumps(tomllib.loads(sys.stdin.read())))'
  for (const { at, text } of blocksOf('toml')) {
    test(`${at}: Codex finds its provider, and the gateway answers there`, async () => {
      const settings = await python(READ_TOML, text)
      const provider = settings.model_providers[settings.model_provider]
      assert.equal(provider.wire_api, 'responses')
      assert.match(provider.env_key, /^[A-Z_]+$/)
      await answers(`${provider.base_url}/responses`, 'sk-demo', { model: settings.model, input: 'Hello' })
    })
  }
})
