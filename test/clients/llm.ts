import { type AgentClient, CONTENT, MADE } from './client.ts'
import { recipe } from './recipes.ts'

export const llm: AgentClient = {
  name: 'llm',
  python: ['llm==0.36'],
  command: 'llm',
  runs: [
    {
      feature: 'turn with a tool of Python',
      directive: `call make_file {"name":"${MADE}","content":"${CONTENT}"}`,
      arguments: ({ prompt }) => ['-m', 'sluice', '--functions', 'tools.py', '--no-stream', prompt],
      environment: ({ folder }) => ({ LLM_USER_PATH: `${folder}/../llm` }),
      files: task => ({
        'llm/keys.json': JSON.stringify({ sluice: task.key }),
        'llm/extra-openai-models.yaml': recipe('llm', task)[0]!,
        'work/tools.py': `def make_file(name: str, content: str) -> str:
    "Makes a file."
    open(name, "w").write(content)
    return "made"
`,
      }),
    },
  ],
}
