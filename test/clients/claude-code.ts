import { type AgentClient, MAKE } from './client.ts'

export const claudeCode: AgentClient = {
  name: 'Claude Code',
  npm: { '@anthropic-ai/claude-code': '2.1.330' },
  command: 'claude',
  runs: [
    {
      feature: 'turn with a tool',
      directive: `call Bash ${JSON.stringify({ command: MAKE, description: 'Makes the file' })}`,
      arguments: ({ prompt }) => ['-p', prompt, '--allowedTools', 'Bash'],
      environment: ({ url, key, model }) => ({
        ANTHROPIC_BASE_URL: url,
        ANTHROPIC_AUTH_TOKEN: key,
        ANTHROPIC_MODEL: model,
        ANTHROPIC_DEFAULT_HAIKU_MODEL: model,
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1',
      }),
    },
  ],
}
