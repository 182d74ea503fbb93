/** The small changes that a test should notice, found by means of TypeScript's own parser. */

import { existsSync } from 'node:fs'
import { type Node, SyntaxKind } from 'typescript/unstable/ast'
import { API } from 'typescript/unstable/sync'
import { random } from '../random.ts'

/** One change of one file: the text from `start` to `end` becomes `text`. */
export interface Mutant {
  /** Relative to the root. */
  file: string
  /** From 1. */
  line: number
  start: number
  end: number
  was: string
  text: string
}

/** What stands in the place of an operator. */
const SWAPPED: Readonly<Record<string, string>> = {
  ...{ '<': '<=', '<=': '<', '>': '>=', '>=': '>', '===': '!==', '!==': '===', '&&': '||', '||': '&&', '??': '&&' },
  ...{ '+': '-', '-': '+', '*': '/', '/': '*', '+=': '-=', '-=': '+=' },
}

/** Nothing in them runs. */
const NO_CODE: ReadonlySet<SyntaxKind> = new Set([
  SyntaxKind.ImportDeclaration,
  SyntaxKind.InterfaceDeclaration,
  SyntaxKind.TypeAliasDeclaration,
  SyntaxKind.LiteralType,
])

/**
 * All mutants of some files, in their order.
 * @param files relative to `root`, a folder with a tsconfig.json
 */
export function mutantsOf(root: string, files: readonly string[]): Mutant[] {
  const api = new API()
  try {
    // The console has a project of its own.
    const openProjects = ['tsconfig.json', 'console/tsconfig.json'].map(file => `${root}/${file}`)
    const projects = api.updateSnapshot({ openProjects: openProjects.filter(file => existsSync(file)) }).getProjects()
    const found: Mutant[] = []
    for (const file of files) {
      const sources = projects.map(({ program }) => program.getSourceFile(`${root}/${file}`))
      const source = sources.find(one => one !== undefined)
      if (source) visit(source, source.text, file, found)
    }
    return found
  } finally {
    api.close()
  }
}

function visit(node: Node, source: string, file: string, found: Mutant[]): void {
  if (NO_CODE.has(node.kind)) return
  const add = (of: Node, text: (was: string) => string | undefined) => {
    const start = of.getStart()
    const was = source.slice(start, of.end)
    const changed = text(was)
    const line = source.slice(0, start).split('\n').length
    if (changed !== undefined) found.push({ file, line, start, end: of.end, was, text: changed })
  }
  const parts = node as Node & { expression: Node; condition: Node; operatorToken: Node }
  switch (node.kind) {
    case SyntaxKind.IfStatement:
    case SyntaxKind.WhileStatement:
      add(parts.expression, was => `!(${was})`)
      break
    case SyntaxKind.ConditionalExpression:
      add(parts.condition, was => `!(${was})`)
      break
    case SyntaxKind.BinaryExpression:
      add(parts.operatorToken, was => SWAPPED[was])
      break
    case SyntaxKind.ExpressionStatement:
      add(node, was => (was.startsWith('super(') ? undefined : '{}'))
      break
    case SyntaxKind.NumericLiteral:
      // A number with separators or an exponent is changed as well: it is one more.
      add(node, was => `(${was} + 1)`)
      break
    case SyntaxKind.TrueKeyword:
      add(node, () => 'false')
      break
    case SyntaxKind.FalseKeyword:
      add(node, () => 'true')
      break
  }
  node.forEachChild(child => visit(child, source, file, found))
}

/** Draws `count` of them. The same seed draws the same ones of the same list. */
export function draw<T>(all: readonly T[], seed: number, count: number): T[] {
  const chance = random(seed)
  const left = [...all]
  const drawn: T[] = []
  while (drawn.length < count && left.length > 0) drawn.push(...left.splice(Math.floor(chance() * left.length), 1))
  return drawn
}

/** A file's text with a mutant in it. @throws Error when the text is not the one of which the mutant was made */
export function withMutant(source: string, { file, start, end, was, text }: Mutant): string {
  if (source.slice(start, end) !== was) throw new Error(`${file} has changed meanwhile`)
  return source.slice(0, start) + text + source.slice(end)
}
