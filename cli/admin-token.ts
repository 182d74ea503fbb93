import { randomBytes } from 'node:crypto'
import { parseArgs } from 'node:util'
import { sha256Of } from '../config/stored.ts'
import type { Verb } from './main.ts'
import { UsageError } from './terminal.ts'

const HELP = `Usage: sluice admin-token NAME [--role read|operate]

Makes a token for the admin listener. Standard output has the token, which is
shown once; standard error has the line for server.admin.tokens of
gateway.yaml, with its digest. The default role is read.
`

export const adminToken: Verb = {
  summary: 'Makes a token for the admin API.',
  help: HELP,
  async run(args, terminal) {
    const { values, positionals } = parseArgs({
      args,
      options: { role: { type: 'string', default: 'read' } },
      allowPositionals: true,
    })
    const [name, ...more] = positionals
    if (name === undefined || more.length > 0 || !/^[A-Za-z0-9._-]{1,64}$/.test(name))
      throw new UsageError('give the token one name, of letters, digits and . _ -')
    if (values.role !== 'read' && values.role !== 'operate') throw new UsageError('--role is read or operate')
    const token = `adm-${randomBytes(32).toString('base64url')}`
    terminal.out(token)
    terminal.err('Keep it now. In gateway.yaml, server: { admin: { listen: …, tokens: [ … ] } }:')
    terminal.err(`  - { name: ${name}, role: ${values.role}, sha256: ${sha256Of(token)} }`)
    return 0
  },
}
