import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { type AgentClient, type AgentRun, CONTENT, MADE, MAKE } from './client.ts'
import { recipe } from './recipes.ts'
import { MODELS } from './table.ts'

const EXEC = ['exec', '--skip-git-repo-check', '--dangerously-bypass-approvals-and-sandbox']
/** Tokens above which a session is compacted: what Codex sends of its own, and half of what a long turn adds. */
const LIMIT = 12_000

const run = (feature: string, websockets: boolean): AgentRun => ({
  feature,
  directive: `call exec_command ${JSON.stringify({ cmd: MAKE })}`,
  arguments: ({ prompt }) => [...EXEC, prompt],
  environment: ({ key }) => ({ SLUICE_API_KEY: key }),
  files: task => ({
    '.codex/config.toml': `${recipe('Codex', task)[0]}supports_websockets = ${websockets}\n`,
  }),
})

const OBJECT = JSON.stringify({ word: CONTENT })
/** The command of the object: a call first, then the object, which is what the last message has to be. */
const structured: AgentRun = {
  ...run('--output-schema after a tool, translate', false),
  directive: model => {
    const call = `call exec_command ${JSON.stringify({ cmd: 'ls' })}`
    // Where the provider has no form for it, the gateway makes the model call a tool.
    return model === MODELS.M ? `${call}; next call final_reply ${OBJECT}` : call
  },
  structured: true,
  content: OBJECT,
  arguments: ({ prompt }) => [...EXEC, ...['--output-schema', '../schema.json', '--output-last-message', MADE, prompt]],
  files: task => ({
    '.codex/config.toml': recipe('Codex', task)[0]!,
    'schema.json': JSON.stringify({
      type: 'object',
      properties: { word: { type: 'string', enum: [CONTENT] } },
      required: ['word'],
      additionalProperties: false,
    }),
  }),
}

/**
 * A session whose earlier turns are too long. Codex has a provider with this name compact the conversation, and would end
 * the turn where it could not.
 */
const compacted: AgentRun = {
  ...run('two compactions, then a turn with a tool', false),
  bill: true,
  earlier: () => [
    [...EXEC, 'Tell me something. [[sim: tokens 6000]]'],
    [...EXEC, 'resume', '--last', 'Tell me more. [[sim: tokens 6000]]'],
  ],
  arguments: ({ prompt }) => [...EXEC, 'resume', '--last', prompt],
  files: task => ({
    '.codex/config.toml': `model_auto_compact_token_limit = ${LIMIT}\n${recipe('Codex', task)[0]!.replace('"Sluice"', '"OpenAI"')}`,
  }),
  check(home) {
    const sessions = join(home, '.codex', 'sessions')
    const files = readdirSync(sessions, { recursive: true, encoding: 'utf8' }).filter(name => name.endsWith('.jsonl'))
    const lines = files.flatMap(name => readFileSync(join(sessions, name), 'utf8').split('\n'))
    const made = lines.filter(line => line.includes('"type":"compacted"') && line.includes('"cmp_eba1_')).length
    return made === 2 ? undefined : `${made} compactions by the gateway`
  },
}

export const codex: AgentClient = {
  name: 'Codex',
  npm: { '@openai/codex': '0.171.0' },
  command: 'codex',
  runs: [run('turn with a tool, HTTP', false), run('turn with a tool, WebSocket', true), structured, compacted],
}
