/** The call that writes the summary of a conversation: what it sends, and what it takes of the reply. */
import { type Conversation, EFFORTS, type Effort, type TextPart } from '../../core/canon/conversation.ts'
import type { CompactionEvent, FinishEvent, ProviderUsage, StreamEvent } from '../../core/canon/events.ts'
import { Sequencer } from '../../core/engine/sequence.ts'
import { TokenCounter } from '../../meter/index.ts'
import type { CompactionPlan } from '../shared/slots.ts'

/** The instruction to the model, unless the client has words of its own. */
export const INSTRUCTIONS = `Do not answer the conversation above and do not call tools. Write a summary of it that will take its place: you will go on from the summary alone, and will not see the conversation again. Write down

- what the user wants, and the user's last request word for word where it is not long,
- what was decided, done and found out, and what was tried without success,
- names that are needed again: files, functions, commands, ids, URLs, figures, quoted as they are,
- rules and wishes of the user that still hold,
- what is open, and the next step.

Leave out greetings and whatever is not needed any more. Write the summary only, in the language of the conversation.`

/** The conversation that asks the model for a summary of `sent`. Its beginning is the same, for prompt caches. */
export function askingForSummary(sent: Conversation, { wish, cap }: CompactionPlan): Conversation {
  const { output: _, verbosity: __, maxOutputField: ___, maxSearches: ____, ...rest } = sent
  const ask: TextPart = { type: 'text', text: wish.instructions ?? INSTRUCTIONS }
  const turns = [...sent.turns]
  const last = turns.at(-1)
  if (last?.role === 'user') turns[turns.length - 1] = { role: 'user', parts: [...last.parts, ask] }
  else turns.push({ role: 'user', parts: [ask] })
  return {
    ...rest,
    turns,
    // A search that a provider runs itself does not obey the choice everywhere.
    tools: sent.tools.filter(tool => tool.type !== 'web_search'),
    toolChoice: { type: 'none' },
    parallelToolCalls: true,
    sampling: { stop: [], logprobs: false },
    reasoning: quiet(sent.reasoning.effort),
    maxOutputTokens: cap,
  }
}

/** A summary takes little thought, and thought takes of its cap. */
function quiet(effort: Effort | undefined): Conversation['reasoning'] {
  if (effort === undefined) return {}
  return { effort: EFFORTS.indexOf(effort) > EFFORTS.indexOf('low') ? 'low' : effort }
}

/** UTF-16 units of the longest summary: a provider may write on beyond the cap. */
const LONGEST = 256 * 1024

/** Reads the reply that should be a summary. */
export class SummaryReader {
  #text = ''
  #long = false
  readonly #tokens = new TokenCounter()
  #refused = false
  #finish: FinishEvent | null = null
  #report: ProviderUsage | null = null
  #estimated = false
  readonly #reasoning = new TokenCounter()
  readonly #sequencer = new Sequencer(event => this.#ordered(event))

  push(event: StreamEvent): void {
    this.#sequencer.push(event)
  }

  /** The reply has ended. @returns how */
  end(): FinishEvent['reason'] {
    this.#sequencer.end({ type: 'finish', reason: 'stop' })
    if (this.#refused) return 'refusal'
    return this.#long ? 'length' : this.#finish!.reason
  }

  get summary(): string {
    return this.#text.trim()
  }

  /** Output tokens of what the model wrote. It is counted as it comes, since it may be long. */
  get tokens(): number {
    return this.#tokens.total
  }

  /** What the call used, as the provider reported it, and its reasoning as far as that was seen. */
  get usage(): Pick<CompactionEvent, 'usage' | 'reasoning' | 'estimated'> {
    return { usage: this.#report, reasoning: this.#reasoning.total, estimated: this.#estimated }
  }

  #ordered(event: StreamEvent): void {
    switch (event.type) {
      case 'text':
        this.#tokens.push(event.text)
        this.#long ||= this.#text.length + event.text.length > LONGEST
        if (!this.#long) this.#text += event.text
        return
      case 'refusal':
        this.#refused = true
        return
      case 'reasoning':
        this.#reasoning.push(event.text)
        return
      case 'usage':
        this.#report = event.usage
        this.#estimated = event.estimated === true
        return
      case 'finish':
        this.#finish = event
    }
  }
}
