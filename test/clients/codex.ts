import { type AgentClient, type AgentRun, MAKE } from './client.ts'
import { recipe } from './recipes.ts'

const run = (feature: string, websockets: boolean): AgentRun => ({
  feature,
  directive: `call exec_command ${JSON.stringify({ cmd: MAKE })}`,
  arguments: ({ prompt }) => ['exec', '--skip-git-repo-check', '--dangerously-bypass-approvals-and-sandbox', prompt],
  environment: ({ key }) => ({ SLUICE_API_KEY: key }),
  files: task => ({
    '.codex/config.toml': `${recipe('Codex', task)[0]}supports_websockets = ${websockets}\n`,
  }),
})

export const codex: AgentClient = {
  name: 'Codex',
  npm: { '@openai/codex': '0.169.0' },
  command: 'codex',
  runs: [run('turn with a tool, HTTP', false), run('turn with a tool, WebSocket', true)],
}
