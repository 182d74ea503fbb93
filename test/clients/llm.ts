import { type AgentClient, CONTENT, MADE } from './client.ts'

export const llm: AgentClient = {
  name: 'llm',
  python: ['llm==0.36'],
  command: 'llm',
  runs: [
    {
      feature: 'turn with a tool of Python',
      directive: `call make_file {"name":"${MADE}","content":"${CONTENT}"}`,
      arguments: ({ prompt }) => ['-m', 'sluice', '--functions', 'tools.py', '--no-stream', prompt],
      environment: ({ key, folder }) => ({ LLM_USER_PATH: `${folder}/../llm`, OPENAI_API_KEY: key }),
      files: ({ url, model }) => ({
        'llm/extra-openai-models.yaml': `- model_id: sluice
  model_name: ${model}
  api_base: ${url}/v1
  supports_tools: true
  vision: true
`,
        'work/tools.py': `def make_file(name: str, content: str) -> str:
    "Makes a file."
    open(name, "w").write(content)
    return "made"
`,
      }),
    },
  ],
}
