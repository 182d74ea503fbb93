import { type AgentClient, type AgentRun, MAKE } from './client.ts'
import { exported, recipe } from './recipes.ts'

const run = (feature: string, api: string, path: string): AgentRun => ({
  feature,
  // The last command ends the task.
  directive: [MAKE, 'echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT']
    .map(command => `call bash ${JSON.stringify({ command })}`)
    .join('; next '),
  arguments: ({ prompt, model }) => ['-m', `${api}/${model}`, '-y', '--exit-immediately', '-t', prompt],
  environment: task => ({
    ...Object.fromEntries(
      Object.entries(exported(recipe('mini-swe-agent', task)[0]!)).map(([name, value]) => [
        name.replace('OPENAI', api.toUpperCase()),
        value.replace(`${task.url}/v1`, task.url + path),
      ]),
    ),
    // Otherwise it asks the network for prices, and waits for it.
    LITELLM_LOCAL_MODEL_COST_MAP: 'True',
  }),
})

export const miniSweAgent: AgentClient = {
  name: 'mini-swe-agent',
  // LiteLLM needs mcp and does not say so.
  python: ['mini-swe-agent==2.4.6', 'litellm==1.110.2', 'mcp==2.3.0'],
  command: 'mini',
  runs: [run('turns with a tool, Chat', 'openai', '/v1'), run('turns with a tool, Messages', 'anthropic', '')],
}
