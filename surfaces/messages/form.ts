import type { ClientForm } from '../../core/canon/conversation.ts'

export const form: ClientForm = {
  members: {
    effort: 'output_config.effort',
    budget: 'thinking',
    single: 'tool_choice.disable_parallel_tool_use',
    stop: 'stop_sequences',
    logprobs: 'include',
    turns: 'messages',
    toolSchema: '.input_schema',
    toolStrict: '.strict',
  },
  continuesLastMessage: true,
  namesStopString: true,
  parsesArguments: true,
  explainsRefusal: true,
  pauses: true,
  showsRefusedSearches: true,
  marksCache: true,
  lowersEffort: true,
}
