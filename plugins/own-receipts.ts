import { asGatewayError, printable } from '../core/canon/errors.ts'
import type { Budget } from '../core/engine/budget.ts'
import { answer, definePlugin, deny, type Exchange, type Reply, type SharedState, tenantOf } from '../core/plugin.ts'
import type { LedgerRow, Store } from '../core/ports/store.ts'
import { FairGate } from '../core/tools/fair.ts'
import { requestIdTime } from '../core/tools/ids.ts'
import { counting } from './admission/counting.ts'
import { belowRoute } from './shared/below-route.ts'
import { ClientPace } from './shared/client-pace.ts'
import { disconnection } from './shared/disconnection.ts'
import { receiptOf, signed } from './shared/receipt.ts'
import { type ReceiptKeys, receiptKeys } from './shared/receipt-keys.ts'
import { identity } from './shared/slots.ts'
import { monthOf, statementLines } from './shared/statement.ts'

/** The row of an exchange that has just ended may be on its way into the store: it is looked for once more, ms. */
const ON_ITS_WAY_MS = 200
/** How long ago such an exchange began at most, ms. A longer one is asked for again. */
const YOUNG_MS = 30_000
const PARAMETERS = ['month']

/** A month may have millions of rows, and each receipt is signed. */
export const receiptsBudget = {
  name: 'receipts',
  bound: 'receipts and statements that are being made',
  owner: 'tenant',
  each: 1,
  all: 4,
  over: 'nothing: the next waits, as long as its client does',
  figures: ({ shared }) => {
    const { running: used, waiting } = gateOf(shared)
    return { used, waiting }
  },
} as const satisfies Budget

const gateOf = (shared: SharedState): FairGate =>
  shared.use('own-receipts', () => new FairGate(receiptsBudget.all, receiptsBudget.each))

/**
 * Answers GET /v1/receipts/{id} with the signed receipt of an exchange of the caller's organization, and GET
 * /v1/receipts?month=… with the statement of a month; where a key sees its own use alone, of that. Each answer takes
 * one from the bucket of counts of tokens.
 */
export const ownReceipts = definePlugin({
  name: 'own-receipts',
  summary: 'Answers with signed receipts of the organization, and statements of a month.',
  needs: [identity],
  terminal: true,
  below: { GET: ['{id}'] },
  uses: ['receipts'],
  check: (_, { receipts }) => (receipts.fault === null ? [] : [receipts.fault]),
  create(_, { config, store, shared, clock, log }) {
    const take = counting(store)
    const gate = gateOf(shared)
    const keys = receiptKeys(config.receipts, shared, clock, log)

    async function respond(x: Exchange): Promise<void> {
      const refused = await take(x)
      if (refused) return x.reply(refused)
      const [id] = belowRoute(x) ?? []
      const lines = id === undefined ? statementOf(x, store, keys) : undefined
      if (lines && 'kind' in lines) return x.reply(lines)
      const signal = disconnection(x)
      let leave: () => void
      try {
        leave = await gate.enter(tenantOf(x), signal)
      } catch (error) {
        // The client has left.
        if (signal.aborted) return
        throw error
      }
      try {
        if (lines) await send(x, lines)
        else x.reply(await receiptFor(x, id!))
      } finally {
        leave()
      }
    }

    async function receiptFor(x: Exchange, id: string): Promise<Reply> {
      const { organization, key } = x.get(identity)
      const time = requestIdTime(id)
      if (time === undefined) return unknown(id)
      const find = () => store.row(organization.id, id, time)
      let row: LedgerRow | null = await find()
      if (!row && x.clock.now() - time < YOUNG_MS) {
        await new Promise<void>(resolve => {
          const timer = x.clock.setTimer(ON_ITS_WAY_MS, resolve)
          x.defer(() => {
            timer.cancel()
            resolve()
          })
        })
        row = x.closed ? null : await find()
      }
      if (!row || (key.usage === 'key' && row.key_id !== key.id)) return unknown(id)
      return answer(200, await signed(receiptOf(row), keys.signing))
    }

    return {
      forward(x) {
        respond(x).catch(error => x.fail(asGatewayError(error)))
        return undefined
      },
    }
  },
})

/** The lines of the statement that is asked for, or what is wrong with the question. */
function statementOf(x: Exchange, store: Store, keys: ReceiptKeys): AsyncGenerator<string> | Reply {
  const query = new URLSearchParams(x.incoming.query)
  for (const name of query.keys())
    if (!PARAMETERS.includes(name))
      return deny('unknown_parameter', {
        message: `There is no parameter ${JSON.stringify(printable(name))} here; there is ${PARAMETERS.join(', ')}.`,
        param: printable(name),
      })
  const month = query.get('month')
  if (month === null)
    return deny('missing_required_parameter', {
      message: "Name the month of the statement, such as 'month=2026-11'; or the receipt: /v1/receipts/REQUEST_ID.",
      param: 'month',
    })
  const range = monthOf(month)
  if (!range)
    return deny('invalid_value', {
      message: `'month' is ${JSON.stringify(printable(month))}; write a UTC month such as 2026-11.`,
      param: 'month',
    })
  const { organization, key } = x.get(identity)
  const own = key.usage === 'key'
  const head = {
    object: 'statement' as const,
    version: 1 as const,
    organization: organization.id,
    key: own ? key.id : null,
    month,
    made_at: new Date(x.clock.now()).toISOString(),
  }
  const rows = store.statement({ org: organization.id, ...(own && { key: key.id }), ...range })
  return statementLines(head, rows, keys.signing)
}

async function send(x: Exchange, lines: AsyncGenerator<string>): Promise<void> {
  const pace = new ClientPace(x)
  let begun = false
  for await (const piece of lines) {
    if (x.closed) return
    // Rows were read before the head says that all is well.
    if (!begun) x.respondHead(200, [['content-type', 'application/x-ndjson']])
    begun = true
    pace.send(Buffer.from(piece))
    await pace.until()
    if (x.closed) return
  }
  x.end()
}

function unknown(id: string): Reply {
  return deny('receipt_not_found', {
    message: `There is no receipt of ${JSON.stringify(printable(id))} for this key. A receipt is there once its exchange has ended; its id is the x-request-id of the reply.`,
  })
}
