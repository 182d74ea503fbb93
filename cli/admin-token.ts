import { randomBytes } from 'node:crypto'
import { parseArgs } from 'node:util'
import { ACTIONS } from '../config/schema.ts'
import { sha256Of } from '../config/stored.ts'
import type { Verb } from './main.ts'
import { UsageError } from './terminal.ts'

const HELP = `Usage: sluice admin-token NAME [--role read|operate] [OPTIONS]

Makes a token for the admin listener. Standard output has the token, which is
shown once; standard error has the line for server.admin.tokens of
gateway.yaml, with its digest. The default role is read.

  --acts-for required  good for requests with the header Sluice-Act-For alone,
                       and for nothing outside that organization
  --actions LIST       bound to these: ${ACTIONS.join(', ')}
`

export const adminToken: Verb = {
  summary: 'Makes a token for the admin API.',
  help: HELP,
  async run(args, terminal) {
    const { values, positionals } = parseArgs({
      args,
      options: {
        role: { type: 'string', default: 'read' },
        'acts-for': { type: 'string', default: 'optional' },
        actions: { type: 'string' },
      },
      allowPositionals: true,
    })
    const [name, ...more] = positionals
    if (name === undefined || more.length > 0 || !/^[A-Za-z0-9._-]{1,64}$/.test(name))
      throw new UsageError('give the token one name, of letters, digits and . _ -')
    if (values.role !== 'read' && values.role !== 'operate') throw new UsageError('--role is read or operate')
    const actsFor = values['acts-for']
    if (actsFor !== 'optional' && actsFor !== 'required') throw new UsageError('--acts-for is required, or left out')
    const actions = values.actions?.split(',').map(action => action.trim())
    const wrong = actions?.find(action => !ACTIONS.some(known => known === action))
    if (wrong !== undefined) throw new UsageError(`--actions: '${wrong}' is none of ${ACTIONS.join(', ')}`)
    const bounds = [
      ...(actsFor === 'required' ? ['acts_for: required'] : []),
      ...(actions ? [`actions: [${actions.join(', ')}]`] : []),
    ]
    const token = `adm-${randomBytes(32).toString('base64url')}`
    terminal.out(token)
    terminal.err('Keep it now. In gateway.yaml, server: { admin: { listen: …, tokens: [ … ] } }:')
    const members = [`name: ${name}`, `role: ${values.role}`, ...bounds, `sha256: ${sha256Of(token)}`]
    terminal.err(`  - { ${members.join(', ')} }`)
    return 0
  },
}
