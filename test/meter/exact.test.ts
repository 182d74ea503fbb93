import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import fc from 'fast-check'
import { adversarial } from '../../bench/meter-corpora.ts'
import { countTokens, encode } from '../../meter/index.ts'
import { tables } from '../../meter/tables.ts'
import { createTokenizer } from '../../meter/tokenizer.ts'
import { oracle, reference, same } from './reference.ts'

const fixtures: Record<string, string> = {
  empty: '',
  English:
    "We're sure they'll've said it's DON'T, isn't I'D; 1st, 22nd & 333rd — “quoted”… e.g. http://example.com/a/b?c=d#e\n\n  Indented.\n",
  capitals: "HTTPServer XMLHttpRequest iOS McDONALD'S USA'S ÀÉÎ ǅungla ÆSIR ǅ ᾈΙ",
  code: 'export function f<T>(a: T[], b = 0): T | undefined {\n\treturn a?.[b] ?? undefined // ok\n}\n\n\n        if (x != null && y===1_000_000) {\r\n\t\t}\r\n',
  python: 'def __init__(self, *args, **kwargs):\n    """Doc."""\n    self.x = {k: v for k, v in kwargs.items() if k}\n',
  JSON: JSON.stringify({ a: [1, 2.5, -3e10, null, true], b: { c: 'x\n\t"y"\\', d: '\u0000\u001f' } }, null, 2),
  Chinese: '我们今天去北京，明天回上海。你好吗？「引用」１２３、中文English混排！的的的的的',
  Japanese: 'これはテストです。カタカナとひらがな、漢字も。ﾊﾝｶｸ ー々〆',
  Korean: '안녕하세요, 반갑습니다. ㄱㄴㄷ 각',
  Thai: 'สวัสดีครับ ภาษาไทยไม่มีช่องว่าง',
  Arabic: 'السَّلَامُ عَلَيْكُمْ ١٢٣٤٥ مرحبا',
  Hebrew: 'שָׁלוֹם עוֹלָם',
  Hindi: 'नमस्ते दुनिया १२३ क्षत्रिय',
  Tamil: 'வணக்கம் உலகம்',
  Russian: 'Привет, мир! Съешь же ещё этих мягких французских булок. ЁЖИК',
  Greek: 'Καλημέρα κόσμε ΣΊΣΥΦΟΣ ς',
  Vietnamese: 'Tiếng Việt có dấu, Tiê\u0301ng Viê\u0323t',
  Georgian: 'გამარჯობა ᲒᲐᲛᲐᲠᲯᲝᲑᲐ',
  Ethiopic: 'ሰላም ለዓለም ፲፪',
  emoji: '😀👍🏽👩‍👩‍👧‍👦🏳️‍🌈🇩🇪🇫🇷1️⃣ ❤️🫠 👨🏿‍🚀!!',
  controls:
    '\u0000\u0001\u0007\b\u000b\f\u000e\u001b[0m\u007f\u0080\u0085\u009f\u00ad\u200b\u200d\u2060\ufeff\ufffe\uffff',
  newlines: 'a\nb\r\nc\rd\n\re\r\r\n\n f \n g\u2028h\u2029i\u0085j\v\f\n\t\n x',
  spaces: '  a   b\tc \u00a0\u00a0d\u3000\u3000e\u2003 f  \n  \n\n   g   ',
  slashes: '// comment\n/* x */\n///\r\n/\n//\na//\n!/\n/!',
  surrogates: 'a\ud800b\udc00c\ud83d d\ude00e \ud800\ud800\udc00\udc00 \udbff',
  special: '<|endoftext|><|endofprompt|> <|im_start|>user<|im_end|><|endoftext',
  marks: '\u0301abc \u0301\u0301ABC !\u0301x A\u0301B\u0301c\u0301 1\u0301 \n\u0301',
  mathematics: '𝐀𝐁𝐜𝒹 ∑∫√∞≠≤ ½⅓Ⅷⅸ ①② x²₃',
}

test('[METER-2] fixtures of many scripts, code and odd characters equal js-tiktoken, token for token', () => {
  for (const text of Object.values(fixtures)) same(text, oracle(text))
  same(Object.values(fixtures).join(''), oracle(Object.values(fixtures).join('')))
})

const odd = fc.constantFrom(
  ...'aAsStTrRvVlLmMdDeE019 \t\n\r/\'!"#.,-_=+<>|(){}[]\\\u0000\u007f\u00a0\u00e9\u00c9\u00df\u0130\u01c5\u02b0\u0301\u0345\u0660\u0903\u1680\u2028\u2029\u200d\u3000\u3042的가\ufeff\uffff',
  ...[
    '😀',
    '👍🏽',
    '𝐀',
    '𞤀',
    '\ud800',
    '\udc00',
    "'s",
    "'LL",
    "'re",
    'ing',
    'tion',
    ' the',
    '  ',
    '\r\n',
    '<|endoftext|>',
    '的是',
    'ABC',
    'aB',
  ],
)
/** Mixtures that stay on few characters for a while, as hostile input does. */
const mixture = fc
  .array(
    fc.oneof(
      odd,
      fc.tuple(odd, fc.integer({ min: 1, max: 16 })).map(([c, n]) => c.repeat(n)),
      fc.tuple(odd, odd, fc.integer({ min: 1, max: 8 })).map(([a, b, n]) => (a + b).repeat(n)),
      fc.string({ unit: 'binary', maxLength: 6 }),
      fc.string({ unit: 'grapheme', maxLength: 6 }),
    ),
    { maxLength: 8 },
  )
  .map(parts => parts.join(''))

test('[METER-2] adversarial mixtures equal js-tiktoken (2,000 cases)', () => {
  fc.assert(
    fc.property(mixture, text => same(text, oracle(text))),
    { numRuns: 2000, seed: 4 },
  )
})

test('[METER-2] longer adversarial mixtures equal the reference (1,500 cases), and the reference js-tiktoken', () => {
  fc.assert(
    fc.property(mixture, text => assert.equal(reference(text).join(), oracle(text).join())),
    { numRuns: 200, seed: 5 },
  )
  fc.assert(
    fc.property(fc.array(mixture, { maxLength: 12 }), fc.integer({ min: 1, max: 8 }), (texts, n) => {
      const text = texts.join('').repeat(n)
      same(text, reference(text))
    }),
    { numRuns: 1500, seed: 6 },
  )
})

test('[METER-2] the adversarial list at 16 KiB, and a run of 1 MiB, equal the reference', () => {
  for (const { make } of adversarial) {
    const text = make(1 << 14)
    same(text, reference(text))
  }
  const run = 'a'.repeat(1 << 20)
  same(run, reference(run))
})

test('[METER-2] long pieces are encoded window by window: tiny windows, where joints fail, give the same tokens (600 cases)', () => {
  const small = [
    createTokenizer(tables(), { window: 4, overlap: 1 }),
    createTokenizer(tables(), { window: 16, overlap: 1 }),
    createTokenizer(tables(), { window: 64, overlap: 2 }),
  ]
  fc.assert(
    fc.property(fc.array(mixture, { minLength: 1, maxLength: 4 }), texts => {
      const text = texts.join('')
      const expected = encode(text).join()
      for (const tokenizer of small) {
        assert.equal(tokenizer.encode(text).join(), expected)
        assert.equal(tokenizer.count(text), expected === '' ? 0 : expected.split(',').length)
      }
    }),
    { numRuns: 600, seed: 10 },
  )
})

test('[METER-2] runs whose tokens are prefixes of each other, where merging takes over, equal the reference', () => {
  for (const unit of ['-', '=', '*', '_', '/', '#', ' ', '-=', '--=', '\t', '~', '.', ' -', '= ']) {
    for (const size of [1, 63, 64, 65, 127, 200, 1000, 5000, 9001]) {
      const text = unit.repeat(size)
      same(text, reference(text))
      same(`x${text}y`, reference(`x${text}y`))
    }
  }
})

test('a piece is counted alike when the cache knows it and when it was pushed out', () => {
  const texts = Array.from({ length: 3000 }, (_, i) => ` w${(i * 7919).toString(36)}x${(i * 104729).toString(36)}`)
  const counts = texts.map(text => countTokens(text))
  for (let i = 0; i < 60_000; i++) countTokens(` ${(i * 48271).toString(36)}`)
  assert.deepEqual(
    texts.map(text => countTokens(text)),
    counts,
  )
  assert.deepEqual(
    texts.map(text => encode(text).length),
    counts,
  )
})

test('[METER-2] words of every length behind every ASCII character and before what may belong to them, counted and recognised', () => {
  const letters = 'abcdefghijklmnopqrstuvwxyz'
  const behind = ['', ' ', 'A', '1', "'", "'s", "'ll", 'é', '的', '\u0301', '\0', '\n', '/']
  for (let first = 0; first < 0x80; first++) {
    for (let size = 0; size <= 20; size++) {
      const at = (first * 7 + size) % 26
      const word = String.fromCharCode(first) + (letters + letters).slice(at, at + size)
      const text = word + behind[(first + size) % behind.length]!
      const expected = reference(text)
      same(text, expected)
      // From the cache, and where another text stood in the buffer before.
      assert.equal(countTokens(text), expected.length, JSON.stringify(text))
    }
  }
  const tokenizer = createTokenizer(tables())
  for (const piece of ['a', ' ', '!', '的']) {
    for (let size = 1; size <= 33; size++) {
      // Zero bytes are part of a piece, not the room behind it.
      for (const text of [piece.repeat(size), `${piece.repeat(size)}\0`, '\0'.repeat(size), `!${'\0'.repeat(size)}`]) {
        const expected = reference(text).length
        for (let time = 0; time < 3; time++) assert.equal(tokenizer.count(text), expected, JSON.stringify(text))
      }
    }
  }
})

test('rubbish does not drive the words of natural text out of the cache', () => {
  const tokenizer = createTokenizer(tables())
  const work = (text: string) => {
    const before = tokenizer.steps
    tokenizer.count(text)
    return tokenizer.steps - before
  }
  const prose = readFileSync(new URL('../../bench/README.md', import.meta.url), 'utf8').replace(/[^A-Za-z .,\n]/g, ' ')
  const first = work(prose)
  work(prose)
  const known = work(prose)
  const rubbish = adversarial.filter(({ name }) => /random|base64/.test(name))
  for (const { make } of rubbish) work(make(1 << 20))
  const again = work(prose)
  assert.ok(known < first / 5, `${first} steps, then ${known}`)
  assert.ok(again < known + first / 3, `${first} steps, ${known} once known, ${again} after the rubbish`)
})
