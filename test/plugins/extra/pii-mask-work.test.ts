/**
 * pii-mask on texts of any size: what it looks at and what it makes is bounded by the text, its work is cut into slices
 * that change nothing of the result, and a prompt that is over a bound is refused whole.
 */
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import fc from 'fast-check'
import type { Conversation } from 'sluice'
import { registerPluginHooks } from '../../../config/modules.ts'

// With them a file can import `sluice`.
registerPluginHooks()
const { conversation, slot } = await import('sluice')
const { plainConversation, runPlugin } = await import('sluice/testing')
const { default: plugin } = await import('../../../plugins/extra/pii-mask.ts')
const { atOnce, Finder, findKinds, KINDS, merged, Pace } = await import('../../../plugins/extra/pii-mask/find.ts')
const { isJson, rewriteJson } = await import('../../../plugins/extra/pii-mask/json.ts')
const { PatternFinder } = await import('../../../plugins/extra/pii-mask/patterns.ts')
const { Masking } = await import('../../../plugins/extra/pii-mask/prompt.ts')
type Span = import('../../../plugins/extra/pii-mask/find.ts').Span

const BOUNDS = { found: 1_000_000, patternWork: 1e12 }
/** Everything in one slice. */
const whole = () => new Pace(BOUNDS, Number.POSITIVE_INFINITY)
const spans = (found: readonly Span[]) => found.map(({ kind, start, end }) => `${kind} ${start} ${end}`)

/** Texts made of what the kinds look for, of parts of it, and of what may stand between. */
const PIECES = [
  ...[
    'a',
    'Z',
    '_',
    '4',
    '0',
    '00',
    '12',
    '123',
    '4111',
    '1111',
    '1',
    ' ',
    '  ',
    '-',
    '.',
    '/',
    '(',
    ')',
    '+',
    '@',
    'é',
  ],
  ...['a@b.cc', 'x.y-z@mail.example.org', '4111 1111 1111 1111', '5500-0055-5555-5559', '4000000000006', 'DE89', ','],
  ...['DE89 3704 0044 0532 0130 00', 'GB82WEST12345698765432', '+49 (0)30 1234567', '0049301234567', '(555) 123-4567'],
  ...[
    '555-123-4567',
    '555.123.4567',
    '[',
    '[EMAIL_QWHDKXZB]',
    '[A_ABCDEFGH',
    ']',
    '😀',
    '\n',
    'b.c',
    '@b.c-',
    'a@b.cd--',
    'xyz',
    '%',
    '٣',
  ],
]
const text = fc.array(fc.constantFrom(...PIECES), { maxLength: 24 }).map(pieces => pieces.join(''))

/** The kinds, each as the expressions say it that were their first form; they are not bounded in stack or memory. */
const NAIVE: Record<(typeof KINDS)[number], (text: string) => Span[]> = {
  email(text) {
    const domain = /(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z][A-Za-z0-9-]{0,61}[A-Za-z0-9]/y
    const found: Span[] = []
    let after = 0
    for (let at = text.indexOf('@'); at !== -1; at = text.indexOf('@', at + 1)) {
      const local = /[\p{L}\p{N}._%+-]{1,64}$/u.exec(
        text.slice(Math.max(after, at - 64), at).replace(/[\ud800-\udfff]/g, ' '),
      )
      domain.lastIndex = at + 1
      if (!local || !domain.test(text)) continue
      found.push({ kind: 'EMAIL', start: at - local[0].length, end: domain.lastIndex })
      after = domain.lastIndex
    }
    return found
  },
  card(text) {
    const found: Span[] = []
    for (let start = 0; start < text.length; start++) {
      if (!/^[2-6]/.test(text.slice(start)) || /[0-9]$/.test(text.slice(0, start))) continue
      for (let digits = 19; digits >= 13; digits--) {
        const match = new RegExp(`^(?:[0-9][ -]?){${digits - 1}}[0-9](?![0-9])`).exec(text.slice(start))
        const sum = [...(match?.[0].replaceAll(/[^0-9]/g, '') ?? '1')]
          .reverse()
          .map((digit, i) => Number(digit) * (1 + (i % 2)))
          .reduce((sum, value) => sum + (value > 9 ? value - 9 : value), 0)
        if (!match || sum % 10 !== 0) continue
        found.push({ kind: 'CARD', start, end: start + match[0].length })
        start += match[0].length - 1
        break
      }
    }
    return found
  },
  phone(text) {
    const form =
      /(?<![\w+])(?:(?:\+|00)[1-9](?:[ .()/-]{0,2}\d){7,14}|(?:\(\d{3}\) ?|\d{3}[-. ])\d{3}[-. ]\d{4})(?!\d)/g
    return [...text.matchAll(form)].map(({ index, 0: all }) => ({
      kind: 'PHONE',
      start: index,
      end: index + all.length,
    }))
  },
  iban(text) {
    const lengths: Record<string, number> = { DE: 22, GB: 22 }
    return [...text.matchAll(/(?<![A-Za-z0-9])([A-Za-z]{2})\d\d/g)].flatMap(({ index, 1: country }) => {
      const length = lengths[country!.toUpperCase()]
      const match =
        length && new RegExp(`^(?:[A-Za-z0-9] ?){${length - 1}}[A-Za-z0-9](?![A-Za-z0-9])`).exec(text.slice(index))
      if (!match) return []
      const number = match[0].replaceAll(' ', '').toUpperCase()
      const digits = [...number.slice(4), ...number.slice(0, 4)]
        .map(character => Number.parseInt(character, 36))
        .join('')
      return BigInt(digits) % 97n === 1n ? [{ kind: 'IBAN', start: index, end: index + match[0].length }] : []
    })
  },
}
const TOKEN = /\[[A-Z]{1,12}_[A-Z]{8}\]/g
function withoutTokens(text: string, found: Span[]): Span[] {
  const tokens = [...text.matchAll(TOKEN)].map(({ index, 0: token }) => [index, index + token.length] as const)
  return found.filter(({ start, end }) => !tokens.some(([from, to]) => start < to && end > from))
}

describe('what is found', () => {
  for (const kind of KINDS)
    test(`${kind}: the same as by an expression over the whole text`, () => {
      fc.assert(
        fc.property(text, text => {
          const [found] = atOnce(findKinds(text, [kind], whole()))
          assert.deepEqual(spans(found!), spans(withoutTokens(text, NAIVE[kind](text))))
        }),
        { numRuns: 1500 },
      )
    })

  test('of two that overlap, the one of the first list holds', () => {
    const list = fc
      .array(fc.tuple(fc.nat({ max: 30 }), fc.integer({ min: 1, max: 6 })), { maxLength: 8 })
      .map(all =>
        all.map(([start, length]) => ({ kind: 'A', start, end: start + length })).sort((a, b) => a.start - b.start),
      )
    fc.assert(
      fc.property(list, list, list, (...lists) => {
        const taken = new Set<number>()
        const chosen: Span[] = []
        for (const span of lists.flat()) {
          const units = Array.from({ length: span.end - span.start }, (_, i) => span.start + i)
          if (units.some(unit => taken.has(unit))) continue
          for (const unit of units) taken.add(unit)
          chosen.push(span)
        }
        chosen.sort((a, b) => a.start - b.start)
        let all: readonly Span[] = []
        for (const list of lists) all = merged(all, list)
        assert.deepEqual(spans(all), spans(chosen))
      }),
    )
  })

  const PATTERNS = [
    'E-\\d{6}',
    '\\b[a-z]+\\d\\b',
    '(?m)^\\w+',
    'a+b?|b',
    '[^,]+$',
    '(?:a|b)*?c',
    '"[^"]*"',
    '(?i)K\\w',
    '(?s).b',
  ]
  test('patterns find in pieces of a text what they find in the whole', async () => {
    // Long enough for several pieces, and each with something at a border.
    const word = fc.constantFrom('a', 'b', 'c', 'ab', 'E-123456', 'x1', '\n', ',', ' ', '"', '.', 'k9', 'K', '😀')
    const long = fc.tuple(fc.array(word, { minLength: 1, maxLength: 40 }), fc.integer({ min: 1, max: 150 }))
    const { RE2JS } = await import('re2js')
    for (const pattern of PATTERNS) {
      const [finder] = await PatternFinder.all({ P: pattern })
      const compiled = RE2JS.compile(pattern)
      fc.assert(
        fc.property(long, ([words, times]) => {
          const text = words.join('').repeat(times)
          const expected: string[] = []
          const matcher = compiled.matcher(text)
          while (matcher.find())
            if (matcher.end() > matcher.start()) expected.push(`P ${matcher.start()} ${matcher.end()}`)
          assert.deepEqual(spans(atOnce(finder!.find(text, whole()))), expected, pattern)
        }),
        { numRuns: 25 },
      )
    }
  })

  // When re2js tells no more which characters its instructions take, long texts would be searched in one piece.
  test('patterns are searched in pieces where one character can end what they match, and not where none can', async () => {
    const cuts = async (pattern: string) => (await PatternFinder.all({ P: pattern }))[0]!.cuts
    assert.deepEqual(await Promise.all(['E-\\d{6}', 'a.*z', '"[^"]*"', '(?s)a.*z'].map(cuts)), [
      ...[true, true, false, false],
    ])
  })
})

describe('what it takes', () => {
  /** A text that counts how often a character of it is read. */
  class CountedText {
    reads = 0
    readonly #text: string
    constructor(text: string) {
      this.#text = text
    }
    get length(): number {
      return this.#text.length
    }
    charCodeAt(at: number): number {
      this.reads++
      return this.#text.charCodeAt(at)
    }
  }
  /** Each character is read once in passing; a card number is looked for from every other one, over 37 of them. */
  const READS = 32

  test('each character is read a bounded number of times, whatever the text is', () => {
    const hard = [
      '4',
      '3 ',
      '3-',
      'a@',
      '@',
      '+1 ',
      '001 ',
      '00',
      'DE89 ',
      'DE89',
      '[A_',
      '(5',
      '(555) 12',
      '1.',
      'a@b.',
      'a@1.',
    ]
    const texts = fc.oneof(
      fc.constantFrom(...hard).map(piece => piece.repeat(20_000 / piece.length)),
      fc
        .array(fc.constantFrom(...hard, ...PIECES), { minLength: 1, maxLength: 6 })
        .map(all => all.join('').repeat(500)),
    )
    fc.assert(
      fc.property(texts, text => {
        const counted = new CountedText(text)
        atOnce(findKinds(counted, KINDS, whole()))
        assert.ok(
          counted.reads <= READS * text.length + 2000,
          `${counted.reads} reads of ${text.length}: ${text.slice(0, 60)}`,
        )
      }),
      { numRuns: 100 },
    )
    for (const piece of hard) {
      const counted = new CountedText(piece.repeat(20_000 / piece.length))
      atOnce(findKinds(counted, KINDS, whole()))
      assert.ok(counted.reads <= READS * counted.length + 2000, `${counted.reads} reads: ${piece}`)
    }
  })

  // A digest for each of them took microseconds, and its strings stayed until the reply had ended.
  test('a prompt with more data than max_found is refused whole, in one text or in many', async () => {
    const mails = Array.from({ length: 12 }, (_, i) => `a${i}@x.org`)
    for (const texts of [[mails.join(' ')], mails]) {
      const parts = texts.map(text => ({ type: 'text' as const, text }))
      const asked = plainConversation({ turns: [{ role: 'user', parts }] })
      const ask = (max_found: number) => runPlugin(plugin, { config: { max_found }, slots: [[conversation, asked]] })
      const refused = await ask(11)
      assert.equal(refused.status, 400)
      assert.equal(refused.json.error.code, 'content_limit_exceeded')
      assert.match(refused.json.error.message, /max_found/)
      assert.ok(!refused.body.includes('@x.org'))
      assert.equal((await ask(12)).status, 200)
    }
  })

  // RE2 is linear for one search. A pattern that may go on to the end of the text was searched from each match anew.
  test('patterns that would take more than max_pattern_work refuse the prompt, before they are run', async () => {
    const ask = (text: string, pattern: string, max_pattern_work?: number) => {
      const asked = plainConversation({ turns: [{ role: 'user', parts: [{ type: 'text', text }] }] })
      return runPlugin(plugin, {
        config: { patterns: { P: pattern }, ...(max_pattern_work !== undefined && { max_pattern_work }) },
        slots: [[conversation, asked]],
        giveUpMs: 60_000,
      })
    }
    for (const [text, pattern] of [
      ['A'.repeat(300_000), '(?s)A(?:.*B)?'],
      // Few matches, but each search may go on for long.
      ['A'.repeat(60_000), '(?s)A(?:.*B)?'],
      ['x'.repeat(3_000_000), '(?s)x.*y'],
    ] as const) {
      const refused = await ask(text, pattern)
      assert.equal(refused.status, 400, refused.body.slice(0, 200))
      assert.equal(refused.json.error.code, 'content_limit_exceeded')
      assert.match(refused.json.error.message, /max_pattern_work/)
    }
    assert.equal((await ask(`${'word '.repeat(200_000)}E-123456`, 'E-\\d{6}')).status, 200)
    assert.equal((await ask('E-123456', 'E-\\d{6}', 10)).status, 400)
  })
})

describe('slices', () => {
  const tokenOf = (kind: string, data: string) => `[${kind}_${String.fromCharCode(65 + (data.length % 26)).repeat(8)}]`
  const json = fc.oneof(
    fc.json({ maxDepth: 3 }),
    text.map(text => JSON.stringify({ [text]: [text, 4111111111111111] })),
    text,
  )
  const parts = fc.array(
    fc.oneof(
      text.map(text => ({ type: 'text' as const, text })),
      json.map(input => ({ type: 'call' as const, id: 'c', kind: 'function' as const, name: 'f', input, path: '' })),
      text.map(text => ({ type: 'search' as const, id: 's', query: text, results: [{ title: text, url: 'u', text }] })),
    ),
    { maxLength: 5 },
  )

  test('wherever the work is cut, the prompt is masked as in one piece', async () => {
    const finder = await Finder.of(KINDS, { P: 'x\\w', Q: '"[^"]*"' })
    fc.assert(
      fc.property(parts, fc.integer({ min: 1, max: 500 }), (parts, slice) => {
        const asked = plainConversation({ turns: [{ role: 'user', parts }] }) as Conversation
        const once = new Masking(finder, tokenOf, whole())
        const sliced = new Masking(finder, tokenOf, new Pace(BOUNDS, slice))
        assert.deepEqual(atOnce(sliced.conversation(asked)), atOnce(once.conversation(asked)))
        assert.deepEqual([...sliced.data], [...once.data])
      }),
      { numRuns: 400 },
    )
  })

  test('what holds no data stays the same object', async () => {
    const finder = await Finder.of(KINDS, {})
    const call = { type: 'call' as const, id: 'c', kind: 'function' as const, name: 'f', input: '{"a":1}', path: '' }
    const turns = [{ role: 'assistant' as const, parts: [{ type: 'text' as const, text: 'plain' }, call] }]
    const masked = atOnce(new Masking(finder, tokenOf, whole()).conversation(plainConversation({ turns })))
    assert.equal(masked.turns, turns)
  })

  // All of it ran in one piece: 4 MiB of digits held up every other request for four seconds.
  test('a long prompt leaves the event loop to others again and again, and organizations take turns', async () => {
    const identity = slot<{ organization: { id: string }; key: { id: string } }>('identity')
    const order: string[] = []
    const ask = async (organization: string, text: string) => {
      const parts = [{ type: 'text' as const, text }]
      let looked = 0
      const asked = plainConversation({ turns: [{ role: 'user', parts }] })
      const waits = setImmediate(function again() {
        looked++
        order.push(organization)
        next = setImmediate(again)
      })
      let next = waits
      const run = await runPlugin(plugin, {
        id: organization,
        slots: [
          [identity, { organization: { id: organization }, key: { id: 'k' } }],
          [conversation, asked],
        ],
        giveUpMs: 60_000,
      })
      clearImmediate(next)
      assert.equal(run.status, 200)
      return looked
    }
    const turns = await ask('large', '3 '.repeat(1_000_000))
    assert.ok(turns >= 16, `${turns} turns`)
    order.length = 0
    const [large, small] = await Promise.all([ask('large', '3 '.repeat(1_000_000)), ask('small', '3 '.repeat(100_000))])
    assert.ok(small < large / 2, `${small} turns of the small one, ${large} of the large one`)
  })

  test('a small prompt is masked at once, without a turn of the event loop', async () => {
    const hooks = await plugin.create(
      { mask: [...KINDS], patterns: { P: 'E-\\d{6}' }, max_found: 1000, max_pattern_work: 1e9, unmask: true },
      { secret: new Uint8Array(32) } as never,
    )
    let set: unknown
    const asked = plainConversation({
      turns: [{ role: 'user', parts: [{ type: 'text', text: `${'word 12 '.repeat(1000)}ann@x.org` }] }],
    })
    const x = {
      get: () => asked,
      peek: () => undefined,
      set: (_: unknown, value: unknown) => (set ??= value),
      closed: false,
    }
    assert.equal(hooks.onRequest!(x as never), undefined)
    assert.ok(!JSON.stringify(set).includes('ann@x.org'))
  })

  test('a client that leaves meanwhile ends the work, and nothing is sent', async () => {
    const { MemoryIncoming } = await import('sluice/testing')
    const client = new MemoryIncoming()
    const asked = plainConversation({
      turns: [{ role: 'user', parts: [{ type: 'text', text: '3 '.repeat(2_000_000) }] }],
    })
    const run = runPlugin(plugin, { request: client, slots: [[conversation, asked]], giveUpMs: 60_000 })
    setImmediate(() => client.abort())
    assert.equal((await run).settlement.outcome, 'client_gone')
  })
})

describe('arguments', () => {
  const almost = fc.oneof(
    fc.json({ maxDepth: 4 }),
    fc
      .array(
        fc.constantFrom(
          ...[
            '{',
            '}',
            '[',
            ']',
            ',',
            ':',
            '"',
            '"a"',
            '"\\u00e9"',
            '"\\',
            '\\n',
            '\\u12',
            '-',
            '0',
            '1',
            '12.5',
            '1e',
            'e+7',
          ],
          ...[
            '.',
            'true',
            'tru',
            'null',
            'false',
            ' ',
            '\n',
            '\u0001',
            'x',
            '{"a":1}',
            '[1,2]',
            '01',
            '-0.1E-2',
            '\u00a0',
          ],
        ),
        { maxLength: 12 },
      )
      .map(all => all.join('')),
  )

  test('a text is taken for JSON exactly when JSON.parse takes it', () => {
    fc.assert(
      fc.property(almost, text => {
        let parses = true
        try {
          JSON.parse(text)
        } catch {
          parses = false
        }
        assert.equal(atOnce(isJson(text, whole())), parses, text)
      }),
      { numRuns: 2500 },
    )
    assert.equal(atOnce(isJson('['.repeat(100_000) + ']'.repeat(100_000), whole())), true)
  })

  test('long strings are decoded and encoded in pieces, wherever an escape or a pair of surrogates stands', () => {
    const same = function* (text: string): Generator<undefined, string> {
      if (text === '') yield
      return text
    }
    const long = fc.tuple(
      fc.integer({ min: 16_370, max: 16_390 }),
      fc.constantFrom('\u0001', '😀', '\n', '"', '\ud800'),
    )
    fc.assert(
      fc.property(long, fc.nat({ max: 8 }), ([length, special], after) => {
        const value = `${'x'.repeat(length)}${special.repeat(3)}${'y'.repeat(after)}${special.repeat(9000)}`
        const seen: string[] = []
        const upper = (text: string) => {
          seen.push(text)
          return same(`${text}!`)
        }
        const escaped = `{"k":"${[...value].map(c => (c === 'x' || c === 'y' ? c : JSON.stringify(c).slice(1, -1))).join('')}"}`
        const written = atOnce(rewriteJson(escaped, upper, same, whole()))
        assert.deepEqual(seen, ['k', value])
        assert.deepEqual(JSON.parse(written), { 'k!': `${value}!` })
        assert.equal(atOnce(rewriteJson(escaped, same, same, whole())), escaped)
      }),
      { numRuns: 60 },
    )
  })
})
