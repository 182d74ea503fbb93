/**
 * Measures the console beside a gateway. The gateway is a process of its own, the console runs here. It writes nothing
 * but temporary files, and asserts nothing.
 *
 *   npm run bench:console [-- --organizations 10000 --days 365 --requests 100000 --loads 40]
 */
import { parseArgs } from 'node:util'
import { installPackages } from '../console/install.ts'

installPackages(true)
const { measurePages } = await import('./console/pages.ts')

const { values: flags } = parseArgs({
  options: {
    organizations: { type: 'string', default: '10000' },
    days: { type: 'string', default: '365' },
    requests: { type: 'string', default: '100000' },
    loads: { type: 'string', default: '40' },
  },
})

await measurePages({
  organizations: Number(flags.organizations),
  days: Number(flags.days),
  requests: Number(flags.requests),
  loads: Number(flags.loads),
})
