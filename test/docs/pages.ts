/** The README, CONTRIBUTING.md, SECURITY.md and docs/ as the tests read them: pages, their fenced blocks, the commands in those. */
import { globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

export const ROOT = join(import.meta.dirname, '../..')
export const FILES: readonly string[] = [
  'README.md',
  'CONTRIBUTING.md',
  'SECURITY.md',
  ...globSync('docs/{,spec/}*.md', { cwd: ROOT }).sort(),
]
export const QUICKSTART: string = readFileSync(join(ROOT, 'gateway.yaml'), 'utf8')

export interface Block {
  /** `docs/clients.md:13`. */
  at: string
  language: string
  text: string
}

export interface PageText {
  file: string
  text: string
  blocks: Block[]
}

export const pages: readonly PageText[] = FILES.map(file => {
  const text = readFileSync(join(ROOT, file), 'utf8')
  const blocks: Block[] = [...text.matchAll(/^```(\w*)\n([\s\S]*?)^```$/gm)].map(found => ({
    at: `${file}:${text.slice(0, found.index).split('\n').length}`,
    language: found[1]!,
    text: found[2]!,
  }))
  return { file, text, blocks }
})

export const blocksOf = (language: string): Block[] =>
  pages.flatMap(page => page.blocks).filter(block => block.language === language)

/**
 * The commands of a shell block, or those after a `$` of a console block; one that goes on over lines is one command.
 */
export function commandsOf({ language, text }: Block): string[] {
  if (language === 'console') return [...text.matchAll(/^\$ (.+)$/gm)].map(found => found[1]!)
  if (language !== 'sh') return []
  const commands: string[] = []
  let open = ''
  for (const line of text.split('\n')) {
    open += open === '' ? line : `\n${line}`
    const inside = open.replace(/'[^']*'/g, '').replace(/"[^"]*"/g, '')
    if (/\\$/.test(line) || /['"]/.test(inside)) continue
    const command = open.replace(/ +#.*$/, '').trim()
    if (command !== '' && !command.startsWith('#')) commands.push(command)
    open = ''
  }
  return commands
}
