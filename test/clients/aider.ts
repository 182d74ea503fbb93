import { type AgentClient, CONTENT, MADE } from './client.ts'
import { exported, recipe } from './recipes.ts'

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
      environment: task => ({
        ...exported(recipe('aider', task)[0]!),
        // Otherwise it asks the network for prices, and waits for it.
        LITELLM_LOCAL_MODEL_COST_MAP: 'True',
      }),
    },
  ],
}
