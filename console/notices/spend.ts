/** Mails at 50, 80 and 100 % of a spend limit: the gateway finds out, and hands its notices out from a cursor. */
import { underLease } from '../db/lease.ts'
import { type SpendNotice, StaffGateway } from '../staff/gateway.ts'
import type { Parts } from '../web/visit.ts'
import { tellMembers } from './outbox.ts'

const LEASE_MS = 30_000
const PAGE = 200
/** What a console finds that was down for longer, or that is new, is no news any more. */
const NEWS_MS = 86_400_000

/** Writes mails for what came since the last time. */
export async function readSpendNotices(parts: Parts): Promise<void> {
  const staff = new StaffGateway(parts.config, 'console:notices')
  const now = parts.now()
  await underLease(parts.db, 'spend notices', { now, forMs: LEASE_MS }, async cursor => {
    for (;;) {
      const query = { limit: String(PAGE), ...(cursor !== '' && { after: cursor }) }
      const page = await staff.notices(query)
      await parts.db.transaction().execute(async step => {
        for (const notice of page.notices) {
          if (notice.time < now - NEWS_MS) continue
          await tellMembers(step, notice.organization, 'billing.see', mailOf(notice, parts.config), now)
        }
      })
      cursor = page.next
      if (page.notices.length < PAGE) return cursor
    }
  })
}

const usd = (nano: number): string =>
  (nano / 1e9).toLocaleString('en-US', { style: 'currency', currency: 'USD', maximumFractionDigits: 2 })

function mailOf(notice: SpendNotice, { url, name }: Parts['config']) {
  const { organization, key, model, period, period_start, percent, limit_nano_usd, spent_nano_usd } = notice
  const whose = [key === null ? organization : `the key ${key} of ${organization}`, model && `on ${model}`]
  const limit = `${period === 'day' ? 'daily' : 'monthly'} spend limit`
  const when = period === 'day' ? `the day ${period_start.slice(0, 10)}` : period_start.slice(0, 7)
  const then =
    percent === 100
      ? `Requests are refused with 429 until the ${period} is over, in UTC, or the limit is higher.`
      : 'Requests go on being served.'
  return {
    // What it is about, and not the notice's id: a gateway with a new store counts anew.
    id: `spend:${[organization, key ?? '', model ?? '', period, period_start, percent, limit_nano_usd].join(':')}`,
    subject: `${name}: ${percent} % of the ${limit} of ${organization} is spent`,
    body: `Of the ${limit} of ${whose.filter(Boolean).join(' ')}, ${percent} % is spent for ${when}:
${usd(spent_nano_usd)} of ${usd(limit_nano_usd)}.

${then}

Limits: ${url}/o/${organization}/limits
Usage: ${url}/o/${organization}
`,
  }
}
