import type { ClientForm } from '../../core/canon/conversation.ts'

export const form: ClientForm = {
  members: {
    effort: 'reasoning.effort',
    single: 'parallel_tool_calls',
    stop: 'stop',
    logprobs: 'include',
    turns: 'input',
    toolSchema: '.parameters',
    toolStrict: '.strict',
  },
  retains: true,
}
