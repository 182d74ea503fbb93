/** What a client gets for each documented error of the providers. The table is in test/faults/. */
import { describe } from 'node:test'
import { answers, inStream } from '../faults/answers.ts'
import { faultTable } from '../faults/table.ts'

describe('[AUTH-7] [ERR-6] [ERR-7] [GEN-7] documented error answers', () => faultTable(answers))
describe('[ERR-8] [STR-6] [BILL-3] errors inside streams', () => faultTable(inStream))
