import { type AgentClient, MAKE } from './client.ts'
import { exported, recipe } from './recipes.ts'

export const qwenCode: AgentClient = {
  name: 'qwen-code',
  npm: { '@qwen-code/qwen-code': '0.24.4' },
  command: 'qwen',
  runs: [
    {
      feature: 'turn with a tool',
      directive: `call run_shell_command ${JSON.stringify({ command: MAKE, is_background: false })}`,
      arguments: ({ prompt }) => ['--yolo', '--auth-type', 'openai', '-p', prompt],
      environment: task => exported(recipe('qwen-code', task)[0]!),
    },
  ],
}
