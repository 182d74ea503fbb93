import { type AgentClient, MAKE } from './client.ts'
import { exported, recipe } from './recipes.ts'

export const mistralVibe: AgentClient = {
  name: 'mistral-vibe',
  python: ['mistral-vibe==3.0.2'],
  interpreter: '>=3.12',
  command: 'vibe',
  runs: [
    {
      feature: 'turn with a tool',
      directive: `call bash ${JSON.stringify({ command: MAKE })}`,
      arguments: ({ prompt }) => ['--trust', '--auto-approve', '-p', prompt],
      environment: task => exported(recipe('mistral-vibe', task)[1]!),
      files: task => ({ '.vibe/config.toml': recipe('mistral-vibe', task)[0]! }),
    },
  ],
}
