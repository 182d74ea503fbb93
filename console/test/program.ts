/** `npm run console` as an operator types it, in a process of its own. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'

const ROOT = join(import.meta.dirname, '../..')

export function runConsole(...args: string[]) {
  const { NODE_OPTIONS: _, NODE_TEST_CONTEXT: __, ...env } = process.env
  const script = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'))
    .scripts.console.split(' ')
    .slice(1)
  const child = spawn(script[0], [...script.slice(1), ...args], { cwd: ROOT, env, stdio: ['ignore', 'pipe', 'pipe'] })
  let said = ''
  for (const stream of [child.stdout, child.stderr]) stream.on('data', data => (said += data))
  return { child, said: () => said, ended: once(child, 'close').then(([code]) => code as number) }
}
