import { allBut } from './requirements.ts'

/**
 * Services by name: `preset: groq` fills in what gateway.yaml would say of the provider. What the operator writes wins.
 * docs/providers.md has a section for each.
 */
export interface Preset {
  /** The members of a provider, by the dialect; the first dialect is the default. `{region}` stands for a setting. */
  readonly of: Readonly<Record<string, Readonly<Record<string, unknown>>>>
  /** Members that the operator must give, because the service has an address of its own for each. */
  readonly settings?: readonly Setting[]
  /** Members of each of its backends, where the service differs from the dialect. */
  readonly backend?: Readonly<Record<string, unknown>>
  /** Environment variable that usually holds its key; null where it needs none. */
  readonly variable: string | null
}

export const SETTINGS = ['region', 'project', 'location', 'resource'] as const
export type Setting = (typeof SETTINGS)[number]

const chat = (base_url: string, more: object = {}) => ({ 'openai-chat': { base_url, ...more } })
const MAX_TOKENS = { max_tokens_field: 'max_tokens' }
/** They take `parallel_tool_calls: false`, and make several calls all the same. */
const NO_SINGLE_CALL = { supports: [...allBut('web_search', 'single_tool_call')] }
const VERTEX = 'https://{location}-aiplatform.googleapis.com/v1/projects/{project}/locations/{location}'

export const PRESETS: Readonly<Record<string, Preset>> = {
  openai: {
    of: {
      'openai-responses': { base_url: 'https://api.openai.com/v1' },
      'openai-chat': { base_url: 'https://api.openai.com/v1' },
    },
    variable: 'OPENAI_API_KEY',
  },
  anthropic: {
    of: { 'anthropic-messages': { base_url: 'https://api.anthropic.com/v1' } },
    variable: 'ANTHROPIC_API_KEY',
  },
  gemini: {
    of: { gemini: { base_url: 'https://generativelanguage.googleapis.com/v1beta' } },
    variable: 'GEMINI_API_KEY',
  },
  azure: {
    of: {
      'openai-responses': { base_url: 'https://{resource}.openai.azure.com/openai/v1', auth: 'azure' },
      'openai-chat': { base_url: 'https://{resource}.openai.azure.com/openai/v1', auth: 'azure' },
    },
    settings: ['resource'],
    variable: 'AZURE_OPENAI_API_KEY',
  },
  bedrock: {
    of: {
      'anthropic-messages': {
        variant: 'bedrock',
        base_url: 'https://bedrock-runtime.{region}.amazonaws.com',
        auth: { aws: { region: '{region}' } },
      },
      'openai-chat': {
        base_url: 'https://bedrock-runtime.{region}.amazonaws.com/openai/v1',
        auth: { aws: { region: '{region}' } },
      },
    },
    settings: ['region'],
    variable: null,
  },
  vertex: {
    of: {
      gemini: { variant: 'vertex', base_url: VERTEX, auth: 'google' },
      'anthropic-messages': { variant: 'vertex', base_url: VERTEX, auth: 'google' },
    },
    settings: ['project', 'location'],
    variable: null,
  },
  openrouter: { of: chat('https://openrouter.ai/api/v1'), variable: 'OPENROUTER_API_KEY' },
  mistral: {
    of: chat('https://api.mistral.ai/v1', { omit: ['prompt_cache_key', 'stream_options', 'seed', 'verbosity'] }),
    backend: MAX_TOKENS,
    variable: 'MISTRAL_API_KEY',
  },
  deepseek: { of: chat('https://api.deepseek.com'), backend: MAX_TOKENS, variable: 'DEEPSEEK_API_KEY' },
  groq: { of: chat('https://api.groq.com/openai/v1'), variable: 'GROQ_API_KEY' },
  xai: { of: chat('https://api.x.ai/v1'), variable: 'XAI_API_KEY' },
  together: { of: chat('https://api.together.xyz/v1'), backend: MAX_TOKENS, variable: 'TOGETHER_API_KEY' },
  fireworks: {
    of: chat('https://api.fireworks.ai/inference/v1'),
    backend: MAX_TOKENS,
    variable: 'FIREWORKS_API_KEY',
  },
  ollama: { of: chat('http://127.0.0.1:11434/v1'), backend: { ...MAX_TOKENS, ...NO_SINGLE_CALL }, variable: null },
  vllm: { of: chat('http://127.0.0.1:8000/v1'), variable: null },
  'llama-cpp': {
    of: chat('http://127.0.0.1:8080/v1'),
    backend: { ...MAX_TOKENS, ...NO_SINGLE_CALL },
    variable: null,
  },
  'lm-studio': { of: chat('http://127.0.0.1:1234/v1'), backend: MAX_TOKENS, variable: null },
}
