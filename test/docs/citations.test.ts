/**
 * Rules have ids (`AUTH-2`, `decision 30`, `wire.md B.4`, `R7`), and code, tests and pages cite them. Here every
 * citation in git is looked up in docs/spec, every row of the contract has to have its test, and text for operators and
 * clients must do without ids.
 */
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { describe, test } from 'node:test'
import { generated } from '../../docs/generate/index.ts'
import { ROOT } from './pages.ts'

const text = (file: string): string => readFileSync(join(ROOT, file), 'utf8')

/** First groups of all matches, each of which is there once. */
function found(file: string, pattern: RegExp): Set<string> {
  const ids = Array.from(text(file).matchAll(pattern), match => match[1]!)
  assert.deepEqual(
    ids.filter((id, i) => ids.indexOf(id) !== i),
    [],
    `${file} has these ids twice`,
  )
  assert.ok(ids.length > 0, `${file} has no ids of the form ${pattern}`)
  return new Set(ids)
}

// ---- what there is to cite ------------------------------------------------------------------------------------------

/** `AUTH-2`: the first cell of a row. */
const ROWS = found('docs/spec/contract.md', /^\| ([A-Z]+-\d+) \|/gm)
const PREFIXES = new Set(Array.from(ROWS, id => id.replace(/-.*/, '')))
/** `30` */
const DECISIONS = found('docs/spec/decisions.md', /^- \*\*(\d+)\. /gm)
/** `B.4` of a heading, `B` of a chapter, `G 16` of a numbered case, `0.2 rule 7` of a row in a table of rules. */
const SECTIONS = new Set([
  ...found('docs/spec/wire.md', /^## ([A-Z0])\. /gm),
  ...found('docs/spec/wire.md', /^### ([A-Z0]\.\d+) /gm),
  ...chapter('## G. ', /^(\d+)\. /gm).map(number => `G ${number}`),
  ...chapter('### 0.2 ', /^\| (\d+) \|/gm).map(number => `0.2 rule ${number}`),
])
/** `R7` */
const LISTENER_RULES = found('docs/spec/listener.md', /^\| (R\d+) \|/gm)

/** Numbers below one heading of wire.md. */
function chapter(heading: string, pattern: RegExp): string[] {
  const [, rest] = text('docs/spec/wire.md').split(`\n${heading}`)
  return Array.from(rest!.split(/\n##+ /)[0]!.matchAll(pattern), match => match[1]!)
}

/** Names from elsewhere that look like an id of the contract. */
const FOREIGN = new Set([
  'AES',
  'AIP',
  'BSD',
  'CVE',
  'FNV',
  'GPL',
  'GPT',
  'HTTP',
  'ISO',
  'MIT',
  'MPL',
  'PDF',
  'SHA',
  'SSH',
  'UTF',
])

// ---- where it is cited ----------------------------------------------------------------------------------------------

/** Recordings and fixtures are somebody's bytes; the licence and the lockfile are not ours to word. */
const NOT_OURS =
  /^(?:test\/golden\/recorded\/|test\/providers\/golden\/|LICENSE$|package-lock\.json$)|\/fixtures\/|\.(?:bin|png)$/
const TRACKED: readonly string[] = execFileSync('git', ['ls-files', '-z'], { cwd: ROOT, encoding: 'utf8' })
  .split('\0')
  .filter(file => file !== '' && existsSync(join(ROOT, file)))
const FILES = TRACKED.filter(file => !NOT_OURS.test(file))
const PAGES = new Set(TRACKED.filter(file => file.endsWith('.md')).map(file => basename(file)))

/** Between a word and its number; a comment may break the line there. */
const GAP = String.raw`(?: +|[ \t]*\n[ \t]*(?:\*|//|#)?[ \t]*)`
/** A list or range goes on. */
const MORE = `(?:,${GAP}|,? and${GAP}| to${GAP}|[–…])`

const CONTRACT = /(?<![\w.-])([A-Z]{2,})-(\d+)(?:(?:…|–)(\d+))?(?![\w-]|\.\d)/g
const DECISION = new RegExp(String.raw`\b[Dd]ecisions?${GAP}(\d+(?:${MORE}\d+)*)`, 'g')
const SECTION = String.raw`(?:0\.\d+(?: rule \d+)?|[A-Z]\.\d+|G ?\d+|[A-Z](?![\w.-]))`
const WIRE = new RegExp(String.raw`\bwire\.md${GAP}(${SECTION}(?:${MORE}(?:${SECTION}|\d+))*)`, 'g')
/** `(C.3)` beside a citation of the page. */
const BARE_WIRE = /\((?:as )?(0\.\d+ rule \d+|[A-H]\.\d+)\)/g
const LISTENER_RULE = /(?<![\w./-])R\d{1,2}(?![\w.-]*\w)/g
/** Any page, so that nobody is sent to one that is not here. */
const PAGE = /(?<![\w@:/.-])(?:[\w-]+\/|\.{1,2}\/)*[\w-]+\.md\b/g
/** Words for what lies outside of the repository. */
const ELSEWHERE =
  /\bservice-spec\b|(?:\.\.|work)\/shared\/(?:spec|findings|research|style|design)\b|\b[Ii]ssue \d+\b|\breliability R\d/g

interface Fault {
  at: string
  says: string
}

function faultsOf(file: string, content: string): Fault[] {
  const faults: Fault[] = []
  const fault = (index: number, says: string) =>
    faults.push({ at: `${file}:${content.slice(0, index).split('\n').length}`, says })

  for (const { index, 0: id, 1: prefix, 2: number, 3: last } of content.matchAll(CONTRACT)) {
    if (FOREIGN.has(prefix!)) continue
    if (!PREFIXES.has(prefix!))
      fault(
        index,
        `${id} has a prefix that docs/spec/contract.md does not: add its row there, or, when it is no id, its prefix to FOREIGN`,
      )
    else
      for (const n of between(number!, last ?? number!))
        if (!ROWS.has(`${prefix}-${n}`))
          fault(index, `docs/spec/contract.md has no row ${prefix}-${n}: correct the id, or add the row`)
  }
  for (const { index, 1: list } of content.matchAll(DECISION))
    for (const number of numbersOf(list!))
      if (!DECISIONS.has(String(number)))
        fault(index, `docs/spec/decisions.md has no ${number}: correct the number, or add the decision`)
  for (const { index, 1: list } of content.matchAll(WIRE))
    for (const section of sectionsOf(list!))
      if (!SECTIONS.has(section)) fault(index, `docs/spec/wire.md has no ${section}: correct it, or add the section`)
  for (const { index, 1: section } of content.matchAll(BARE_WIRE))
    if (!SECTIONS.has(section!)) fault(index, `docs/spec/wire.md has no ${section}: correct it, or add the section`)
  for (const { index, 0: rule } of content.matchAll(LISTENER_RULE))
    if (!LISTENER_RULES.has(rule)) fault(index, `docs/spec/listener.md has no ${rule}: correct it, or add the rule`)
  for (const { index, 0: page } of content.matchAll(PAGE))
    if (!PAGES.has(basename(page))) fault(index, `no page ${page} is in git: say here what it says`)
  for (const { index, 0: words } of content.matchAll(ELSEWHERE))
    fault(index, `${words} is not in the repository: say here what it says`)
  return faults
}

function between(first: string, last: string): number[] {
  const [from, to] = [Number(first), Number(last)]
  return Array.from({ length: Math.max(1, to - from + 1) }, (_, i) => from + i)
}

/** `18, 19` and `21–24`. */
function numbersOf(list: string): number[] {
  return Array.from(list.matchAll(/(\d+)(?:\s*(?:–|…|to)\s*(\d+))?/g), ([, a, b]) => between(a!, b ?? a!)).flat()
}

/** `A.4, B.3–B.5`, `G 9 to 17`. */
function sectionsOf(list: string): string[] {
  const sections: string[] = []
  let cases = false
  for (const [, range, word] of list.matchAll(
    new RegExp(String.raw`(–|…|to )?[\s*/#]*(${SECTION}|\d+)(?=$|[\s,.;:)–…])`, 'g'),
  )) {
    const number = /^(?:G ?)?(\d+)$/.exec(word!)?.[1]
    cases = word!.startsWith('G') || (cases && number !== undefined)
    const section = cases && number !== undefined ? `G ${number}` : word!
    if (range !== undefined) sections.push(...inside(sections.at(-1)!, section))
    sections.push(section)
  }
  return sections
}

/** What stands between the ends of a range of one chapter. */
function inside(first: string, last: string): string[] {
  const [, chapter, from] = /^(.*?)(\d+)$/.exec(first) ?? []
  const [, other, to] = /^(.*?)(\d+)$/.exec(last) ?? []
  if (chapter === undefined || chapter !== other) return []
  return between(String(Number(from) + 1), String(Number(to) - 1))
    .filter(n => n < Number(to))
    .map(n => chapter + n)
}

const said = (faults: readonly Fault[]): string[] => faults.map(({ at, says }) => `${at}  ${says}`)

test('every id that is cited is in docs/spec, and every page in git', () => {
  assert.deepEqual(said(FILES.flatMap(file => faultsOf(file, text(file)))), [])
})

test('every file that docs/security.md names as the proof of a promise is in git', () => {
  const named = [...text('docs/security.md').matchAll(/`((?:test|bench)\/[\w./-]+\.(?:ts|md))`/g)].map(
    match => match[1]!,
  )
  assert.ok(named.length > 15, String(named.length))
  assert.deepEqual(
    named.filter(file => !FILES.includes(file)),
    [],
  )
})

describe('a citation that leads nowhere is found', () => {
  // A `~` is taken out of each, so that the test above does not find them in this file.
  for (const [what, sample, faults] of [
    ['a row', '[AUTH~-99] x', 1],
    ['a prefix', '// OFFER~-1', 1],
    ['the end of a range', 'MSG~-1…10', 3],
    ['a decision', '// decisions~ 1, 998 and 30', 1],
    ['a decision on the next line', ' * decisions~\n * 998', 1],
    ['a section', '(wire~.md B.4, B.9)', 1],
    ['a section beside others', 'wire~.md A.4, B.3–B.5, F.44', 1],
    ['a case', 'wire~.md G 9 to 41', 1],
    ['a case without a space', 'wire~.md D.4, G24, G77', 1],
    ['a rule of a section', 'wire~.md 0.2 rule 12', 1],
    ['a section in brackets', '(as C~.9), (0.2 rule~ 44)', 2],
    ['a rule of the listener', '// R~21', 1],
    ['a page', 'see notes-of-mine~.md', 1],
    ['another place', 'in ..~/shared/spec/x', 1],
    ['nothing: no ids', 'UTF-8, SHA-256, ISO-8601, HTTP/2, X-1, R2D2, wire~.md lists it, the decisions of 3', 0],
    ['nothing: all there', 'ERR~-1…10, decisions~ 21–24, wire~.md H, G 40, 0.2 rule 8, R1 to R20', 0],
  ] as const)
    test(what, () => {
      const content = sample.replaceAll('~', '')
      const all = faultsOf('x.ts', content)
      assert.equal(all.length, faults, [content, ...said(all)].join('\n'))
    })
})

// ---- tests of the contract ------------------------------------------------------------------------------------------

test('every row of the contract has a test whose name carries its id', () => {
  const named = new Set<string>()
  for (const file of FILES.filter(name => name.startsWith('test/') && name.endsWith('.ts')))
    for (const [brackets] of text(file).matchAll(/\[[A-Z]+-\d+[^\]\n]*\]/g))
      for (const [, prefix, first, last] of brackets.matchAll(CONTRACT))
        for (const n of between(first!, last ?? first!)) named.add(`${prefix}-${n}`)
  assert.deepEqual(
    [...ROWS].filter(row => !named.has(row)),
    [],
  )
})

// ---- text for operators and clients ---------------------------------------------------------------------------------

/** Pages for people who change the code. */
const CONTRIBUTORS = /^(?:CONTRIBUTING\.md|core\/README\.md|bench\/README\.md|docs\/spec\/.*)$/
const anId = new RegExp(
  String.raw`(?<![\w.-])(?:${[...PREFIXES].join('|')})-\d+\b|${DECISION.source}|\bwire\.md${GAP}${SECTION}|${LISTENER_RULE.source}`,
  'g',
)

function idsIn(file: string, content: string): string[] {
  return Array.from(
    content.matchAll(anId),
    ({ index, 0: id }) => `${file}:${content.slice(0, index).split('\n').length}  ${id}: write the whole sentence`,
  )
}

/** Code without its comments, on the same lines: an id in there is in a text that somebody reads. */
function withoutComments(code: string): string {
  return code.replace(/\/\*[\s\S]*?\*\//g, comment => comment.replace(/[^\n]/g, '')).replace(/(^|\s)\/\/ .*$/gm, '$1')
}

test('what operators and clients read has no ids: pages, generated files, configurations', () => {
  const pages = FILES.filter(file => file.endsWith('.md') && !CONTRIBUTORS.test(file))
  const configurations = FILES.filter(file =>
    /^(?:gateway\.yaml$|deploy\/|Dockerfile$|admin\/dashboard\/.*\.html$)/.test(file),
  )
  const written = Object.fromEntries([...pages, ...configurations].map(file => [file, text(file)]))
  assert.deepEqual(
    Object.entries({ ...written, ...generated() }).flatMap(([file, content]) => idsIn(file, content)),
    [],
  )
})

test('messages, descriptions and help texts have no ids', () => {
  const code = FILES.filter(file => /\.m?[tj]s$/.test(file) && !/^(?:test|bench)\//.test(file))
  assert.deepEqual(
    code.flatMap(file => idsIn(file, withoutComments(text(file)))),
    [],
  )
  assert.equal(idsIn('x.ts', withoutComments("/* AUTH-2 */ flag('… (AUTH-2).') // AUTH-2")).length, 1)
})
