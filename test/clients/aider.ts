import { type AgentClient, CONTENT, MADE } from './client.ts'

const EDIT = `${MADE}
\`\`\`
<<<<<<< SEARCH
=======
${CONTENT}
>>>>>>> REPLACE
\`\`\`
`

export const aider: AgentClient = {
  name: 'aider',
  python: ['aider-chat==0.86.2'],
  command: 'aider',
  runs: [
    {
      feature: 'edit of a file, Chat',
      directive: `text ${JSON.stringify(EDIT)}`,
      arguments: ({ prompt, model }) => [
        ...['--model', `openai/${model}`, '--edit-format', 'diff'],
        ...['--yes-always', '--no-git', '--no-show-model-warnings', '--no-check-update', '--no-analytics'],
        ...['--message', prompt],
      ],
      environment: ({ url, key }) => ({ OPENAI_API_BASE: `${url}/v1`, OPENAI_API_KEY: key }),
    },
  ],
}
