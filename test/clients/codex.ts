import { type AgentClient, type AgentRun, CONTENT, MADE, MAKE } from './client.ts'
import { recipe } from './recipes.ts'
import { MODELS } from './table.ts'

const run = (feature: string, websockets: boolean): AgentRun => ({
  feature,
  directive: `call exec_command ${JSON.stringify({ cmd: MAKE })}`,
  arguments: ({ prompt }) => ['exec', '--skip-git-repo-check', '--dangerously-bypass-approvals-and-sandbox', prompt],
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
  arguments: ({ prompt }) => [
    ...['exec', '--skip-git-repo-check', '--dangerously-bypass-approvals-and-sandbox'],
    ...['--output-schema', '../schema.json', '--output-last-message', MADE, prompt],
  ],
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

export const codex: AgentClient = {
  name: 'Codex',
  npm: { '@openai/codex': '0.169.0' },
  command: 'codex',
  runs: [run('turn with a tool, HTTP', false), run('turn with a tool, WebSocket', true), structured],
}
