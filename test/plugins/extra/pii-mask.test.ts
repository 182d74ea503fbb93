/** pii-mask: what is found, in all parts of a prompt, and what comes back in a reply, however the reply is cut. */
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import fc from 'fast-check'
import type { Conversation, StreamEvent } from 'sluice'
import { registerPluginHooks } from '../../../config/modules.ts'

// With them a file can import `sluice`.
registerPluginHooks()
const { conversation } = await import('sluice')
const { plainConversation, runPlugin } = await import('sluice/testing')
const { default: plugin } = await import('../../../plugins/extra/pii-mask.ts')

type Config = NonNullable<Parameters<typeof runPlugin<any>>[1]>['config']
const TOKEN = /\[[A-Z]+_[A-Z]{8}\]/g
const MAIL = 'ann.o+x@mail.example.co'
const CARD = '4111 1111 1111 1111'
const IBAN = 'DE89 3704 0044 0532 0130 00'

/** The conversation that goes on from the plugin, and the events of the reply to it. */
async function run(
  over: Partial<Conversation>,
  reply: (sent: Conversation) => StreamEvent[] = () => [],
  config: Config = {},
) {
  const events: StreamEvent[] = []
  const asked = plainConversation(over)
  const first = await runPlugin(plugin, { config, slots: [[conversation, asked]] })
  const sent = first.exchange.get(conversation)
  events.push(...reply(sent))
  const second = await runPlugin(plugin, { config, slots: [[conversation, asked]], events })
  return { sent, events: second.events, text: second.events.map(e => (e.type === 'text' ? e.text : '')).join('') }
}
const user = (text: string): Partial<Conversation> => ({ turns: [{ role: 'user', parts: [{ type: 'text', text }] }] })
const userText = (sent: Conversation) => (sent.turns[0]!.parts[0] as { text: string }).text
async function hidden(text: string, config: Config = {}): Promise<string> {
  return userText((await run(user(text), () => [], config)).sent)
}
const shape = (text: string) => text.replaceAll(/_[A-Z]{8}\]/g, ']')

describe('what is found', () => {
  const cases: [string, string][] = [
    [`write to ${MAIL}, now`, 'write to [EMAIL], now'],
    ['<bob@x.org> and mailto:eve@y.z.net.', '<[EMAIL]> and mailto:[EMAIL].'],
    ['user@localhost is no address; @handle neither', 'user@localhost is no address; @handle neither'],
    [`card ${CARD}.`, 'card [CARD].'],
    ['order 12 4111111111111111 of 3', 'order 12 [CARD] of 3'],
    ['4111 1111 1111 1112 has a wrong check digit', '4111 1111 1111 1112 has a wrong check digit'],
    ['at 1700000000000 ms', 'at 1700000000000 ms'],
    ['call +49 (0)30 1234567 or (555) 123-4567', 'call [PHONE] or [PHONE]'],
    [`pay ${IBAN} TODAY`, 'pay [IBAN] TODAY'],
    ['pay DE88370400440532013000', 'pay DE88370400440532013000'],
  ]
  for (const [text, masked] of cases) test(text, async () => assert.equal(shape(await hidden(text)), masked))

  test('patterns come first, and only the kinds that are listed are masked', async () => {
    const config = { mask: ['email'], patterns: { STAFF: 'E-\\d{6}' } }
    assert.equal(shape(await hidden(`E-123456@x.org ${CARD} E-654321`, config)), `[STAFF]@x.org ${CARD} [STAFF]`)
  })

  test('a token in the prompt is left as it is, and masking again changes nothing', async () => {
    const once = await hidden(`${MAIL} ${CARD} ${IBAN}`)
    assert.equal(await hidden(once), once)
  })

  test('equal data have equal tokens in every request; other data have others', async () => {
    const [a, b] = (await hidden('a@x.org b@x.org')).split(' ')
    assert.notEqual(a, b)
    assert.equal(await hidden('b@x.org'), b)
  })

  // A pattern that backtracks would run for years on one of these.
  test('the time grows with the length alone', async () => {
    const n = 200_000
    const texts = ['a'.repeat(n), `${'a'.repeat(n)}@`, '@'.repeat(n), 'a@'.repeat(n / 2), '1 '.repeat(n / 2)]
    for (const text of [...texts, '4'.repeat(n), '+1 '.repeat(n / 3), 'DE89 '.repeat(n / 5), '[A_'.repeat(n / 3)])
      await hidden(text, { patterns: { SLOW: '(a+)+$|(1| )*x' } })
    const input = `{"a": "${'\\"'.repeat(n)}`
    const call = { type: 'call' as const, id: 'c', kind: 'function' as const, name: 'f', input, path: '' }
    await run({ turns: [{ role: 'assistant', parts: [call] }] })
  })
})

test('every part of a prompt is masked, and what cannot hold data stays', async () => {
  const { sent } = await run({
    system: [{ type: 'text', text: `of ${MAIL}` }],
    sampling: { stop: [MAIL], logprobs: false },
    turns: [
      {
        role: 'user',
        parts: [
          { type: 'document', source: { kind: 'text', text: MAIL }, title: MAIL, context: MAIL, path: '' },
          { type: 'image', source: { kind: 'url', url: 'https://x.org/a.png' }, path: '' },
        ],
      },
      {
        role: 'assistant',
        parts: [
          { type: 'reasoning', summary: [MAIL] },
          { type: 'search', id: 's', query: MAIL, results: [{ title: MAIL, url: 'https://x.org', text: MAIL }] },
          {
            type: 'call',
            id: 'c1',
            kind: 'function',
            name: 'f',
            input: `{"n": 12345678901234567890, "to": "a\\n${MAIL}", "card": 4111111111111111}`,
            path: '',
          },
        ],
      },
      {
        role: 'tool',
        parts: [{ type: 'result', callId: 'c1', kind: 'function', content: [{ type: 'text', text: MAIL }], path: '' }],
      },
    ],
  })
  const wire = JSON.stringify(sent)
  assert.ok(!wire.includes(MAIL) && !wire.includes('4111111111111111'), wire)
  assert.equal(wire.match(/\[EMAIL_[A-Z]{8}\]/g)?.length, 11)
  const { input } = sent.turns[1]!.parts[2] as { input: string }
  assert.equal(shape(input), '{"n": 12345678901234567890, "to": "a\\n[EMAIL]", "card": "[CARD]"}')
  JSON.parse(input)
})

describe('the reply', () => {
  const tokensOf = (sent: Conversation) => userText(sent).match(TOKEN)!
  const split = (text: string, cuts: number[]) => {
    const at = [...new Set(cuts.map(cut => cut % (text.length + 1)))].sort((a, b) => a - b)
    return [...at, text.length].map((end, i) => text.slice(i === 0 ? 0 : at[i - 1], end))
  }

  test('data come back wherever the text is cut; nothing else changes, and no event is lost', async () => {
    const ask = user(`${MAIL} ${CARD}`)
    const words = fc.array(fc.constantFrom('A', 'B', '[', '[EMAIL_', '[X_ABCDEFGH]', ' plain ', ']', '[CARD_ABCDEFGH]'))
    await fc.assert(
      fc.asyncProperty(words, fc.array(fc.nat(), { maxLength: 12 }), async (pieces, cuts) => {
        let expected = ''
        const { text } = await run(ask, sent => {
          const [mail, card] = tokensOf(sent)
          const said = pieces.map(piece => (piece === 'A' ? mail! : piece === 'B' ? card! : piece)).join('')
          expected = said.replaceAll(mail!, MAIL).replaceAll(card!, CARD)
          return split(said, cuts).map(text => ({ type: 'text', text }))
        })
        assert.equal(text, expected)
      }),
      { numRuns: 150 },
    )
  })

  test('cut at every place and letter by letter, in text, reasoning and arguments', async () => {
    for (const kind of ['text', 'reasoning', 'function', 'custom'] as const) {
      const ask = { ...user('say "a\\b"@ and a@x.org'), output: undefined }
      const config = { patterns: { QUOTED: '"[^"]*"' } }
      for (let cut = 0; cut <= 40; cut++) {
        const { events } = await run(
          ask,
          sent => {
            const said = `{"to":"${tokensOf(sent).join(' ')}"}`
            const pieces = cut === 40 ? [...said] : [said.slice(0, cut), said.slice(cut)]
            if (kind === 'text') return pieces.map(text => ({ type: 'text', text }))
            if (kind === 'reasoning')
              return [
                ...pieces.map((text, i) => ({
                  type: 'reasoning' as const,
                  text,
                  part: 0,
                  ...(i === 0 && { id: 'r' }),
                })),
                { type: 'reasoning_end' },
              ]
            return [
              { type: 'tool_call', index: 0, id: 'c', kind, name: 'f' },
              ...pieces.map(text => ({ type: 'tool_args' as const, index: 0, text })),
              { type: 'tool_end', index: 0 },
            ]
          },
          config,
        )
        const said = events.map(event => event.text ?? '').join('')
        const raw = '{"to":""a\\b" a@x.org"}'
        assert.equal(said, kind === 'function' ? '{"to":"\\"a\\\\b\\" a@x.org"}' : raw, `${kind} ${cut}`)
        if (kind === 'reasoning') assert.equal(events.filter(event => event.id === 'r').length, 1)
        assert.equal(events.filter(event => event.type === 'finish').length, 1)
        assert.equal(events.at(-1).type, 'finish')
      }
    }
  })

  test('a text that must be JSON stays JSON', async () => {
    const output = { strict: false, path: 'response_format' }
    const { text } = await run(
      { ...user('a "b" c'), output },
      sent => [{ type: 'text', text: `{"said":"${tokensOf(sent)[0]}"}` }],
      { patterns: { QUOTED: '"[^"]*"' } },
    )
    assert.deepEqual(JSON.parse(text), { said: '"b"' })
  })

  test('the end of a reply is sent though it looks like a token; usage and activity pass it', async () => {
    const { events } = await run(user(MAIL), sent => [
      { type: 'text', text: `${tokensOf(sent)[0]} [EMA` },
      { type: 'activity' },
      { type: 'usage', usage: { prompt: 1 } },
    ])
    assert.deepEqual(
      events.filter(event => event.type === 'text').map(event => event.text),
      [`${MAIL} `, '[EMA'],
    )
  })

  test('offsets of citations are those of the text that the client has', async () => {
    const { events, text } = await run(user(MAIL), sent => {
      const token = tokensOf(sent)[0]!
      const start = 4 + token.length
      return [
        { type: 'text', text: `one ${token.slice(0, 5)}` },
        { type: 'citation', citation: { url: 'u', title: token, start, end: start + 4, citedText: token } },
        { type: 'text', text: `${token.slice(5)} two` },
      ]
    })
    const { citation } = events.find(event => event.type === 'citation')
    assert.equal(text, `one ${MAIL} two`)
    assert.equal(text.slice(citation.start, citation.end), ' two')
    assert.deepEqual([citation.title, citation.citedText], [MAIL, MAIL])
  })

  test('a compaction has the data again, in its summary and in what stays of the prompt', async () => {
    const document = { type: 'document', source: { kind: 'text', text: MAIL }, title: MAIL, context: MAIL, path: '' }
    const parts = [{ type: 'text', text: `I am ${MAIL}` }, document] as Conversation['turns'][number]['parts']
    const { events } = await run({ turns: [{ role: 'user', parts }] }, sent => [
      {
        ...{ type: 'compaction', id: 'i', summary: `He is ${tokensOf(sent)[0]}`, sealed: '', keeps: 'user', most: 99 },
        ...{ kept: sent.turns, tokens: 9, reasoning: 0, usage: {}, estimated: false, asked: 0, next: null },
      },
    ])
    const { summary, kept } = events.find(event => event.type === 'compaction')
    assert.deepEqual([summary, kept], [`He is ${MAIL}`, [{ role: 'user', parts }]])
  })

  test('log probabilities stay with texts that are not changed', async () => {
    const logprobs = [{ token: 'a', logprob: 0, bytes: null, top: [] }]
    const { events } = await run(user(MAIL), sent => [
      { type: 'text', text: 'plain', logprobs },
      { type: 'text', text: tokensOf(sent)[0]!, logprobs },
    ])
    const texts = events.filter(event => event.type === 'text')
    assert.deepEqual(
      texts.map(event => event.logprobs?.length),
      [1, undefined],
    )
  })

  test('with unmask: false, and for tokens of another prompt, tokens stay', async () => {
    const foreign = await hidden('eve@x.org')
    const kept = await run(user(MAIL), sent => [{ type: 'text', text: tokensOf(sent)[0]! }], { unmask: false })
    assert.match(kept.text, /^\[EMAIL_/)
    assert.equal((await run(user(MAIL), () => [{ type: 'text', text: foreign }])).text, foreign)
  })
})
