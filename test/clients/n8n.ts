import { type AgentClient, type AgentRun, CONTENT, MADE } from './client.ts'
import { recipe } from './recipes.ts'

/** The nodes of models, by the kind of their credential. */
const MODEL_NODES = {
  openAiApi: ['@n8n/n8n-nodes-langchain.lmChatOpenAi', 1.3],
  anthropicApi: ['@n8n/n8n-nodes-langchain.lmChatAnthropic', 1.5],
} as const

const node = (
  name: string,
  [type, typeVersion]: readonly [string, number],
  parameters: object,
  credentials?: object,
) => ({
  id: name,
  name,
  type,
  typeVersion,
  position: [0, 0],
  parameters,
  credentials,
})

/** @param options what the node of the model has besides the model */
const run = (feature: string, api: keyof typeof MODEL_NODES, options: object = {}): AgentRun => ({
  feature,
  directive: `call make_file "${CONTENT}"`,
  earlier: () => [
    ['import:credentials', '--input=credentials.json'],
    ['import:workflow', '--input=workflow.json'],
  ],
  arguments: () => ['execute', '--id=sluice'],
  environment: ({ folder }) => ({
    N8N_USER_FOLDER: `${folder}/..`,
    N8N_DIAGNOSTICS_ENABLED: 'false',
    N8N_VERSION_NOTIFICATIONS_ENABLED: 'false',
    N8N_PERSONALIZATION_ENABLED: 'false',
    N8N_TEMPLATES_ENABLED: 'false',
    // The tool is a piece of code, and may write files by this.
    NODE_FUNCTION_ALLOW_BUILTIN: 'fs',
  }),
  files: task => ({
    'work/credentials.json': recipe('n8n', task)[0]!,
    'work/workflow.json': JSON.stringify({
      id: 'sluice',
      name: 'Sluice',
      active: false,
      nodes: [
        node('Start', ['n8n-nodes-base.manualTrigger', 1], {}),
        node('Agent', ['@n8n/n8n-nodes-langchain.agent', 3.1], { promptType: 'define', text: task.prompt }),
        node(
          'Model',
          MODEL_NODES[api],
          { model: { mode: 'id', value: task.model }, ...options },
          { [api]: { id: api } },
        ),
        node('make_file', ['@n8n/n8n-nodes-langchain.toolCode', 1.3], {
          description: 'Makes a file.',
          jsCode: `require('fs').writeFileSync('${task.folder}/${MADE}', query)\nreturn 'made'`,
        }),
      ],
      connections: Object.fromEntries(
        [
          ['Start', 'main'],
          ['Model', 'ai_languageModel'],
          ['make_file', 'ai_tool'],
        ].map(([from, type]) => [from, { [type!]: [[{ node: 'Agent', type, index: 0 }]] }]),
      ),
    }),
  }),
})

export const n8n: AgentClient = {
  name: 'n8n',
  // It needs Node 24. The library for Kafka is compiled of sources that npm does not have.
  npm: { n8n: '2.41.1', node: '24.21.0' },
  without: ['@confluentinc/kafka-javascript'],
  command: 'n8n',
  runs: [
    run('turn with a tool, Chat', 'openAiApi', { responsesApiEnabled: false }),
    run('turn with a tool, Responses', 'openAiApi'),
    run('turn with a tool, Messages', 'anthropicApi'),
  ],
}
