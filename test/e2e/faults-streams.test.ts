/** What a client gets when the upstream's body is malformed. The table is in test/faults/. */
import { describe } from 'node:test'
import { dialects, events, lines } from '../faults/streams.ts'
import { faultTable } from '../faults/table.ts'

describe('[STR-6] lines of an event stream', () => faultTable(lines))
describe('[STR-6] [BILL-3] events and bodies', () => faultTable(events))
describe('[STR-1] [STR-6] the other dialects', () => faultTable(dialects))
