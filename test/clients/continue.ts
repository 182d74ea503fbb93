import { type AgentClient, MAKE } from './client.ts'

export const continueCli: AgentClient = {
  name: 'Continue',
  npm: { '@continuedev/cli': '1.5.47' },
  command: 'cn',
  runs: [
    {
      feature: 'turn with a tool',
      directive: `call Bash ${JSON.stringify({ command: MAKE })}`,
      arguments: ({ prompt, folder }) => ['--config', `${folder}/config.yaml`, '--auto', '-p', prompt],
      files: ({ url, key, model }) => ({
        'work/config.yaml': `name: Sluice
version: 1.0.0
schema: v1
models:
  - name: sluice
    provider: openai
    model: ${model}
    apiBase: ${url}/v1
    apiKey: ${key}
    roles: [chat, edit, apply]
    capabilities: [tool_use]
`,
      }),
    },
  ],
}
