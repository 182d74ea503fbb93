/** Every command, YAML block, link and script of the README and docs/ is run, or checked against what it names. */
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { existsSync, globSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { describe, test } from 'node:test'
import { promisify } from 'node:util'
import { parse, stringify } from 'yaml'
import { buildGateway, load } from '../../cli/gateway.ts'
import { silent } from '../../cli/log.ts'
import { main, VERBS } from '../../cli/main.ts'
import { formatError } from '../../core/config/load.ts'
import { SECTION_ORDER } from '../../core/config/schema.ts'
import { cost, exposure } from '../../core/money.ts'

const ROOT = join(import.meta.dirname, '../..')
const FILES = ['README.md', 'CONTRIBUTING.md', ...globSync('docs/*.md', { cwd: ROOT }).sort()]
const QUICKSTART = readFileSync(join(ROOT, 'gateway.yaml'), 'utf8')
const SCRIPTS = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')).scripts

interface Block {
  at: string
  language: string
  text: string
}

const pages = FILES.map(file => {
  const text = readFileSync(join(ROOT, file), 'utf8')
  const blocks: Block[] = [...text.matchAll(/^```(\w*)\n([\s\S]*?)^```$/gm)].map(found => ({
    at: `${file}:${text.slice(0, found.index).split('\n').length}`,
    language: found[1]!,
    text: found[2]!,
  }))
  return { file, text, blocks }
})
const blocks = (language: string) => pages.flatMap(page => page.blocks).filter(block => block.language === language)

/** Each shell command, continued lines joined, comments and the prompt's `$` gone. */
const commands = blocks('sh').flatMap(({ at, text }) =>
  text
    .replace(/\\\n\s*/g, ' ')
    .split('\n')
    .map(line => ({
      at,
      command: line
        .replace(/ +#.*$/, '')
        .replace(/^\$ /, '')
        .trim(),
    }))
    .filter(({ command }) => command !== '' && !command.startsWith('#')),
)

/** Plugin files that a page tells the reader to write; test/e2e/plugins.test.ts runs those pages. */
const OWN_PLUGINS = /plugins: \[\.\/|my-plugins\//

describe('YAML', () => {
  for (const { at, text } of blocks('yaml')) {
    if (OWN_PLUGINS.test(text)) continue
    test(`${at} loads`, async t => {
      const dir = mkdtempSync(join(tmpdir(), 'sluice-docs-'))
      t.after(() => rmSync(dir, { recursive: true, force: true }))
      const snippet = parse(text)
      for (const name of Object.keys(snippet)) assert.ok(SECTION_ORDER.includes(name), `${name} is no section`)
      let whole = text
      if (!('version' in snippet)) {
        // A snippet stands for its sections; names of pipelines, providers and models join those of the quickstart.
        const base = parse(QUICKSTART)
        for (const [name, section] of Object.entries<any>(snippet)) {
          const mapping = typeof section === 'object' && section !== null && !Array.isArray(section)
          base[name] = mapping && typeof base[name] === 'object' ? { ...base[name], ...section } : section
        }
        whole = stringify(base)
      }
      const file = join(dir, 'gateway.yaml')
      writeFileSync(file, whole)
      assert.deepEqual((await load(file, { env: {} })).errors?.map(formatError) ?? [], [])
    })
  }
})

test('every curl command is answered well by the quickstart’s gateway', async t => {
  const dir = mkdtempSync(join(tmpdir(), 'sluice-docs-'))
  t.after(() => rmSync(dir, { recursive: true, force: true }))
  const file = join(dir, 'gateway.yaml')
  writeFileSync(file, QUICKSTART.replace('sqlite:./data/gateway.db', '"sqlite::memory:"'))
  const gateway = await buildGateway(file, { log: silent, watch: false, listen: { port: 0 }, admin: { port: 0 } })
  t.after(() => gateway.close())
  const curls = commands.filter(({ command }) => command.startsWith('curl ') && command.includes('127.0.0.1:'))
  assert.ok(curls.length >= 4)
  for (const { at, command } of curls) {
    const here = command
      .replaceAll('http://127.0.0.1:8080', gateway.address)
      .replaceAll('http://127.0.0.1:9090', gateway.adminAddress!)
    const { stdout } = await promisify(execFile)('bash', ['-c', `${here} -sS --fail-with-body --max-time 10`])
    assert.ok(stdout.length > 0, at)
    assert.ok(!/"error":\s*\{/.test(stdout), `${at}: ${stdout}`)
  }
})

test('every sluice command names a verb and options that there are', async () => {
  const help = new Map<string, string>()
  for (const name of Object.keys(VERBS)) help.set(name, await helpOf(name))
  let checked = 0
  for (const { at, command } of commands) {
    const call = /(?:^|\s)(?:npx )?sluice (?!--)([a-z]+)(.*)$/.exec(command)
    if (!call || /^(docker|curl|\/\/)/.test(command)) continue
    const [, verb, rest] = call as unknown as [string, string, string]
    assert.ok(help.has(verb), `${at}: no verb ${verb}`)
    for (const [option] of rest.matchAll(/--[a-z][a-z-]*/g))
      assert.ok(help.get(verb)!.includes(option), `${at}: sluice ${verb} has no ${option}`)
    checked++
  }
  assert.ok(checked >= 8, String(checked))
})

async function helpOf(verb: string): Promise<string> {
  const said: string[] = []
  const entry = await VERBS[verb]!.load()
  if (entry.help !== undefined) {
    await main([verb, '--help'], { out: text => said.push(text), err: text => said.push(text), columns: undefined })
    return said.join('\n')
  }
  const { stdout } = await promisify(execFile)(process.execPath, [
    '--disable-warning=ExperimentalWarning',
    join(ROOT, 'cli/main.ts'),
    verb,
    '--help',
  ])
  return stdout
}

test('every npm script and every file that a command runs is there', () => {
  for (const { at, command } of commands) {
    for (const [, script] of command.matchAll(/npm run ([\w:-]+)/g)) assert.ok(SCRIPTS[script!], `${at}: ${script}`)
    for (const [, file] of command.matchAll(/(?:--run|node) ((?:[\w-]+\/)+[\w.-]+\.m?[jt]s)/g))
      assert.ok(existsSync(join(ROOT, file!)), `${at}: ${file}`)
  }
})

test('every link within the project leads somewhere', () => {
  for (const { file, text } of pages) {
    for (const [, target] of text.matchAll(/\]\(([^)\s]+)\)/g)) {
      if (/^[a-z]+:/.test(target!)) continue
      const [path, anchor] = target!.split('#') as [string, string?]
      const full = path === '' ? join(ROOT, file) : join(ROOT, dirname(file), path)
      assert.ok(existsSync(full), `${file}: ${target}`)
      if (anchor === undefined || !full.endsWith('.md')) continue
      const headings = [...readFileSync(full, 'utf8').matchAll(/^#+ (.*)$/gm)].map(([, heading]) =>
        heading!
          .toLowerCase()
          .replace(/[^\w\s-]/g, '')
          .replace(/ /g, '-'),
      )
      assert.ok(headings.includes(anchor), `${file}: ${target}`)
    }
  }
})

test('every page of docs/ can be reached from the README', () => {
  const reached = new Set(['README.md'])
  const next = ['README.md']
  for (let file = next.pop(); file !== undefined; file = next.pop()) {
    for (const [, target] of readFileSync(join(ROOT, file), 'utf8').matchAll(/\]\(([^)\s#]+\.md)[^)]*\)/g)) {
      const path = join(dirname(file), target!)
      if (/^[a-z]+:/.test(target!) || reached.has(path) || !existsSync(join(ROOT, path))) continue
      reached.add(path)
      next.push(path)
    }
  }
  assert.deepEqual(
    FILES.filter(file => !reached.has(file)),
    [],
  )
})

test('TypeScript in clients.md is accepted by the packages it names', async t => {
  // Run as it stands, against a gateway at the address it names instead.
  const file = join(mkdtempSync(join(ROOT, 'node_modules/.docs-')), 'gateway.yaml')
  const dir = dirname(file)
  t.after(() => rmSync(dir, { recursive: true, force: true }))
  writeFileSync(file, QUICKSTART.replace('sqlite:./data/gateway.db', '"sqlite::memory:"'))
  const gateway = await buildGateway(file, { log: silent, watch: false, listen: { port: 0 }, admin: { port: 0 } })
  t.after(() => gateway.close())
  const programs = blocks('ts').filter(({ at }) => at.startsWith('docs/clients.md'))
  assert.equal(programs.length, 3)
  await Promise.all(
    programs.map(async ({ at, text }, i) => {
      const script = join(dir, `client-${i}.mjs`)
      writeFileSync(script, text.replaceAll('http://127.0.0.1:8080', gateway.address))
      const { stdout } = await promisify(execFile)(process.execPath, [script], { timeout: 15_000 })
      assert.ok(stdout.trim().length > 0, at)
    }),
  )
})

test('the amounts worked out in limits.md are what the gateway computes', () => {
  const text = readFileSync(join(ROOT, 'docs/limits.md'), 'utf8')
  const price = { input: 1_250_000, output: 10_000_000 }
  const shown = (nano: number) => String(nano / 1e9)
  assert.ok(text.includes(`**${shown(cost({ input: 10_000, cached: 4_000, output: 800 }, price))}**`))
  assert.ok(text.includes(`= ${shown(exposure(2_000, 1_000, price))}: refused`))
  assert.ok(text.includes(`it can cost ${shown(exposure(2_000, 500, price))}: admitted`))
  const [budget, capped, uncapped] = [100_000, 2_000 + 1_000, 2_000 + 4_096]
  assert.ok(text.includes(`${Math.floor(budget / capped)} are admitted at once`))
  assert.ok(text.includes(`${Math.floor(budget / uncapped)} are admitted (`))
  assert.ok(text.includes(`after ${((capped - (budget % capped)) / (budget / 60)).toFixed(1)} s`))
})
