import { type AgentClient, MAKE } from './client.ts'
import { recipe } from './recipes.ts'

export const continueCli: AgentClient = {
  name: 'Continue',
  npm: { '@continuedev/cli': '1.5.47' },
  command: 'cn',
  runs: [
    {
      feature: 'turn with a tool',
      directive: `call Bash ${JSON.stringify({ command: MAKE })}`,
      arguments: ({ prompt, folder }) => ['--config', `${folder}/config.yaml`, '--auto', '-p', prompt],
      files: task => ({ 'work/config.yaml': recipe('Continue', task)[0]! }),
    },
  ],
}
