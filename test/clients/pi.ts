import { type AgentClient, type AgentRun, MAKE } from './client.ts'
import { recipe } from './recipes.ts'

const run = (feature: string, api: string, path: string): AgentRun => ({
  feature,
  directive: `call bash ${JSON.stringify({ command: MAKE })}`,
  arguments: ({ prompt, model }) => ['--provider', 'sluice', '--model', model, '-p', prompt],
  files: task => ({
    '.pi/agent/models.json': recipe('pi', task)[0]!
      .replace(`${task.url}/v1`, task.url + path)
      .replace('openai-completions', api),
  }),
})

export const pi: AgentClient = {
  name: 'pi',
  npm: { '@earendil-works/pi-coding-agent': '1.6.0' },
  command: 'pi',
  runs: [
    run('turn with a tool, Chat', 'openai-completions', '/v1'),
    run('turn with a tool, Responses', 'openai-responses', '/v1'),
    run('turn with a tool, Messages', 'anthropic-messages', ''),
  ],
}
