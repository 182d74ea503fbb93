/**
 * Replays what is recorded in `recorded/` through the gateway as its users meet it, the command line and the wire, and
 * compares byte by byte. `npm run test:golden -- --update` records anew (CONTRIBUTING.md).
 */
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import type { Book } from './kit/book.ts'
import { checkConfigurations } from './kit/configurations.ts'
import { type Outcome, replay } from './kit/exchanges.ts'
import { Gateway, sluice } from './kit/gateway.ts'
import { settle, shelf, title } from './kit/settle.ts'
import { converse } from './kit/socket.ts'
import { startUpstream } from './kit/upstream.ts'
import { speak } from './kit/wire.ts'

/**
 * Books of one configuration share a gateway, one exchange after the other, but for those that are `alone`, since their
 * exchanges leave something behind. Gateways run side by side.
 */
const served = Map.groupBy([...shelf('exchanges'), ...shelf('sockets'), ...shelf('wire')], book =>
  book.setting('alone') === undefined ? book.setting('gateway')! : book.name,
)

describe('what is recorded', { concurrency: true }, () => {
  for (const together of served.values()) {
    const run = once(() => serve(together))
    for (const book of together) {
      test(title(book), async () => settle(book, (await run()).get(book)!))
    }
  }
  for (const book of shelf('configurations')) {
    test(title(book), async () => settle(book, await checkConfigurations(book)))
  }
})

const DRIVERS: Record<string, typeof replay> = { exchanges: replay, sockets: converse, wire: speak }

async function serve(together: readonly Book[]): Promise<Map<Book, string[][]>> {
  const upstream = await startUpstream()
  const gateway = await Gateway.start(together[0]!.setting('gateway')!, upstream.address)
  try {
    const outcomes = new Map<Book, Outcome[]>()
    for (const book of together) {
      outcomes.set(book, await DRIVERS[book.setting('kind')!]!(book, gateway, upstream))
    }
    await gateway.stop()
    const rows = await ledger(gateway)
    return new Map(
      [...outcomes].map(([book, list]) => [
        book,
        list.map(({ lines, requestId, normaliser }) => {
          const row = requestId === undefined ? undefined : rows.get(requestId)
          return row === undefined ? lines : [...lines, `ledger ${normaliser.text(row)}`]
        }),
      ]),
    )
  } finally {
    await gateway.stop()
    gateway.remove()
    await upstream.close()
  }
}

/** Ledger rows by request id, as one JSON text without what is time and chance, and without what is 0. */
async function ledger(gateway: Gateway): Promise<Map<string, string>> {
  const { out, err, code } = await sluice(
    ['usage', '--rows', '--json', '--since', '2000-01-01', '--store', `sqlite:${gateway.folder}/gateway.db`],
    gateway.folder,
  )
  assert.equal(code, 0, err)
  const rows = JSON.parse(out) as Record<string, unknown>[]
  return new Map(
    rows.map(({ request_id, time, duration_ms, ttfb_ms, ...row }) => [
      request_id as string,
      JSON.stringify(
        Object.fromEntries(Object.entries({ ...row, replied: ttfb_ms !== null }).filter(([, value]) => value)),
      ),
    ]),
  )
}

function once<T>(make: () => Promise<T>): () => Promise<T> {
  let made: Promise<T> | undefined
  return () => (made ??= make())
}
