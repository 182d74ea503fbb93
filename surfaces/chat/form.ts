import type { ClientForm } from '../../core/canon/conversation.ts'

export const form: ClientForm = {
  members: {
    effort: 'reasoning_effort',
    single: 'parallel_tool_calls',
    stop: 'stop',
    logprobs: 'logprobs',
    turns: 'messages',
    toolSchema: '.function.parameters',
    toolStrict: '.function.strict',
  },
}
