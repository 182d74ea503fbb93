/** Limits: what is configured, where it stands now, and what a refusal looks like. */
import { html } from 'hono/html'
import { page } from '../views/layout.ts'
import { empty } from '../views/parts.ts'
import { type Answer, get, type MemberVisit, type Page } from '../web/visit.ts'
import { limitMeters } from './meters.ts'

export const limits: Page = {
  name: 'limits',
  menu: { label: 'Limits', path: '/limits', right: 'limits' },
  routes: [get.member('/limits', 'limits', show)],
}

/** As a gateway says it; console/test/pages.test.ts compares it with a real one. */
export const REFUSAL = `HTTP/1.1 429 Too Many Requests
retry-after: 12
retry-after-ms: 11480
x-ratelimit-limit-requests: 60
x-ratelimit-remaining-requests: 0
x-ratelimit-reset-requests: 12s
x-ratelimit-scope: org

{
  "error": {
    "message": "The limit of 60 requests per minute of this organization is reached …",
    "type": "rate_limit_error",
    "code": "requests_limit_exceeded",
    "param": null,
    "request_id": "req_…",
    "retryable": true,
    "details": { "dimension": "requests", "limit": 60, "retry_after_seconds": 12 }
  }
}`

async function show(visit: MemberVisit): Promise<Answer> {
  const { gateway, organization } = visit
  const { limits, plan, keys } = await gateway.organization()
  const narrow = keys.filter(({ status, limits }) => status !== 'revoked' && limits && limits.length > 0)
  return page(
    visit,
    'Limits',
    html`<p>Your plan is <strong>${plan}</strong>. A request is taken when every limit allows it; limits of minutes
      fill up
        again steadily, and those of days and months begin anew in UTC.</p>
      <section><h2>The organization now</h2>
        ${limits.length > 0 ? html`<div class="card">${limitMeters(limits)}</div>` : empty('This plan has no limits.')}
      </section>
      ${narrow.map(
        key => html`<section><h2><a href="/o/${organization.id}/keys/${key.id}">${key.label ?? key.id}</a></h2>
          <div class="card">${limitMeters(key.limits!)}</div></section>`,
      )}
      <section><h2>When a limit refuses a request</h2>
        <p>The answer is 429. It names the limit, and <code>retry-after-ms</code> tells how long to wait: wait so
          long, and
          send the same request again. When <code>x-should-retry</code> is <code>false</code>, waiting does not
            help: the
          message says what to change. Every reply has the limits and what is left of them in its headers.</p>
        <pre>${REFUSAL}</pre>
      </section>`,
  )
}
