import { type AgentClient, type AgentRun, MAKE } from './client.ts'

const run = (feature: string, websockets: boolean): AgentRun => ({
  feature,
  directive: `call exec_command ${JSON.stringify({ cmd: MAKE })}`,
  arguments: ({ prompt }) => ['exec', '--skip-git-repo-check', '--dangerously-bypass-approvals-and-sandbox', prompt],
  environment: ({ key }) => ({ SLUICE_API_KEY: key }),
  files: ({ url, model }) => ({
    '.codex/config.toml': `model = "${model}"
model_provider = "sluice"

[model_providers.sluice]
name = "Sluice"
base_url = "${url}/v1"
env_key = "SLUICE_API_KEY"
wire_api = "responses"
supports_websockets = ${websockets}
`,
  }),
})

export const codex: AgentClient = {
  name: 'Codex',
  npm: { '@openai/codex': '0.169.0' },
  command: 'codex',
  runs: [run('turn with a tool, HTTP', false), run('turn with a tool, WebSocket', true)],
}
