import { tagsOf } from './bill.ts'
import { type AgentClient, type AgentRun, MAKE } from './client.ts'
import { exported, recipe } from './recipes.ts'

const turn: AgentRun = {
  feature: 'turn with a tool',
  directive: `call Bash ${JSON.stringify({ command: MAKE, description: 'Makes the file' })}`,
  arguments: ({ prompt }) => ['-p', prompt, '--allowedTools', 'Bash,Agent'],
  environment: task => ({
    ...exported(recipe('Claude Code', task)[0]!),
    CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1',
  }),
}

/** A call of a tool whose text has a directive of its own, which the directive around it must not end at. */
const nested = (value: object) =>
  JSON.stringify(value).replaceAll('[[', '\\u005b\\u005b').replaceAll(']]', '\\u005d\\u005d')

/** An agent for one part of the work. */
const agent = (part: string, command: string) =>
  `call Agent ${nested({
    description: part,
    subagent_type: 'general-purpose',
    prompt: `${part}. [[sim: call Bash ${JSON.stringify({ command, description: part })}]]`,
  })}`

/** Two sub-agents one after the other, of which the second makes the file. */
const delegated: AgentRun = {
  ...turn,
  feature: 'two sub-agents, each with a tool',
  directive: `${agent('Look around', 'ls')}; next ${agent('Make the file', MAKE)}`,
  bill: true,
  check(_, rows) {
    const sessions = new Set(rows.map(row => tagsOf(row).session))
    const agents = new Set(rows.flatMap(row => tagsOf(row).agent ?? []))
    if (sessions.size === 1 && !sessions.has(undefined) && agents.size === 2) return undefined
    return `the rows have ${sessions.size} sessions and ${agents.size} sub-agents`
  },
}

export const claudeCode: AgentClient = {
  name: 'Claude Code',
  npm: { '@anthropic-ai/claude-code': '2.1.332' },
  command: 'claude',
  runs: [turn, delegated],
}
