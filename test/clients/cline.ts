import { type AgentClient, MAKE } from './client.ts'
import { recipe } from './recipes.ts'

export const cline: AgentClient = {
  name: 'cline',
  npm: { cline: '3.0.65' },
  command: 'cline',
  runs: [
    {
      feature: 'turn with a tool',
      directive: `call run_commands ${JSON.stringify({ commands: [MAKE] })}`,
      arguments: ({ prompt }) => ['--json', prompt],
      files: task => ({ '.cline/data/settings/providers.json': recipe('cline', task)[0]! }),
    },
  ],
}
