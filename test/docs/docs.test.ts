/**
 * Every YAML block of the README and docs/ loads; commands, links and scripts name what is there; worked figures are
 * right.
 */
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { describe, test } from 'node:test'
import { promisify } from 'node:util'
import { parse, stringify } from 'yaml'
import { load } from '../../cli/load.ts'
import { main, VERBS } from '../../cli/main.ts'
import { formatError } from '../../config/load.ts'
import { SECTION_ORDER } from '../../config/schema.ts'
import { parseConfig } from '../../console/config.ts'
import { cost, exposure } from '../../core/canon/money.ts'
import { blocksOf, commandsOf, FILES, pages, QUICKSTART, ROOT } from './pages.ts'

const SCRIPTS = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')).scripts

const commands = pages.flatMap(page =>
  page.blocks.flatMap(block => commandsOf(block).map(command => ({ at: block.at, command }))),
)

/** Plugin files that a page tells the reader to write; test/e2e/plugins.test.ts runs those pages. */
const OWN_PLUGINS = /plugins: \[\.\/|my-plugins\//

/** Variables of console.yaml whose form is checked. */
const VARIABLES: Record<string, string> = {
  STRIPE_KEY: 'rk_live_1',
  STRIPE_WEBHOOK_SECRET: 'whsec_1',
  BANK_SECRET: 'sixteen-and-more',
}

describe('YAML', () => {
  for (const { at, text } of blocksOf('yaml')) {
    if (OWN_PLUGINS.test(text)) continue
    if (text.startsWith('# console.yaml\n')) {
      test(`${at} loads`, () => {
        const env = new Proxy({}, { get: (_, name: string) => VARIABLES[name] ?? 'x' })
        assert.doesNotThrow(() => parseConfig(text, 'console.yaml', env))
      })
      continue
    }
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
      assert.deepEqual(
        (await load(file, { env: { SLUICE_ADMIN_TOKEN: 'a-token-0001' } })).errors?.map(formatError) ?? [],
        [],
      )
    })
  }
})

test('every block is of a kind that a test runs or checks', () => {
  // sh and console: commands.long.test.ts; yaml: here; ts, js, python, toml: code.test.ts, and test/e2e for the
  // plugins' pages; sql: test/stores/ship-postgres.long.test.ts. text is what a program prints, or a setting of something
  // else.
  const kinds = new Set(['sh', 'console', 'yaml', 'ts', 'js', 'python', 'toml', 'sql', 'text'])
  for (const { blocks } of pages) for (const { at, language } of blocks) assert.ok(kinds.has(language), at)
  for (const { file, text } of pages)
    assert.doesNotMatch(text, /^ {4}(?:[$] |npm |npx |curl )/m, `${file}: fence commands`)
})

test('every sluice command, those within a sentence too, names a verb and options that there are', async () => {
  const help = new Map<string, string>()
  for (const name of Object.keys(VERBS)) help.set(name, await helpOf(name))
  const quoted = pages.flatMap(({ file, text }) =>
    [...text.replace(/^```[\s\S]*?^```$/gm, '').matchAll(/`((?:npx )?sluice [^`]+)`/g)].map(found => ({
      at: file,
      command: found[1]!,
    })),
  )
  // A runbook's are for a service that is ill, and are not run.
  const runbooks = pages
    .find(({ file }) => file === 'docs/runbooks.md')!
    .blocks.flatMap(({ at, text }) => text.split('\n').map(command => ({ at, command })))
  let checked = 0
  for (const { at, command } of [...commands, ...quoted, ...runbooks]) {
    const call = /^(?:npx )?(?:sluice|node bin\/sluice\.mjs) (?!-)(\S+)(.*)$/s.exec(command)
    if (!call) continue
    const [, verb, rest] = call as unknown as [string, string, string]
    if (verb === 'VERB') continue
    assert.ok(help.has(verb), `${at}: no verb ${verb}`)
    for (const [option] of rest.matchAll(/(?<= )--[a-z][a-z-]*/g))
      assert.ok(option === '--help' || help.get(verb)!.includes(option), `${at}: sluice ${verb} has no ${option}`)
    checked++
  }
  assert.ok(checked >= 20, String(checked))
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

test('prose has at most 120 columns: tables and code may have more', () => {
  const long = pages
    .filter(({ file }) => !file.startsWith('docs/spec/'))
    .flatMap(({ file, text }) =>
      text
        // As many lines as before, so that the number of a line stays.
        .replace(/^```[\s\S]*?^```$/gm, block => block.replace(/[^\n]/g, ''))
        .split('\n')
        .flatMap((line, i) => (line.length > 120 && !line.startsWith('|') ? [`${file}:${i + 1}`] : [])),
    )
  assert.deepEqual(long, [])
})

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

test('each row of the comparison names a source, or says that it was not tried; each source is used, and it has a last day', () => {
  const { text } = pages.find(({ file }) => file === 'docs/comparison.md')!
  const [body, sources] = text.split('\n## Sources\n') as [string, string]
  const known = [...sources.matchAll(/^\| ([A-Z]\d+) \|/gm)].map(found => found[1]!)
  assert.equal(new Set(known).size, known.length)
  const named = new Set([...body.matchAll(/\b[A-Z]\d{1,2}\b/g)].map(found => found[0]).filter(name => name !== 'A2A'))
  assert.deepEqual([...named].filter(name => !known.includes(name)).sort(), [])
  assert.deepEqual(known.filter(name => !named.has(name)).sort(), [])
  const rows = body.split('\n').filter(line => /^\| [A-Z]?[a-z]/.test(line) && !line.startsWith('| Sluice |'))
  assert.ok(rows.length >= 60, String(rows.length))
  const bare = rows.filter(row => !/\b[A-Z]\d{1,2}\b|not tried|measured/.test(row.replaceAll('A2A', '')))
  assert.deepEqual(bare, [])
  // `release:check` refuses a release after that day; no test does, since it would fail by the calendar alone.
  assert.match(body, /^Read on \d+ \w+ 20\d\d\..*\*\*After \d+ \w+ 20\d\d this page\sis old\*\*/ms)
})

test('the amounts worked out in billing.md and limits.md are what the gateway computes', () => {
  const text = ['billing', 'limits'].map(page => readFileSync(join(ROOT, `docs/${page}.md`), 'utf8')).join('')
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
