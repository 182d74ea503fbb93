import { type AgentClient, type AgentRun, MAKE } from './client.ts'

const run = (feature: string, api: string, path: string): AgentRun => ({
  feature,
  directive: `call bash ${JSON.stringify({ command: MAKE })}`,
  arguments: ({ prompt, model }) => ['--provider', 'sluice', '--model', model, '-p', prompt],
  files: ({ url, key, model }) => ({
    '.pi/agent/models.json': JSON.stringify({
      providers: {
        sluice: { baseUrl: url + path, apiKey: key, api, models: [{ id: model }] },
      },
    }),
  }),
})

export const pi: AgentClient = {
  name: 'pi',
  npm: { '@mariozechner/pi-coding-agent': '0.73.1' },
  command: 'pi',
  runs: [
    run('turn with a tool, Chat', 'openai-completions', '/v1'),
    run('turn with a tool, Responses', 'openai-responses', '/v1'),
    run('turn with a tool, Messages', 'anthropic-messages', ''),
  ],
}
