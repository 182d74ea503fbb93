/** The clients that `npm run clients` tries, with their versions. */
import { aider } from './aider.ts'
import { claudeCode } from './claude-code.ts'
import type { AgentClient, ProgramClient } from './client.ts'
import { cline } from './cline.ts'
import { codex } from './codex.ts'
import { continueCli } from './continue.ts'
import { llm } from './llm.ts'
import { miniSweAgent } from './mini-swe-agent.ts'
import { mistralVibe } from './mistral-vibe.ts'
import { n8n } from './n8n.ts'
import { opencode } from './opencode.ts'
import { pi } from './pi.ts'
import { qwenCode } from './qwen-code.ts'

export const PROGRAMS: readonly ProgramClient[] = [
  { name: 'openai-python', recipe: 'openai', program: 'openai_python.py', python: ['openai[realtime]==3.57.0'] },
  { name: 'anthropic-python', recipe: 'Anthropic SDK', program: 'anthropic_python.py', python: ['anthropic==2.14.0'] },
  { name: 'openai-agents', recipe: 'openai-agents', program: 'openai_agents.py', python: ['openai-agents==0.24.0'] },
  {
    name: 'pydantic-ai',
    recipe: 'pydantic-ai',
    program: 'pydantic_ai_client.py',
    python: ['pydantic-ai-slim[openai,anthropic]==2.68.0'],
  },
  {
    name: 'LangChain',
    recipe: 'LangChain',
    program: 'langchain_client.py',
    python: ['langchain-openai==1.7.4', 'langchain-anthropic==1.7.10', 'langgraph==1.2.24'],
  },
  {
    name: 'llama-index',
    recipe: 'llama-index',
    program: 'llama_index_client.py',
    python: ['llama-index-core==0.14.25', 'llama-index-llms-openai-like==0.8.1'],
  },
  {
    name: 'instructor',
    recipe: 'instructor',
    program: 'instructor_client.py',
    python: ['instructor[anthropic]==1.17.0'],
  },
  { name: 'LiteLLM', recipe: 'LiteLLM', program: 'litellm_client.py', python: ['litellm==1.110.2', 'mcp==2.3.0'] },
  {
    name: 'AI SDK',
    program: 'ai_sdk.mjs',
    npm: {
      ai: '7.0.173',
      '@ai-sdk/openai': '4.0.118',
      '@ai-sdk/anthropic': '4.0.105',
      '@ai-sdk/openai-compatible': '3.0.92',
    },
  },
  {
    name: 'Mastra',
    recipe: 'Mastra',
    program: 'mastra.mjs',
    npm: {
      '@mastra/core': '1.71.0',
      '@ai-sdk/openai': '4.0.118',
      '@ai-sdk/anthropic': '4.0.105',
      zod: '4.6.7',
    },
  },
  {
    name: 'LibreChat agents',
    recipe: 'LibreChat agents',
    program: 'librechat_agents.mjs',
    // Its tracing needs this one and does not say so.
    npm: { '@librechat/agents': '3.9.2', '@opentelemetry/api': '1.10.0' },
  },
  {
    name: 'Open WebUI',
    program: 'open_webui.py',
    // It takes any torch: this one is that of the servers.
    python: ['open-webui==0.12.4', 'torch==2.13.0'],
    interpreter: '>=3.11,<3.13',
  },
  { name: 'openai-go', program: 'openai', go: 'github.com/openai/openai-go/v3' },
  { name: 'anthropic-sdk-go', program: 'anthropic', go: 'github.com/anthropics/anthropic-sdk-go' },
  { name: 'llm-comply', program: 'llm_comply.py', python: ['llm-comply==0.5.0'] },
]

export const AGENTS: readonly AgentClient[] = [
  codex,
  claudeCode,
  opencode,
  qwenCode,
  pi,
  continueCli,
  cline,
  aider,
  mistralVibe,
  miniSweAgent,
  llm,
  n8n,
]
