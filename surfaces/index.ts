/** The three wire formats that clients speak. */
import type { SurfaceTable } from '../core/surface.ts'
import { chat } from './chat/index.ts'
import { messages } from './messages/index.ts'
import { responses } from './responses/index.ts'

export const surfaces: SurfaceTable = { responses, chat, messages }
