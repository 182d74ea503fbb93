/** What a client gets when the upstream's connection, framing or timing fails. The table is in test/faults/. */
import { describe } from 'node:test'
import { faultTable } from '../faults/table.ts'
import { connections, framing, stalls } from '../faults/transport.ts'

describe('[STR-6] [ERR-6] [BILL-3] connections', () => faultTable(connections))
describe('[STR-1] [STR-2] [ERR-6] [BILL-3] stalls', () => faultTable(stalls))
describe('[STR-6] [ERR-6] framing', () => faultTable(framing))
