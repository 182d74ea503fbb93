/** What both adapters share: the judgement of heads, safe answers, trusted peers, and the check of the native file. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { HeaderFields } from '../../core/tools/header-fields.ts'
import { addressOfBytes, plainAddress, TrustedPeers } from '../../http/client-address.ts'
import {
  asksClose,
  checkHead,
  declaresBody,
  headerWords,
  type SafeHead,
  safeHead,
  statusLine,
  upgradeOf,
} from '../../http/safe-header.ts'
import { checkNativeFile, NoUwsBinary } from '../../http/uws/native.ts'
import { echo, kinds, RawClient, serving } from './harness.ts'

const judge = (pairs: string[], method = 'POST', path = '/a', query = ''): [string | null, HeaderFields] => {
  const headers = new HeaderFields()
  return [checkHead(method, path, query, ['Host', 'a', ...pairs], headers)?.reason ?? null, headers]
}

test('checkHead: names lower case, repeated ones joined, the rest as it came', () => {
  const [fault, headers] = judge(['Accept', 'a', 'X-B', 'c', 'accept', 'd', 'Content-Length', '0'])
  assert.equal(fault, null)
  assert.deepEqual(
    [...headers],
    [
      ['host', 'a'],
      ['accept', 'a, d'],
      ['x-b', 'c'],
      ['content-length', '0'],
    ],
  )
})

test('checkHead: whatever says twice how long a body is, is refused', () => {
  const length = fc.constantFrom('Content-Length', 'content-length', 'CONTENT-LENGTH')
  const coding = fc.constantFrom('Transfer-Encoding', 'transfer-encoding', 'tRANSFER-eNCODING')
  const noise = fc.array(fc.tuple(fc.stringMatching(/^x-[a-z]{1,8}$/), fc.stringMatching(/^[ -~]{0,20}$/)), {
    maxLength: 5,
  })
  fc.assert(
    fc.property(
      fc.array(
        fc.tuple(fc.oneof(length, coding), fc.constantFrom('0', '5', '05', '', 'chunked', 'Chunked', 'identity', 'x')),
        {
          minLength: 2,
          maxLength: 4,
        },
      ),
      noise,
      (framing, others) => {
        const pairs = fc.sample(
          fc.shuffledSubarray([...framing, ...others], { minLength: framing.length + others.length }),
          1,
        )[0]!
        assert.notEqual(judge(pairs.flat())[0], null)
      },
    ),
    { seed: 1 },
  )
})

test('checkHead: one length or chunked, and nothing else, is a body', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'binary-ascii', maxLength: 14 }), value => {
      const [fault, headers] = judge(['Content-Length', value])
      const legal = /^[0-9]{1,12}$/.test(value)
      assert.equal(fault === null, legal)
      if (legal) assert.equal(declaresBody(headers), Number(value) > 0)
    }),
    { seed: 2 },
  )
  for (const value of ['chunked', 'CHUNKED', 'Chunked']) {
    const [fault, headers] = judge(['Transfer-Encoding', value])
    assert.equal(fault, null)
    assert.equal(declaresBody(headers), true)
  }
  for (const value of [
    '',
    'identity',
    'xchunked',
    'chunked ',
    ' chunked',
    'gzip, chunked',
    'chunked, chunked',
    'chun\x0bked',
  ]) {
    assert.notEqual(judge(['Transfer-Encoding', value])[0], null, JSON.stringify(value))
  }
})

test('checkHead: two legal keys that differ are never one to us, on either header (R5)', () => {
  const key = fc.stringMatching(/^[A-Za-z0-9_.:-]{1,40}$/)
  fc.assert(
    fc.property(key, key, (a, b) => {
      const [fa, ha] = judge(['Authorization', `Bearer ${a}`, 'Idempotency-Key', a])
      const [fb, hb] = judge(['Authorization', `Bearer ${b}`, 'Idempotency-Key', b])
      assert.equal(fa, null)
      assert.equal(fb, null)
      assert.equal(ha.get('authorization') === hb.get('authorization'), a === b)
      assert.equal(ha.get('idempotency-key') === hb.get('idempotency-key'), a === b)
    }),
    { seed: 3 },
  )
})

test('checkHead: methods in exact case, targets of visible ASCII', () => {
  for (const method of ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'])
    assert.equal(judge([], method)[0], null)
  for (const method of ['get', 'Get', 'TRACE', 'CONNECT', 'FOO', '', 'GET '])
    assert.equal(judge([], method)[0], 'method')
  for (const path of ['/', '/a/b', '//a', '/%2f', '/a~!$&*']) assert.equal(judge([], 'GET', path)[0], null)
  for (const path of ['', '*', 'a', 'http://a/b', '/a b', '/a#b', '/a\n', '/\xe9', '/\x7f']) {
    assert.equal(judge([], 'GET', path)[0], 'target', JSON.stringify(path))
  }
})

// "not acceptable: header_value" did not say which of twenty headers it was.
test('checkHead: a fault of a header names it, in lower case, bounded and printable', () => {
  const fault = (...pairs: string[]) => {
    const found = checkHead('GET', '/a', '', ['Host', 'a', ...pairs], new HeaderFields())!
    assert.match(headerWords(found), found.header === undefined ? /^$/ : /^The (value of the )?header .*\. [A-Z].*\.$/)
    return [found.reason, found.header]
  }
  assert.deepEqual(fault('AUTHORIZATION', 'Bearer a\tb'), ['header_value', 'authorization'])
  assert.deepEqual(fault('X-Api-Key', 'a', 'x-api-key', 'b'), ['repeated_header', 'x-api-key'])
  assert.deepEqual(fault('Content-Length', ''), ['empty_header', 'content-length'])
  assert.deepEqual(fault('X y\x01\xe9', ''), ['header_name', 'x?y??'])
  assert.deepEqual(fault('\n'.repeat(2000), ''), ['header_name', `${'?'.repeat(64)}…`])
  assert.deepEqual(fault('Content-Length', 'x'), ['content_length', undefined])
  // The first one counts.
  assert.deepEqual(fault('Authorization', '\x7f', 'X-Api-Key', '\x7f'), ['header_value', 'authorization'])
})

for (const kind of kinds) {
  test(`${kind}: the refusal of a faulty header names it`, () =>
    serving(kind, echo, async h => {
      const send = async (head: string) => {
        const client = await RawClient.open(h.port)
        client.send(`GET /a HTTP/1.1\r\nHost: a\r\n${head}\r\n\r\n`)
        await client.closing()
      }
      await send('authorization: Bearer a\tb')
      await send('x-api-key: a\r\nx-api-key: b')
      // The parser of node stops at this one; that of uWebSockets.js takes it, and nobody acts on it there.
      if (kind === 'node') await send('x-b: c\r\nX-Odd: a\x01b')
      const value = (name: string) => new RegExp(`^The value of the header ${name} has a byte .* without that byte\\.$`)
      const expected = [value('authorization'), /^The header x-api-key is there more than once\. Send it once\.$/]
      if (kind === 'node') expected.push(value('x-odd'))
      assert.equal(h.words.length, expected.length)
      for (const [i, pattern] of expected.entries()) assert.match(h.words[i]!, pattern)
    }))
}

test('upgradeOf and asksClose', () => {
  const upgrade = (value: string): string | undefined => upgradeOf(new Map([['upgrade', value]]))
  assert.equal(upgrade('websocket'), 'websocket')
  assert.equal(upgrade('h2c'), undefined)
  assert.equal(upgrade(''), undefined)
  assert.equal(upgradeOf(new Map()), undefined)
  for (const value of ['close', 'CLOSE', 'close, te', 'te ,close']) assert.equal(asksClose(value), true, value)
  for (const value of [undefined, '', 'keep-alive', 'abcde', 'closed', 'not-close'])
    assert.equal(asksClose(value), false, value)
})

test('safeHead: no text at all can break out of a header (R6)', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'binary' }), fc.string({ unit: 'binary' }), (name, value) => {
      let head: SafeHead
      try {
        head = safeHead(200, [[name, value]])
      } catch (error) {
        assert.ok(error instanceof TypeError)
        return
      }
      for (const part of head.pairs) {
        for (let i = 0; i < part.length; i++) {
          const code = part.charCodeAt(i)
          assert.ok(code === 9 || (code >= 32 && code !== 127 && code <= 255), `${code}`)
        }
      }
    }),
    { seed: 4, numRuns: 500 },
  )
  assert.equal(statusLine(200), '200 OK')
  assert.equal(statusLine(529), '529 Unknown')
  for (const status of [0, 100, 199, 600, 200.5, Number.NaN]) assert.throws(() => safeHead(status, []), TypeError)
})

test('trusted peers: the rightmost untrusted hop, and nothing a client wrote itself (R20)', () => {
  const peers = new TrustedPeers(['10.0.0.0/8', '192.168.1.1', '2001:db8::/32'])
  const cases: [peer: string, forwarded: string | undefined, client: string][] = [
    ['9.9.9.9', '1.1.1.1', '9.9.9.9'],
    ['10.1.2.3', undefined, '10.1.2.3'],
    ['10.1.2.3', '1.1.1.1', '1.1.1.1'],
    ['10.1.2.3', '6.6.6.6, 1.1.1.1', '1.1.1.1'],
    ['10.1.2.3', '6.6.6.6, 1.1.1.1, 10.9.9.9, 192.168.1.1', '1.1.1.1'],
    ['10.1.2.3', '10.4.4.4', '10.4.4.4'],
    ['10.1.2.3', 'unknown', '10.1.2.3'],
    ['10.1.2.3', '1.1.1.1, junk', '10.1.2.3'],
    ['10.1.2.3', '1.1.1.1:4711', '1.1.1.1'],
    ['10.1.2.3', '[2001:0db8:0:0::1]:4711', '2001:db8::1'],
    ['2001:db8::7', '::ffff:1.2.3.4', '1.2.3.4'],
    ['10.1.2.3', '', '10.1.2.3'],
  ]
  for (const [peer, forwarded, client] of cases)
    assert.equal(peers.clientOf(peer, forwarded), client, `${peer} ${forwarded}`)
  assert.equal(new TrustedPeers([]).clientOf('1.1.1.1', '2.2.2.2'), '1.1.1.1')
  assert.equal(new TrustedPeers(['0.0.0.0/0']).has('8.8.8.8'), true)
  for (const bad of ['localhost', '10.0.0.0/33', '10.0.0.0/x', '1.2.3', '::/129', '']) {
    assert.throws(() => new TrustedPeers([bad]), TypeError, bad)
  }
})

test('addresses in canonical form', () => {
  assert.equal(addressOfBytes(new Uint8Array([127, 0, 0, 1]).buffer), '127.0.0.1')
  const v6 = new Uint8Array(16)
  v6[15] = 1
  assert.equal(addressOfBytes(v6.buffer), '::1')
  v6.set([0xff, 0xff, 1, 2, 3, 4], 10)
  assert.equal(addressOfBytes(v6.buffer), '1.2.3.4')
  assert.equal(addressOfBytes(new ArrayBuffer(0)), '')
  assert.equal(plainAddress('::FFFF:1.2.3.4'), '1.2.3.4')
  assert.equal(plainAddress('2001:DB8:0:0:0:0:0:1'), '2001:db8::1')
  assert.equal(plainAddress('nonsense'), '')
})

test('no tested binary is a start-up error that names the way out', () => {
  for (const on of [
    { platform: 'linux', arch: 'x64', node: '20' },
    { platform: 'linux', arch: 'ppc64', node: '22' },
    { platform: 'darwin', arch: 'arm64', node: '22' },
    { platform: 'win32', arch: 'x64', node: '24' },
  ]) {
    assert.throws(
      () => checkNativeFile(on),
      error =>
        error instanceof NoUwsBinary &&
        error.message.includes('`listener: node`') &&
        error.message.includes(`${on.platform}-${on.arch} with Node ${on.node}`),
    )
  }
})

test('a native file with other bytes is refused, and so is a missing one', () => {
  const x64 = { platform: 'linux', arch: 'x64', node: '22' }
  assert.throws(
    () => checkNativeFile(x64, () => new Uint8Array(10)),
    /SHA-256 [0-9a-f]{64}, pinned is f687e7c3.*listener: node/,
  )
  assert.throws(
    () =>
      checkNativeFile(x64, () => {
        throw new Error('ENOENT')
      }),
    /can't be read.*listener: node/,
  )
})

test('the installed native file is the pinned one', () => {
  assert.equal(checkNativeFile(), `@uwsjs/linux-${process.arch}-22/uws.node`)
})
