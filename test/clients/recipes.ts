/** The recipes of docs/clients.md: clients are tried with the settings that the page has. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Task } from './client.ts'

const PAGE = readFileSync(join(import.meta.dirname, '../../docs/clients.md'), 'utf8')

/**
 * The blocks of one client's section in order, with the address, the key and the model of this run.
 * @param language only blocks of this language
 */
export function recipe(
  title: string,
  { url, key, model }: Pick<Task, 'url' | 'key' | 'model'>,
  language = '\\w+',
): string[] {
  const section = PAGE.split(/^## /m).find(text => text.startsWith(`${title}\n`))
  if (section === undefined) throw new Error(`docs/clients.md has no section '${title}'`)
  return [...section.matchAll(new RegExp(`^\`\`\`${language}\\n(.*?)^\`\`\`$`, 'gms'))].map(([, text]) =>
    text!.replaceAll('http://127.0.0.1:8080', url).replaceAll('sk-demo', key).replaceAll('eb1-preview', model),
  )
}

/** The variables that the lines of a shell set. */
export function exported(lines: string): Record<string, string> {
  return Object.fromEntries([...lines.matchAll(/^export (\w+)=(.*)$/gm)].map(([, name, value]) => [name!, value!]))
}
