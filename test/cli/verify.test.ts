/** `sluice verify`: whatever is done to a statement is found, and a body that was kept is counted as it was billed. */
import assert from 'node:assert/strict'
import { createHash, generateKeyPairSync } from 'node:crypto'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { main } from '../../cli/main.ts'
import { recount } from '../../cli/recount.ts'
import { type Checked, checkAmount, checkFile } from '../../cli/statement-check.ts'
import { cost, type Price, priceUsed } from '../../core/canon/money.ts'
import type { LedgerRow } from '../../core/ports/store.ts'
import { publishedOf, type Receipt, receiptOf, type SigningKey, signed } from '../../plugins/shared/receipt.ts'
import { chained, statementLines } from '../../plugins/shared/statement.ts'
import { Random } from '../random.ts'
import { temporary } from '../stores/kit.ts'

const pair = () => {
  const { privateKey, publicKey } = generateKeyPairSync('ed25519')
  const id = publishedOf(publicKey).kid
  return { signing: { id, key: privateKey } satisfies SigningKey, published: publishedOf(publicKey), id, publicKey }
}
const ours = pair()
const keys = new Map([[ours.id, ours.publicKey]])
const HEAD = {
  object: 'statement',
  version: 1,
  organization: 'acme',
  key: null,
  month: '2026-11',
  made_at: '2026-12-01T00:00:00.000Z',
} as const
const NOVEMBER = Date.UTC(2026, 10, 1)
const HEAD_MADE = Date.parse(HEAD.made_at)
const PRICE = { input: 1_250_000, output: 10_000_000 }

function rowOf(random: Random, i: number): LedgerRow {
  const usage = { input: random.below(5000), cached: 0, cacheWrite: 0, output: random.below(3000) }
  if (random.chance(0.5)) usage.cached = random.below(usage.input + 1)
  return {
    request_id: `req_${String(i).padStart(24, '0')}`,
    time: NOVEMBER + i * 1000,
    organization: 'acme',
    key_id: random.one(['key_1', 'key_2']),
    surface: random.one(['chat', 'messages']),
    model: 'eb1-preview',
    price_book: '2026-11',
    billing: 'standard',
    provider: 'p',
    outcome: 'completed',
    ...usage,
    reasoning: 0,
    searches: 0,
    estimated: false,
    cost: cost(usage, PRICE),
    duration_ms: 1,
    ttfb_ms: 1,
    input_tokens: usage.input,
    tags: random.chance(0.3) ? '{"team":"blü"}' : '',
    price_used: 'model',
    price_input: PRICE.input,
    price_output: PRICE.output,
    body_digest: createHash('sha256').update(String(i)).digest('hex'),
  }
}
async function* pagesOf(rows: readonly LedgerRow[]) {
  if (rows.length > 0) yield rows
}
async function statementOf(count: number, seed = 1, head: object = HEAD, key = ours.signing): Promise<string> {
  const random = new Random(seed)
  const rows = Array.from({ length: count }, (_, i) => rowOf(random, i))
  let text = ''
  for await (const lines of statementLines(head as never, pagesOf(rows), key)) text += lines
  return text
}
async function* inPieces(bytes: Buffer, size: number) {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size)
}
const check = (text: string | Buffer, size = 1 << 16): Promise<Checked> =>
  checkFile(inPieces(Buffer.from(text as string), size), keys)
const faultsOf = async (text: string | Buffer) =>
  (await check(text)).faults.map(({ line, fault }) => `${line}: ${fault}`)

describe('a statement', () => {
  test('as it was made has no fault, however it is read', async () => {
    for (const count of [0, 1, 2, 200]) {
      const text = await statementOf(count)
      for (const size of [1, 7, 1000, 1 << 20]) {
        const { faults, receipts, statement, keys, cost_nano_usd } = await check(text, size)
        assert.deepEqual([faults, receipts, statement!.organization, keys], [[], count, 'acme', [ours.id]])
        const end = JSON.parse(text.trimEnd().split('\n').at(-1)!)
        assert.equal(cost_nano_usd, end.cost_nano_usd)
      }
    }
  })

  test('with any byte changed, taken out or put in has a fault', async () => {
    const bytes = Buffer.from(await statementOf(4, 7))
    const random = new Random(3)
    for (let at = 0; at < bytes.length; at++) {
      const changed = Buffer.from(bytes)
      changed[at] = (bytes[at]! + 1 + random.below(255)) & 255
      assert.ok((await check(changed)).faults.length > 0, `byte ${at} changed to ${changed[at]}`)
      if (at % 5 === 0) {
        const without = Buffer.concat([bytes.subarray(0, at), bytes.subarray(at + 1)])
        assert.ok((await check(without)).faults.length > 0, `without byte ${at}`)
        const more = Buffer.concat([
          bytes.subarray(0, at),
          Buffer.from([random.one([9, 10, 13, 32, 48, 65])]),
          bytes.subarray(at),
        ])
        assert.ok((await check(more)).faults.length > 0, `a byte more at ${at}`)
      }
      // A byte in each of the bits, where one alone could be a bit that means nothing.
      if (at % 50 === 0)
        for (let bit = 0; bit < 8; bit++) {
          const flipped = Buffer.from(bytes)
          flipped[at]! ^= 1 << bit
          assert.ok((await check(flipped)).faults.length > 0, `bit ${bit} of byte ${at}`)
        }
    }
  })

  test('with lines taken out, doubled, moved or cut off has a fault', async () => {
    for (let seed = 1; seed <= 60; seed++) {
      const random = new Random(seed)
      const lines = (await statementOf(2 + random.below(10), seed)).trimEnd().split('\n')
      const at = random.below(lines.length)
      const other = random.below(lines.length)
      const changes: Record<string, string[]> = {
        out: lines.toSpliced(at, 1),
        doubled: lines.toSpliced(other, 0, lines[at]!),
        cut: lines.slice(0, at),
      }
      if (at !== other) changes['moved'] = lines.toSpliced(at, 1).toSpliced(other, 0, lines[at]!)
      for (const [what, changed] of Object.entries(changes)) {
        const { faults } = await check(changed.map(line => `${line}\n`).join(''))
        assert.ok(faults.length > 0, `${what}: ${at}, ${other}, seed ${seed}`)
      }
    }
  })

  test('names the line and the receipt that was changed, and no other', async () => {
    const text = await statementOf(20)
    const lines = text.split('\n')
    const id = JSON.parse(lines[7]!).receipt.request_id
    lines[7] = lines[7]!.replace(/"cost_nano_usd":\d+/, '"cost_nano_usd":1')
    const { faults } = await check(lines.join('\n'))
    assert.deepEqual(faults[0], {
      line: 8,
      request_id: id,
      fault: 'it does not follow from the line before: one of them was changed, moved or added',
    })
    assert.deepEqual(faults[1], { line: 8, request_id: id, fault: 'it was changed: its signature does not fit' })
    assert.match(faults[2]!.fault, /^the receipts come to \d+ nano-USD, and the statement to \d+$/)
    assert.equal(faults.length, 3)
  })

  test('says where a line is missing, once', async () => {
    const lines = (await statementOf(20)).split('\n')
    const faults = await faultsOf(lines.toSpliced(5, 1).join('\n'))
    assert.equal(faults[0], '6: a line is missing before it')
    assert.equal((await faultsOf(lines.toSpliced(5, 3).join('\n')))[0], '6: 3 lines are missing before it')
  })

  test('that was written anew around receipts that fit is found by its end', async () => {
    // Who has no key may leave out a line, and number and chain the others anew.
    const [head, ...rest] = (await statementOf(10))
      .trimEnd()
      .split('\n')
      .map(line => JSON.parse(line))
    const end = rest.pop()
    let chain = createHash('sha256')
      .update(JSON.stringify(Object.fromEntries(Object.entries(head).sort())))
      .digest('base64url')
    const anew = rest.toSpliced(4, 1).map(({ receipt }, i) => {
      chain = chained(chain, receipt)
      return { n: i + 1, receipt, chain }
    })
    const text = (last: object) => [head, ...anew, last].map(line => `${JSON.stringify(line)}\n`).join('')
    assert.deepEqual(await faultsOf(text(end)), ['11: the statement had 10 receipts, and the file has 9'])
    assert.deepEqual(await faultsOf(text({ ...end, receipts: 9 })), ['11: it was changed: its signature does not fit'])
  })

  test('with receipts of another organization, key or month, or one twice, is found', async () => {
    const faults = async (head: object) =>
      (await faultsOf(await statementOf(3, 1, { ...HEAD, ...head }))).map(text => text.slice(3))
    assert.deepEqual(await faults({ organization: 'other' }), Array(3).fill('it belongs to another statement'))
    assert.deepEqual(await faults({ month: '2026-10' }), Array(3).fill('it belongs to another statement'))
    assert.ok((await faults({ key: 'key_9' })).every(fault => fault === 'it belongs to another statement'))
    const random = new Random(1)
    const row = rowOf(random, 1)
    let twice = ''
    for await (const lines of statementLines(HEAD, pagesOf([row, row]), ours.signing)) twice += lines
    assert.deepEqual(await faultsOf(twice), ['3: the receipt is there twice'])
  })

  test('of another gateway, or signed with a key that is not published, does not pass', async () => {
    const strange = await statementOf(2, 1, HEAD, pair().signing)
    const { faults, keys } = await check(strange)
    assert.deepEqual(keys, [])
    assert.equal(faults.length, 3)
    for (const { fault } of faults) assert.match(fault, /a key that is not among the published ones/)
  })

  test('with two keys of a rotation passes', async () => {
    const second = pair()
    const random = new Random(1)
    const first = await signed(receiptOf(rowOf(random, 0)), ours.signing)
    let text = ''
    for await (const lines of statementLines(HEAD, pagesOf([rowOf(random, 1)]), second.signing)) text += lines
    const both = new Map([...keys, [second.id, second.publicKey]])
    assert.deepEqual((await checkFile(inPieces(Buffer.from(text), 100), both)).faults, [])
    const single = await checkFile(inPieces(Buffer.from(JSON.stringify(first)), 100), both)
    assert.deepEqual([single.faults, single.receipts, single.statement], [[], 1, null])
  })

  test('nonsense is told as what it is', async () => {
    for (const [text, fault] of [
      ['', /^1: the file is empty$/],
      ['nonsense\n', /^1: it is no JSON/],
      ['[]\n', /^1: it is no JSON object$/],
      ['{"object":"other"}\n', /^1: it is no receipt$/],
      [`${JSON.stringify(HEAD)}\n`, /^1: the statement has no end: it is cut/],
      [`${JSON.stringify({ ...HEAD, version: 2 })}\n`, /^1: the statement is of a later release/],
    ] as const)
      assert.match((await faultsOf(text))[0]!, fault)
  })
})

test('a receipt that costs more than its counts at its price is found; less is none', () => {
  const receipt = (over: Partial<Receipt>): Receipt => ({ ...receiptOf(rowOf(new Random(1), 1)), ...over })
  const usage = {
    ...receipt({}).usage,
    input_tokens: 1000,
    output_tokens: 100,
    cached_tokens: 0,
    cache_write_tokens: 0,
  }
  // 1000 × 1.25 + 100 × 10 USD per million.
  assert.equal(checkAmount(receipt({ usage, surface: 'chat', cost_nano_usd: 2_250_000 })), null)
  assert.equal(checkAmount(receipt({ usage, surface: 'chat', cost_nano_usd: 10 })), null)
  const found = checkAmount(receipt({ usage, surface: 'chat', cost_nano_usd: 2_250_010 }))
  assert.match(found!.fault!, /costs 2250010 nano-USD; its counts.*2250000/)
  assert.equal(checkAmount(receipt({ price: null, cost_nano_usd: 0 })), null)
  for (let seed = 1; seed < 200; seed++) assert.equal(checkAmount(receiptOf(rowOf(new Random(seed), seed))), null)
})

describe('an honest receipt that does not hold what its cost takes has a note, and no fault', () => {
  const plain = { ...rowOf(new Random(1), 1), input: 10, cached: 0, cacheWrite: 0, output: 5, input_tokens: 10 }
  const found = async (...rows: LedgerRow[]) => {
    let text = ''
    for await (const lines of statementLines(HEAD, pagesOf(rows), ours.signing)) text += lines
    const { faults, notes } = await check(text)
    return { faults: faults.map(({ fault }) => fault), notes, text }
  }
  const compacted = (surface: string): LedgerRow => {
    // The call that made the summary passes the step, and what was asked does not.
    const price: Price = { input: 1_000_000, output: 1_000_000, steps: [{ above: 200_000, input: 2e6, output: 2e6 }] }
    const summary = { input: 200_300, cached: 0, cacheWrite: 0, output: 500 }
    const own = { input: 20_000, cached: 0, cacheWrite: 0, output: 100 }
    return {
      ...plain,
      ...{ surface, input: 220_300, output: 600, input_tokens: 199_900, cost: cost(summary, price) + cost(own, price) },
      ...{ price_used: priceUsed(price, 199_900), price_input: price.input, price_output: price.output },
    }
  }
  const dear: Price = { input: 1_000_000, output: 1_000_000, cached: 1_500_000 }
  const rows: [string, LedgerRow, RegExp][] = [
    [
      'of an older release',
      (({ price_used: _, price_input: __, price_output: ___, ...row }) => row)(plain) as LedgerRow,
      /has a cost and no price, as an older release booked it/,
    ],
    ['of a compaction over a step', compacted('responses'), /where it was compacted/],
    [
      'with cached input that costs more than other input',
      {
        ...plain,
        ...{ cached: 8, cost: cost({ input: 10, cached: 8, output: 5 }, dear), surface: 'chat' },
        ...{ price_input: dear.input, price_output: dear.output },
      },
      /tokens of a cache, whose rates no receipt tells/,
    ],
  ]
  for (const [name, row, note] of rows)
    test(name, async () => {
      const { faults, notes, text } = await found(row, { ...row, request_id: 'req_other' })
      assert.deepEqual(faults, [])
      assert.equal(notes.length, 1)
      assert.match(notes[0]!.note, note)
      assert.deepEqual([notes[0]!.receipts, notes[0]!.line, notes[0]!.request_id], [2, 2, row.request_id])
      const changed = text.replace(/"cost_nano_usd":\d+/, '"cost_nano_usd":99999999')
      assert.ok((await check(changed)).faults.some(({ fault }) => /its signature does not fit/.test(fault)))
    })

  test('where none of these can be, it is a fault', async () => {
    assert.match((await found(compacted('chat'))).faults[0]!, /^it costs \d+ nano-USD; its counts at its price come to/)
    const { cost: _, ...nothing } = plain
    assert.equal((await found({ ...nothing, surface: 'chat', cost: 10_000_000 })).faults.length, 1)
  })
})

const run = async (...args: string[]) => {
  const [out, err]: string[][] = [[], []]
  const code = await main(['verify', ...args], {
    out: text => void out!.push(text),
    err: text => void err!.push(text),
    columns: undefined,
  })
  return { code, out: out!.join('\n'), err: err!.join('\n') }
}

describe('the command', () => {
  const folder = temporary()
  const path = (name: string) => join(folder, name)
  const published = JSON.stringify({ keys: [ours.published] })

  test('needs the published keys, and says how to get them', async () => {
    writeFileSync(path('statement.jsonl'), await statementOf(3))
    const none = await run(path('statement.jsonl'))
    assert.equal(none.code, 1)
    assert.match(none.err, /receipt-keys\.json is not there: curl URL\/v1\/receipts\/keys -o .*--keys/)
    writeFileSync(path('wrong.json'), '{}')
    assert.match(
      (await run(path('statement.jsonl'), '--keys', path('wrong.json'))).err,
      /is no file of published keys: it has no list of keys/,
    )
    writeFileSync(path('other.json'), published)
    assert.equal((await run(path('statement.jsonl'), '--keys', path('other.json'))).code, 0)
    writeFileSync(path('receipt-keys.json'), published)
    const { code, out } = await run(path('statement.jsonl'))
    assert.equal(code, 0)
    assert.match(
      out,
      /^statement of acme, 2026-11, made .*: 3 receipts, 0\.\d{9} USD\nsigned with the key .{43}\nEach receipt is as it was signed, none is missing, and they add up\.$/,
    )
    assert.equal((await run()).code, 2)
    assert.match((await run(path('nowhere'))).err, /there is no file/)
  })

  test('takes one receipt, printed on one line or over several', async () => {
    const receipt = await signed(receiptOf(rowOf(new Random(1), 1)), ours.signing)
    for (const text of [JSON.stringify(receipt), JSON.stringify(receipt, null, 2)]) {
      writeFileSync(path('receipt.json'), text)
      const { code, out } = await run(path('receipt.json'))
      assert.equal(code, 0)
      assert.match(out, /1 receipt,.*Whether others are missing, a statement alone can tell/s)
    }
    writeFileSync(path('receipt.json'), JSON.stringify({ ...receipt, outcome: 'incomplete' }))
    const { code, err } = await run(path('receipt.json'))
    assert.deepEqual([code, err], [1, `line 1, ${receipt.request_id}: it was changed: its signature does not fit`])
  })

  test('lists twenty faults, and for programs all of them', async () => {
    const lines = (await statementOf(60))
      .split('\n')
      .map(line => line.replace('"billing":"standard"', '"billing":"free"'))
    writeFileSync(path('bad.jsonl'), lines.join('\n'))
    const { code, err } = await run(path('bad.jsonl'))
    assert.equal(code, 1)
    assert.match(err, /and 100 faults more$/)
    const json = JSON.parse((await run(path('bad.jsonl'), '--json')).out)
    assert.deepEqual([json.ok, json.faults.length, json.receipts], [false, 120, 60])
  })

  test('finds the receipts of bodies, and counts these as they were billed', async () => {
    const body = (text: string) => JSON.stringify({ model: 'eb1-preview', messages: [{ role: 'user', content: text }] })
    const bodies = ['Hello', 'Another one', 'Wrongly billed', 'Not billed', 'Never sent'].map(body)
    const random = new Random(5)
    const rows: LedgerRow[] = []
    for (const [i, text] of bodies.slice(0, 4).entries()) {
      const { tokens } = await recount('chat', Buffer.from(text), { image_tokens: 85, document_tokens: 1500 })
      const input = [tokens!, tokens!, tokens! + 1, 0][i]!
      const usage = { input, cached: 0, cacheWrite: 0, output: 3 }
      const row = { ...rowOf(random, i), surface: 'chat', ...usage, cost: cost(usage, PRICE) }
      rows.push({ ...row, body_digest: createHash('sha256').update(text).digest('hex') })
    }
    let text = ''
    for await (const lines of statementLines(HEAD, pagesOf(rows), ours.signing)) text += lines
    writeFileSync(path('bodies.jsonl'), text)
    mkdirSync(path('kept'))
    for (const [i, text] of bodies.entries()) writeFileSync(path(`kept/${i}.json`), text)
    const { code, out, err } = await run(path('bodies.jsonl'), '--bodies', path('kept'))
    assert.equal(code, 1)
    assert.match(out, /kept\/0\.json: \d+ tokens, as billed\n/)
    assert.match(out, /kept\/3\.json: it was not billed\n/)
    assert.match(out, /2 of 5 bodies were counted as they were billed\.$/)
    assert.match(err, /kept\/4\.json: no receipt is of this body$/)
    assert.match(err, /kept\/2\.json: it has (\d+) tokens, and \d+ were billed \(req_/)
    assert.match((await run(path('bodies.jsonl'), '--bodies', path('nowhere'))).err, /cannot be read: ENOENT/)
  })
})

describe('several receipts and files', () => {
  const dir = temporary()
  const keysFile = join(dir, 'receipt-keys.json')
  writeFileSync(keysFile, JSON.stringify({ keys: [ours.published] }))
  const put = (name: string, text: string) => {
    writeFileSync(join(dir, name), text)
    return join(dir, name)
  }
  const verified = async (...files: string[]) => run(...files, '--keys', keysFile)
  const random = new Random(11)
  const rows = Array.from({ length: 5 }, (_, i) => rowOf(random, i))
  const line = async (row: LedgerRow, by = ours.signing) => `${JSON.stringify(await signed(receiptOf(row), by))}\n`
  const other: LedgerRow = { ...rows[2]!, outcome: 'incomplete' }
  const statement = async (of: readonly LedgerRow[], head: object = {}) => {
    let text = ''
    for await (const lines of statementLines({ ...HEAD, ...head } as never, pagesOf(of), ours.signing)) text += lines
    return text
  }

  test('two receipts of one request that differ are a fault; the same one twice is none', async () => {
    const twice = put('twice.jsonl', (await line(rows[2]!)) + (await line(rows[1]!)) + (await line(rows[2]!)))
    const same = await verified(twice)
    assert.deepEqual([same.code, same.err], [0, ''])
    assert.match(same.out, /^receipts: 2 receipts,/)
    const two = await verified(put('two.jsonl', (await line(rows[2]!)) + (await line(other))))
    assert.equal(two.code, 1)
    assert.equal(
      two.err,
      `line 2, ${other.request_id}: another receipt of this request is signed too, in line 1, and they differ`,
    )
  })

  test('a receipt that was kept is held against the statement', async () => {
    const all = put('all.jsonl', await statement(rows))
    const kept = put('kept.json', await line(rows[2]!))
    assert.deepEqual((await verified(all, kept)).code, 0)
    const differs = put('differs.json', await line(other))
    for (const [first, second, at] of [
      [all, differs, 4],
      [differs, all, 1],
    ] as const) {
      const { code, err } = await verified(first, second)
      assert.equal(code, 1)
      assert.ok(err.startsWith(`${second}: line `), err)
      assert.ok(err.includes(`is signed too, in line ${at} of ${first}, and they differ`), err)
    }
    const json = JSON.parse((await verified(all, differs, '--json')).out)
    assert.deepEqual([json.ok, json.files.map((each: { faults: object[] }) => each.faults.length)], [false, [0, 1]])
  })

  test('a receipt that the statement of its month does not have is a fault', async () => {
    const without = put('without.jsonl', await statement(rows.toSpliced(2, 1)))
    const kept = put('kept.json', await line(rows[2]!))
    const { code, err } = await verified(kept, without)
    assert.equal(code, 1)
    assert.equal(
      err,
      `${kept}: line 1, ${rows[2]!.request_id}: the statement of its month, ${without}, does not have it`,
    )
    // Of another key, organization or month, and one that may have been running when the statement was made.
    for (const change of [{ organization: 'other' }, { time: NOVEMBER - 1 }, { time: HEAD_MADE - 1000 }])
      assert.equal((await verified(put('kept.json', await line({ ...rows[2]!, ...change })), without)).code, 0)
    const early = put('early.jsonl', await statement([], { made_at: '2026-11-01T20:00:00.000Z' }))
    assert.equal((await verified(kept, early)).code, 0)
    const ofKey = put('of-key.jsonl', await statement([], { key: 'key_9' }))
    assert.equal((await verified(put('kept.json', await line(rows[2]!)), ofKey)).code, 0)
  })

  test('a statement that was made before its month was over says up to when it is whole', async () => {
    const made_at = '2026-11-20T10:00:00.000Z'
    const early = put('early.jsonl', await statement(rows, { made_at }))
    const { code, out } = await verified(early)
    assert.equal(code, 0)
    assert.match(out, /^None is missing of what had ended by 2026-11-20T10:00:00\.000Z\. The month was not over then/m)
    assert.doesNotMatch(out, /none is missing, and/)
    assert.equal(JSON.parse((await verified(early, '--json')).out).whole_until, made_at)
    const never = await verified(put('never.jsonl', await statement(rows, { made_at: 'x' })))
    assert.match(never.err, /line 1: the statement does not say when it was made/)
  })

  test('a body without a receipt makes the exit code 1, and receipts without a digest are counted', async () => {
    const bodies = join(dir, 'bodies')
    mkdirSync(bodies)
    writeFileSync(join(bodies, 'body.json'), '{}')
    const bare = rows.map(row => ({ ...row, input: 10, cached: 0, body_digest: '' }))
    const { code, out, err } = await verified(put('bare.jsonl', await statement(bare)), '--bodies', bodies)
    assert.equal(code, 1)
    assert.match(err, /body\.json: no receipt is of this body$/)
    assert.match(out, /^5 billed receipts have no digest: no body can be held against them\.$/m)
  })
})

describe('a bill that differs from the count of its body', () => {
  const messages = (content: string, more: object = {}) =>
    JSON.stringify({ model: 'm', max_tokens: 10, messages: [{ role: 'user', content }], ...more })
  const cleared = { context_management: { edits: [{ type: 'clear_tool_uses_20250919' }] } }
  const mail = 'Write to ann.smith@example.com at once'
  const dir = temporary()
  writeFileSync(join(dir, 'receipt-keys.json'), JSON.stringify({ keys: [ours.published] }))
  mkdirSync(join(dir, 'kept'))

  for (const [name, body, more, code, said, ...args] of [
    ['below it is explained by edits', messages('Hello there', cleared), -1, 0, /may have cleared parts/],
    [
      'above it is not explained by edits',
      messages('Hello there', cleared),
      1,
      1,
      /more than this explains: .*cleared/,
    ],
    ['is explained by data that may be masked', messages(mail), 9, 0, /has personal data \(one datum\), which/],
    ['by less, too', messages(mail), -2, 0, /has personal data/],
    ['and not where it is far above', messages(mail), 60, 1, /more than this explains: it has personal data/],
    ['is a fault where nothing explains it', messages('Hello there'), 9, 1, /\d+ were billed \(req_\d+\)$/],
    ['is none where the gateway is said to change prompts', messages('Hello'), 9, 0, /changes prompts/, '--rewritten'],
  ] as [string, string, number, number, RegExp, ...string[]][])
    test(name, async () => {
      const counted = await recount('messages', Buffer.from(body), { image_tokens: 85, document_tokens: 1500 })
      const input = counted.tokens! + more
      const usage = { input, cached: 0, cacheWrite: 0, output: 3 }
      const digest = createHash('sha256').update(body).digest('hex')
      const row = { ...rowOf(new Random(1), 1), surface: 'messages', ...usage, cost: cost(usage, PRICE) }
      const receipt = await signed(receiptOf({ ...row, body_digest: digest }), ours.signing)
      writeFileSync(join(dir, 'receipt.json'), JSON.stringify(receipt))
      writeFileSync(join(dir, 'kept/body.json'), body)
      const ran = await run(join(dir, 'receipt.json'), '--bodies', join(dir, 'kept'), ...args)
      assert.equal(ran.code, code, ran.out + ran.err)
      const line = (code === 0 ? ran.out : ran.err).split('\n').find(text => text.includes('body.json:'))!
      assert.match(line, said)
    })
})

describe('what else than its body the count of a request depends on is said', () => {
  const media = { image_tokens: 85, document_tokens: 1500 }
  const why = async (surface: string, body: object) => {
    const counted = await recount(surface, Buffer.from(JSON.stringify(body)), media)
    return counted.tokens === null ? counted.why : counted.unless
  }
  const messages = [{ role: 'user', content: 'Hello' }]
  for (const [name, surface, body, expected] of [
    ['nothing', 'messages', { model: 'm', max_tokens: 10, messages }, null],
    [
      'a response that is continued',
      'responses',
      { model: 'm', input: 'x', previous_response_id: 'resp_1' },
      /continues a response/,
    ],
    [
      'a compaction',
      'responses',
      { model: 'm', input: 'x', context_management: [{ type: 'compaction', compact_threshold: 1000 }] },
      /compacted/,
    ],
    [
      'edits',
      'messages',
      { model: 'm', max_tokens: 10, messages, context_management: { edits: [{ type: 'clear_tool_uses_20250919' }] } },
      /cleared parts/,
    ],
    [
      'an image',
      'chat',
      {
        model: 'm',
        messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url: 'https://example.com/a.png' } }] }],
      },
      /has an image/,
    ],
    ['another route', 'ANY /v1/files/*', {}, /not counted by their bodies/],
    ['a body that is none', 'chat', { messages: 7 }, /does not take such a body/],
  ] as const)
    test(name, async () => {
      const found = await why(surface, body)
      if (expected === null) assert.equal(found, null)
      else assert.match(found!, expected)
    })
})
