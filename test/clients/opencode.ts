import { type AgentClient, type AgentRun, MAKE } from './client.ts'
import { recipe } from './recipes.ts'

const run = (feature: string, block: number): AgentRun => ({
  feature,
  directive: `call bash ${JSON.stringify({ command: MAKE, description: 'Makes the file' })}`,
  // An argument with a space in it is sent in quotation marks, which are no part of the directive.
  arguments: ({ prompt, model }) => ['run', '--model', `sluice/${model}`, ...prompt.split(' ')],
  // Each of these would ask the network, and wait for it.
  environment: () => ({
    OPENCODE_DISABLE_MODELS_FETCH: '1',
    OPENCODE_DISABLE_AUTOUPDATE: '1',
    OPENCODE_DISABLE_DEFAULT_PLUGINS: '1',
    OPENCODE_DISABLE_LSP_DOWNLOAD: '1',
  }),
  files: task => ({ '.config/opencode/opencode.json': recipe('opencode', task)[block]! }),
})

export const opencode: AgentClient = {
  name: 'opencode',
  npm: { 'opencode-ai': '1.18.33' },
  command: 'opencode',
  runs: [run('turn with a tool', 0), run('turn with a tool, Messages', 2)],
  refused: run('errors: sends again what may succeed', 0),
}
