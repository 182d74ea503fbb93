/** The rows of the table, in the order of the specification. */
import { authentication } from './rows/authentication.ts'
import { chat, fields } from './rows/chat.ts'
import { endpoints } from './rows/endpoints.ts'
import { errors } from './rows/errors.ts'
import { events } from './rows/events.ts'
import { identifiers, retained } from './rows/identifiers.ts'
import { dimensions, headers, limits, plans } from './rows/limits.ts'
import { models } from './rows/models.ts'
import { service } from './rows/service.ts'
import { shapes } from './rows/shapes.ts'
import { states } from './rows/states.ts'
import { usage } from './rows/usage.ts'
import { versioning } from './rows/versioning.ts'

export const ROWS = [
  ...service,
  ...models,
  ...fields,
  ...chat,
  ...shapes,
  ...usage,
  ...identifiers,
  ...retained,
  ...states,
  ...endpoints,
  ...authentication,
  ...events,
  ...errors,
  ...dimensions,
  ...plans,
  ...headers,
  ...limits,
  ...versioning,
]
