/**
 * Measures the console beside a gateway. The gateway is a process of its own, the console runs here. It writes nothing
 * but temporary files, and asserts nothing.
 *
 * - payments: from a payment to the headers of the public API
 * - pages: times of pages, which are asked for one after the other, with many organizations and a year of usage
 *
 *   npm run bench:console [-- --only payments --payments 20]
 *   npm run bench:console [-- --only pages --organizations 10000 --days 365 --requests 100000 --loads 40]
 */
import { parseArgs } from 'node:util'
import { installPackages } from '../console/install.ts'

installPackages(true)
const { measurePages } = await import('./console/pages.ts')
const { measurePayments } = await import('./console/payments.ts')

const { values: flags } = parseArgs({
  options: {
    only: { type: 'string' },
    payments: { type: 'string', default: '20' },
    organizations: { type: 'string', default: '10000' },
    days: { type: 'string', default: '365' },
    requests: { type: 'string', default: '100000' },
    loads: { type: 'string', default: '40' },
  },
})
const wants = (part: string) => flags.only === undefined || flags.only === part

if (wants('payments')) await measurePayments(Number(flags.payments))
if (wants('pages'))
  await measurePages({
    organizations: Number(flags.organizations),
    days: Number(flags.days),
    requests: Number(flags.requests),
    loads: Number(flags.loads),
  })
