import { type AgentClient, MAKE } from './client.ts'
import { exported, recipe } from './recipes.ts'

export const claudeCode: AgentClient = {
  name: 'Claude Code',
  npm: { '@anthropic-ai/claude-code': '2.1.332' },
  command: 'claude',
  runs: [
    {
      feature: 'turn with a tool',
      directive: `call Bash ${JSON.stringify({ command: MAKE, description: 'Makes the file' })}`,
      arguments: ({ prompt }) => ['-p', prompt, '--allowedTools', 'Bash'],
      environment: task => ({
        ...exported(recipe('Claude Code', task)[0]!),
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1',
      }),
    },
  ],
}
