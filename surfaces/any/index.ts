/** The three APIs on one path, for what is asked of a request of any of them: `surface: any` of a route. */
import { ANY_SURFACE } from '../../core/canon/conversation.ts'
import type { Surface } from '../../core/ports/surface.ts'
import { chat } from '../chat/index.ts'
import { errorBody } from '../envelope.ts'
import { messages } from '../messages/index.ts'
import { responses } from '../responses/index.ts'

const each = [responses, chat, messages]

const membersOf = ({ requestSchema }: Surface) => Object.keys(requestSchema['properties'] as Record<string, unknown>)

/** Members that Messages has and Chat Completions does not, such as `stop_sequences`. */
const ofMessages = membersOf(messages).filter(member => !membersOf(chat).includes(member))

const untold = () => new Error('validation has to tell which surface a request is of, before anything else reads it')

export const any: Surface = {
  name: ANY_SURFACE,
  title: 'Any of the three APIs',
  path: '',
  keyHeader: messages.keyHeader!,
  requestSchema: { anyOf: each.map(({ requestSchema }) => requestSchema) },
  requestIdHeaders: [],
  told: {
    surfaces: each,
    members: ['messages', 'input', ...ofMessages],
    // What both Chat Completions and Messages accept has the same meaning in the two (test/plugins/quote.test.ts).
    by(headers, names) {
      if (messages.ownHeaders!.some(name => headers.has(name))) return [messages]
      if (!names.has('messages')) return [names.has('input') ? responses : chat]
      return ofMessages.some(name => names.has(name)) ? [messages] : [chat, messages]
    },
  },
  validate() {
    throw untold()
  },
  parse() {
    throw untold()
  },
  encoder() {
    throw untold()
  },
  error: errorBody,
}
