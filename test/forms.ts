/** The forms that the surfaces' parsers state, for conversations that tests write themselves. */
import type { ClientForm } from '../core/canon/conversation.ts'
import { form as chat } from '../surfaces/chat/form.ts'
import { form as messages } from '../surfaces/messages/form.ts'
import { form as responses } from '../surfaces/responses/form.ts'

export const FORMS: Readonly<Record<string, ClientForm>> = { chat, responses, messages }
