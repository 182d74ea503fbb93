/** What a client gets when the upstream's status or encoding is not what it should be. The table is in test/faults/. */
import { describe } from 'node:test'
import { faultTable } from '../faults/table.ts'
import { encodings, statuses } from '../faults/transport.ts'

describe('[ERR-6] [GEN-7] statuses', () =>
  faultTable(statuses.map(row => ({ modes: ['streamed', 'whole'] as const, ...row }))))
describe('[ERR-6] content encodings', () => faultTable(encodings))
