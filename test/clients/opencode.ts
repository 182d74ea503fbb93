import { type AgentClient, MAKE } from './client.ts'

export const opencode: AgentClient = {
  name: 'opencode',
  npm: { 'opencode-ai': '1.18.33' },
  command: 'opencode',
  runs: [
    {
      feature: 'turn with a tool',
      directive: `call bash ${JSON.stringify({ command: MAKE, description: 'Makes the file' })}`,
      arguments: ({ prompt, model }) => ['run', '--model', `sluice/${model}`, prompt],
      files: ({ url, key, model }) => ({
        '.config/opencode/opencode.json': JSON.stringify({
          $schema: 'https://opencode.ai/config.json',
          provider: {
            sluice: {
              npm: '@ai-sdk/openai-compatible',
              name: 'Sluice',
              options: { baseURL: `${url}/v1`, apiKey: key },
              models: { [model]: { name: model } },
            },
          },
        }),
      }),
    },
  ],
}
