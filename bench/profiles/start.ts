/**
 * Profile 8: from the command to the first answered request, with the quickstart's configuration and an empty data
 * folder.
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { printed, start as startChild, stop, temporaryFolder } from '../children.ts'
import { alternate } from '../lanes.ts'
import { CONTENDER } from '../machine.ts'
import { goals, medians, type Profile } from '../results.ts'

const root = join(import.meta.dirname, '..', '..')

const COMMANDS: Record<string, (config: string) => [string, string[]]> = {
  'npm start': config => ['npm', ['start', '--silent', '--', '--config', config]],
  'bin/sluice.mjs start': config => [process.execPath, [join(root, 'bin', 'sluice.mjs'), 'start', '--config', config]],
}

let started = 0

export const start: Profile = {
  name: 'start',
  title: 'from `npm start` to the first answered request, quickstart configuration, on one core',
  async run({ rounds }) {
    const lanes = Object.keys(COMMANDS).map(name => ({ name }))
    const samples = await alternate(lanes, rounds + 1, async ({ name }) => ({ 'first answer s': await measure(name) }))
    // The first start fills the page cache and npm's compile cache, so it does not count.
    for (const [name, rounds] of samples) samples.set(name, rounds.slice(1))
    const figures = medians(samples)
    return {
      profile: 'start',
      lanes: figures,
      ratios: {},
      goals: goals({ text: 'npm start, s', value: figures['npm start']?.['first answer s'], most: 1.2 }),
    }
  },
}

async function measure(name: string): Promise<number> {
  const folder = join(temporaryFolder(), `start-${++started}`)
  mkdirSync(folder)
  const config = join(folder, 'gateway.yaml')
  // The quickstart's file, with free ports and its own database.
  const quickstart = readFileSync(join(root, 'gateway.yaml'), 'utf8')
  const moved = quickstart
    .replace(/^( +admin:) .*$/m, '$1 127.0.0.1:0')
    .replace(/^store: .*$/m, `store: sqlite:${folder}/gateway.db`)
  writeFileSync(config, moved)
  const [program, args] = COMMANDS[name]!(config)
  const began = performance.now()
  const child = startChild(CONTENDER, program, args, {
    cwd: root,
    env: { ...process.env, SLUICE_LISTEN: '127.0.0.1:0' },
    stdio: ['ignore', 'pipe', 'ignore'],
  })
  try {
    const [, url] = await printed(child, /listens on (http:\S+)/)
    const response = await fetch(`${url}/v1/chat/completions`, {
      method: 'POST',
      headers: { authorization: 'Bearer sk-demo', 'content-type': 'application/json' },
      body: JSON.stringify({ model: 'eb1-preview', messages: [{ role: 'user', content: 'Hello' }] }),
    })
    const body = (await response.json()) as { choices?: { message: { content: string } }[] }
    if (!body.choices?.[0]?.message.content) throw new Error(`the first answer is ${JSON.stringify(body)}`)
    return (performance.now() - began) / 1000
  } finally {
    await stop(child)
  }
}
