/**
 * Media that the gateway fetches itself: what it must never connect to, what it takes, and what routing makes of it.
 */
import assert from 'node:assert/strict'
import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http'
import { createServer as createTlsServer, type Server as TlsServer } from 'node:https'
import { type AddressInfo, createServer, type Server } from 'node:net'
import { after, before, describe, test } from 'node:test'
import type { Conversation, Part } from '../../core/canon/conversation.ts'
import { conversation, estimate } from '../../core/plugin.ts'
import type { Backend, DialectName } from '../../core/ports/dialect.ts'
import { isPublicAddress } from '../../plugins/media/addresses.ts'
import { MediaFault, MediaFetcher, mediaKey, type Outside, type WantedMedia } from '../../plugins/media/fetch-media.ts'
import { HostList } from '../../plugins/media/hosts.ts'
import { media, mediaPlugin } from '../../plugins/media/index.ts'
import { routing } from '../../plugins/routing.ts'
import {
  candidates,
  counted,
  hostedSearch,
  identity,
  mediaFetch,
  model,
  plan,
  rights,
  upstreamConversation,
} from '../../plugins/shared/slots.ts'
import { plainConversation, runPlugin } from '../../plugins/testing.ts'
import { tokenEstimate } from '../../plugins/token-estimate.ts'
import { dialects } from '../../providers/index.ts'
import { type Certificates, hasOpenssl, makeCertificates } from '../faults/certificates.ts'

const never = new AbortController().signal
const image = (url: string): WantedMedia => ({ kind: 'image', url, path: 'messages[0].content[0]' })
const document = (url: string): WantedMedia => ({ kind: 'document', url, path: 'messages[0].content[1]' })
const settings = (fetch: string[], more = {}) => ({
  fetch,
  max_bytes: 100_000,
  max_text: 100_000,
  max_files: 10,
  timeout: 5000,
  ...more,
})

async function fault(fetcher: MediaFetcher, wanted: WantedMedia[] | WantedMedia): Promise<MediaFault> {
  try {
    await fetcher.fetchAll([wanted].flat(), never)
  } catch (error) {
    assert.ok(error instanceof MediaFault, String(error))
    return error
  }
  throw new assert.AssertionError({ message: 'it was fetched' })
}

// ---- what is never connected to -------------------------------------------------------------------------------------

describe('server-side request forgery', () => {
  /** Listens on loopback and must never hear anything. */
  let canary: Server
  let heard = 0
  let port: number
  before(async () => {
    canary = createServer(socket => {
      heard++
      socket.destroy()
    })
    await new Promise<void>(resolve => canary.listen(0, '127.0.0.1', resolve))
    port = (canary.address() as AddressInfo).port
  })
  after(() => new Promise(resolve => canary.close(resolve)))

  // biome-ignore format: a table
  const ADDRESSES = [
    '127.0.0.1', '127.0.0.2', '127.255.255.254', '0.0.0.0', '0.1.2.3', '10.0.0.1', '10.255.255.255', '100.64.0.1', '100.127.255.255',
    '169.254.0.1', '169.254.169.254', '172.16.0.1', '172.31.255.255', '192.0.0.8', '192.0.0.170', '192.0.2.1', '192.88.99.1', '192.168.0.1',
    '198.18.0.1', '198.19.255.255', '198.51.100.1', '203.0.113.1', '224.0.0.1', '239.255.255.255', '240.0.0.1', '255.255.255.255',
    '::', '::1', '::127.0.0.1', '::ffff:127.0.0.1', '::ffff:7f00:1', '::ffff:10.0.0.1', '::ffff:8.8.8.8', '::ffff:0:127.0.0.1',
    '64:ff9b::7f00:1', '64:ff9b::8.8.8.8', '64:ff9b:1::1', '100::1', '2001::1', '2001:0:7f00:1::', '2001:20::1', '2001:db8::1', '2002:7f00:1::1',
    '2002:a00:1::', '3fff::1', '5f00::1', 'fc00::1', 'fd00:ec2::254', 'fe80::1', 'fe80::1%lo', 'febf::1', 'fec0::1', 'ff02::1', 'ff0e::1',
    // No addresses at all: what a resolver never gives, and what would be resolved once more.
    '127.1', '2130706433', '0x7f000001', '0177.0.0.1', 'localhost', '',
  ]

  test(`[REQ-1] a name that resolves to any of ${ADDRESSES.length} other than public addresses is not connected to`, async () => {
    for (const address of ADDRESSES) {
      for (const answer of [[address], ['93.184.215.14', address], [address, '93.184.215.14']]) {
        const fetcher = new MediaFetcher(settings([`files.test:${port}`]), { lookup: async () => answer })
        const { reason } = await fault(fetcher, image(`https://files.test:${port}/a.png`))
        assert.equal(reason, 'unreachable', answer.join())
      }
    }
    assert.equal(heard, 0)
  })

  test('public addresses are public', () => {
    const some = [
      '1.1.1.1',
      '8.8.8.8',
      '93.184.215.14',
      '100.63.255.255',
      '100.128.0.1',
      '172.15.0.1',
      '172.32.0.1',
      '191.255.0.1',
      '223.255.255.255',
      '2001:200::1',
      '2606:4700::1111',
      '2a00:1450:4001::1',
      '2003::1',
    ]
    for (const address of some) assert.equal(isPublicAddress(address), true, address)
    for (const address of ADDRESSES) assert.equal(isPublicAddress(address), false, address)
  })

  test('[REQ-1] addresses as hosts, in every spelling, go nowhere even where the list has them', async () => {
    // biome-ignore format: a table
    const spellings = [
      '127.0.0.1', '127.1', '127.0.1', '2130706433', '0x7f000001', '0x7f.0.0.1', '0177.0.0.1', '017700000001', '0x7F.1', '127.0.0.1.',
      '①②⑦.⓪.⓪.①', '127。0。0。1', '%31%32%37.0.0.1', '0', '0.0.0.0', '0x0', '[::1]', '[::]', '[0:0:0:0:0:0:0:1]', '[::ffff:127.0.0.1]',
      '[::ffff:7f00:1]', '[::127.0.0.1]', '[64:ff9b::7f00:1]', '[2002:7f00:1::]', '[fe80::1]', 'localhost', 'LOCALHOST', 'localhost.', '169.254.169.254',
      '2852039166', '0xA9FEA9FE',
    ]
    const list = [`127.0.0.1:${port}`, `0.0.0.0:${port}`, `localhost:${port}`, `169.254.169.254:${port}`]
    const fetcher = new MediaFetcher(settings(list))
    for (const host of spellings) {
      const { reason } = await fault(fetcher, image(`https://${host}:${port}/latest/meta-data`))
      assert.ok(reason === 'unreachable' || reason === 'redirect', `${host}: ${reason}`)
    }
    assert.equal(heard, 0)
  })

  test('[REQ-1] URLs that only look like ones of the list', async () => {
    let resolved = 0
    const outside: Partial<Outside> = {
      lookup: async () => {
        resolved++
        return ['127.0.0.1']
      },
      permits: () => true,
    }
    const fetcher = new MediaFetcher(settings([`files.test:${port}`, '*.cdn.test', 'plain.test']), outside)
    // biome-ignore format: a table
    const urls = [
      `http://files.test:${port}/`, `ftp://files.test:${port}/`, `gopher://files.test:${port}/`, 'file:///etc/passwd', 'data:image/png;base64,AAAA',
      'javascript:alert(1)', '//files.test/', '/etc/passwd', '', 'https://', `https://user@files.test:${port}/`, `https://user:secret@files.test:${port}/`,
      `https://:secret@files.test:${port}/`, `https://files.test:${port}@evil.test/`, 'https://files.test@evil.test/', `https://files.test.evil.test:${port}/`,
      `https://evilfiles.test:${port}/`, `https://evil.test/files.test:${port}`, `https://evil.test:${port}#files.test`, `https://evil.test:${port}?files.test`,
      `https://evil.test\\@files.test:${port}/`, 'https://files.test/', `https://files.test:${port + 1}/`, 'https://files.test:22/', `https://files.test%2eevil.test:${port}/`,
      `https://files.test%00.evil.test:${port}/`, `https://files.test.:${port}/`, `https://fıles.test:${port}/`, 'https://cdn.test/', 'https://xcdn.test/',
      'https://.cdn.test/', 'https://a.cdn.test.evil.test/', 'https://a.cdn.test:8443/', 'https://a.cdn.test@evil.test/', 'https://plain.test:444/',
      'https://sub.plain.test/', `wss://files.test:${port}/`, `blob:https://files.test:${port}/x`, `view-source:https://files.test:${port}/`,
    ]
    for (const url of urls) {
      assert.equal(fetcher.allows(url), false, url)
      assert.equal((await fault(fetcher, image(url))).reason, 'redirect', url)
    }
    assert.equal(resolved, 0)
    assert.equal(heard, 0)
    for (const url of [
      `https://files.test:${port}/x?y#z`,
      `HTTPS://FILES.TEST:${port}/`,
      'https://a.cdn.test/',
      'https://a.b.cdn.test:443/',
      'https://plain.test/',
    ])
      assert.equal(fetcher.allows(url), true, url)
    assert.equal(new HostList(['*.0.0.1']).allowed('https://127.0.0.1/'), null)
  })

  test('by default nothing is fetched', () => {
    assert.equal(new MediaFetcher(settings([])).isOn, false)
    assert.equal(new MediaFetcher(settings([])).allows('https://example.com/'), false)
  })
})

// ---- a server of our own --------------------------------------------------------------------------------------------

const PNG = Buffer.from(
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==',
  'base64',
)
const PDF = Buffer.from('%PDF-1.4\n%%EOF\n')
const skip = hasOpenssl() ? false : 'openssl is not installed'

describe('fetching', { skip }, () => {
  let certificates: Certificates
  let server: TlsServer
  let wrongName: TlsServer
  let port: number
  let seen: { url: string; headers: IncomingHttpHeaders; to: string | undefined }[] = []
  const routes = new Map<string, (req: IncomingMessage, res: ServerResponse) => void>()
  const serve = (path: string, type: string | undefined, body: Buffer | string, headers: Record<string, string> = {}) =>
    routes.set(path, (_, res) => {
      res.writeHead(200, { ...(type !== undefined && { 'content-type': type }), ...headers })
      res.end(body)
    })
  const redirect = (path: string, location: string, status = 302) =>
    routes.set(path, (_, res) => void res.writeHead(status, { location }).end())
  const url = (path: string) => `https://localhost:${port}${path}`

  /** A world in which loopback is public and `localhost` has one address. */
  const outside = (more: Partial<Outside> = {}): Partial<Outside> => ({
    lookup: async () => ['127.0.0.1'],
    permits: address => address === '127.0.0.1',
    ca: certificates.server.ca.toString(),
    ...more,
  })
  const fetcher = (more: object = {}, world: Partial<Outside> = {}) =>
    new MediaFetcher(settings([`localhost:${port}`, `127.0.0.1:${port}`], more), outside(world))
  const one = async (wanted: WantedMedia, f = fetcher()) => (await f.fetchAll([wanted], never)).get(mediaKey(wanted))

  before(async () => {
    certificates = makeCertificates()
    const listen = (key: { cert: Buffer; key: Buffer }) => {
      const made = createTlsServer(key, (req, res) => {
        seen.push({ url: req.url!, headers: req.headers, to: req.socket.localAddress })
        const route = routes.get(req.url!)
        if (route) route(req, res)
        else res.writeHead(404).end()
      })
      return new Promise<TlsServer>(resolve => made.listen(0, '127.0.0.1', () => resolve(made)))
    }
    server = await listen(certificates.server)
    wrongName = await listen(certificates.elsewhere)
    port = (server.address() as AddressInfo).port
  })
  after(async () => {
    for (const made of [server, wrongName]) {
      made.closeAllConnections()
      await new Promise(resolve => made.close(resolve))
    }
    certificates.remove()
  })

  test('images and documents come as data, of the type that their bytes have', async () => {
    serve('/a.png', 'image/png', PNG)
    assert.deepEqual(await one(image(url('/a.png'))), {
      kind: 'data',
      mediaType: 'image/png',
      data: PNG.toString('base64'),
    })
    const magic: Record<string, Buffer> = {
      'image/jpeg': Buffer.from([0xff, 0xd8, 0xff, 0xe0, 1]),
      'image/gif': Buffer.from('GIF89a..'),
      'image/webp': Buffer.concat([Buffer.from('RIFF'), Buffer.alloc(4), Buffer.from('WEBPVP8 ')]),
    }
    for (const [type, bytes] of Object.entries(magic)) {
      // A mislabelled image is what it is.
      for (const said of [type, 'image/png', 'application/octet-stream', undefined]) {
        serve('/x', said, bytes)
        assert.equal(((await one(image(url('/x')))) as any).mediaType, type)
      }
    }
    for (const said of ['application/pdf', 'application/pdf; charset=binary', 'application/octet-stream', undefined]) {
      serve('/a.pdf', said, PDF)
      assert.deepEqual(await one(document(url('/a.pdf'))), {
        kind: 'data',
        mediaType: 'application/pdf',
        data: PDF.toString('base64'),
      })
    }
    serve('/a.txt', 'text/plain; charset=UTF-8', 'grüße')
    assert.deepEqual(await one(document(url('/a.txt'))), { kind: 'text', text: 'grüße' })
  })

  test('bytes of another kind are refused, whatever the server calls them', async () => {
    const wrong: [WantedMedia['kind'], string | undefined, Buffer | string][] = [
      ['image', 'text/html', PNG],
      ['image', 'application/json', PNG],
      ['image', 'image/png', '<html>'],
      ['image', 'image/svg+xml', '<svg xmlns="http://www.w3.org/2000/svg"/>'],
      ['image', 'image/png', ''],
      ['image', 'image/png', PDF],
      ['image', undefined, 'root:x:0:0'],
      ['document', 'application/pdf', '<html>'],
      ['document', 'text/html', 'hello'],
      ['document', 'text/html', PDF],
      ['document', 'image/png', PNG],
      ['document', undefined, 'root:x:0:0'],
      ['document', 'text/plain', Buffer.from([0xff, 0xfe, 0x41])],
      ['document', 'text/plain; charset=iso-8859-1', 'hello'],
      ['document', 'text/plain', 'a\0b'],
      ['document', 'text/plain', ''],
      ['document', 'application/pdf', Buffer.concat([Buffer.alloc(2000, 0x20), PDF])],
    ]
    for (const [kind, type, body] of wrong) {
      serve('/w', type, body)
      assert.equal(
        (await fault(fetcher(), { kind, url: url('/w'), path: 'p' })).reason,
        'wrong_type',
        `${kind} ${type}`,
      )
    }
    serve('/z.png', 'image/png', PNG, { 'content-encoding': 'gzip' })
    assert.equal((await fault(fetcher(), image(url('/z.png')))).reason, 'wrong_type')
  })

  test('the request carries nothing of the client: these headers and no others', async () => {
    serve('/a.png', 'image/png', PNG)
    seen = []
    await one(image(url('/a.png')))
    const [{ headers }] = seen as [(typeof seen)[0]]
    assert.deepEqual(Object.keys(headers).sort(), ['accept', 'accept-encoding', 'connection', 'host', 'user-agent'])
    assert.equal(headers['accept-encoding'], 'identity')
    assert.equal(headers.host, `localhost:${port}`)
  })

  test('the checked address is the one that is connected to: a second answer of the name server changes nothing', async () => {
    serve('/a.png', 'image/png', PNG)
    const answers = [['127.0.0.1'], ['127.0.0.2'], ['10.0.0.1']]
    let asked = 0
    seen = []
    await one(image(url('/a.png')), fetcher({}, { lookup: async () => answers[asked++]! }))
    assert.equal(asked, 1)
    assert.deepEqual(
      seen.map(s => s.to),
      ['127.0.0.1'],
    )
  })

  test('redirects: three are followed, each judged like the first URL', async () => {
    serve('/a.png', 'image/png', PNG)
    redirect('/r1', '/a.png')
    redirect('/r2', url('/r1'), 301)
    redirect('/r3', `//localhost:${port}/r2`, 307)
    redirect('/r4', '/r3', 308)
    assert.equal(((await one(image(url('/r3')))) as any).mediaType, 'image/png')
    assert.equal((await fault(fetcher(), image(url('/r4')))).reason, 'redirect')
    redirect('/loop', '/loop')
    assert.equal((await fault(fetcher(), image(url('/loop')))).reason, 'redirect')
    seen = []
    const away = [
      `http://localhost:${port}/a.png`,
      `https://localhost:${port + 1}/a.png`,
      `https://user@localhost:${port}/a.png`,
      'https://169.254.169.254/latest/meta-data',
      'https://[::1]/',
      'https://evil.test/',
      'file:///etc/passwd',
      'data:image/png;base64,AAAA',
      'https://[bad/',
      `https://localhost:${port}@evil.test/`,
    ]
    for (const location of away) {
      redirect('/away', location)
      assert.equal((await fault(fetcher(), image(url('/away')))).reason, 'redirect', location)
    }
    assert.ok(seen.every(s => s.url === '/away'))
    // A name that was public for the first hop is looked at again for the second.
    const answers = [['127.0.0.1'], ['127.0.0.2']]
    const { reason } = await fault(fetcher({}, { lookup: async () => answers.shift()! }), image(url('/r1')))
    assert.equal(reason, 'unreachable')
  })

  test('size is held for one file and for all of a request, told or not', async () => {
    serve('/big', 'image/png', Buffer.concat([PNG, Buffer.alloc(1000)]))
    assert.equal((await fault(fetcher({ max_bytes: 1000 }), image(url('/big')))).reason, 'too_large')
    routes.set('/chunked', (_, res) => {
      res.writeHead(200, { 'content-type': 'image/png' })
      res.write(PNG)
      const more = () => {
        while (res.write(Buffer.alloc(16_384)));
        res.once('drain', more)
      }
      more()
    })
    assert.equal((await fault(fetcher(), image(url('/chunked')))).reason, 'too_large')
    serve('/half1', 'image/png', Buffer.concat([PNG, Buffer.alloc(500)]))
    serve('/half2', 'image/png', Buffer.concat([PNG, Buffer.alloc(500)]))
    assert.equal(
      (await fetcher({ max_bytes: 2000 }).fetchAll([image(url('/half1')), image(url('/half2'))], never)).size,
      2,
    )
    assert.equal(
      (await fault(fetcher({ max_bytes: 1000 }), [image(url('/half1')), image(url('/half2'))])).reason,
      'too_large',
    )
  })

  // A text document of 12 MB was fetched and sent for the price of one of any size.
  test('text has a bound of its own, and so has the number of files', async () => {
    const document = (path: string): WantedMedia => ({ kind: 'document', url: url(path), path: 'p' })
    serve('/a.txt', 'text/plain', Buffer.alloc(600, 'a'))
    serve('/b.txt', 'text/plain', Buffer.alloc(600, 'b'))
    serve('/long.pdf', 'application/pdf', Buffer.concat([PDF, Buffer.alloc(5000)]))
    const both = [document('/a.txt'), document('/b.txt')]
    assert.equal((await fetcher({ max_text: 1200 }).fetchAll([...both, document('/long.pdf')], never)).size, 3)
    assert.equal((await fault(fetcher({ max_text: 1199 }), both)).reason, 'too_much_text')
    seen = []
    const many = await fault(fetcher({ max_files: 1 }), [...both, document('/a.txt')])
    assert.deepEqual([many.reason, many.media?.url, seen], ['too_many', url('/b.txt'), []])
    assert.equal((await fetcher({ max_files: 2 }).fetchAll([...both, document('/a.txt')], never)).size, 2)
  })

  test('one URL is fetched once, and the first failure stops the rest', async () => {
    serve('/a.png', 'image/png', PNG)
    seen = []
    await fetcher().fetchAll([image(url('/a.png')), image(url('/a.png'))], never)
    assert.equal(seen.length, 1)
    let closed!: Promise<void>
    routes.set('/slow', (_, res) => {
      closed = new Promise(resolve => res.once('close', resolve))
      res.writeHead(200, { 'content-type': 'image/png' }).write(PNG)
      routes.set('/bad', (__, other) => void other.writeHead(500).end())
      release()
    })
    let release!: () => void
    const slowAsked = new Promise<void>(resolve => (release = resolve))
    routes.set('/bad', (_, res) => void slowAsked.then(() => res.writeHead(500).end()))
    const failed = await fault(fetcher(), [image(url('/slow')), { ...image(url('/bad')), path: 'the bad one' }])
    assert.deepEqual([failed.reason, failed.status, failed.media!.path], ['status', 500, 'the bad one'])
    await closed
  })

  test('what goes wrong on the way is told in a word that gives nothing away', async () => {
    assert.deepEqual(
      [(await fault(fetcher(), image(url('/none')))).reason, (await fault(fetcher(), image(url('/none')))).status],
      ['status', 404],
    )
    routes.set('/cut', (_, res) => {
      res.writeHead(200, { 'content-type': 'image/png', 'content-length': '5000' })
      res.write(PNG, () => res.destroy())
    })
    assert.equal((await fault(fetcher(), image(url('/cut')))).reason, 'unreachable')
    const other = (wrongName.address() as AddressInfo).port
    const stranger = new MediaFetcher(settings([`localhost:${other}`]), outside())
    assert.equal(
      (await fault(stranger, image(`https://localhost:${other}/`))).reason,
      'unreachable',
      'a certificate of another host',
    )
    const untrusted = new MediaFetcher(settings([`localhost:${port}`]), outside({ ca: undefined }))
    assert.equal((await fault(untrusted, image(url('/a.png')))).reason, 'unreachable', 'a certificate of nobody')
    const unknown = fetcher({}, { lookup: async () => Promise.reject(new Error('ENOTFOUND')) })
    assert.equal((await fault(unknown, image(url('/a.png')))).reason, 'unreachable')
    assert.equal((await fault(fetcher({}, { lookup: async () => [] }), image(url('/a.png')))).reason, 'unreachable')
  })

  test('[REQ-1] a server that switches protocols unasked has answered with a status, and nothing waits for more', async () => {
    routes.set('/101', (_, res) => {
      res.socket!.write('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n')
    })
    const { reason, status } = await fault(fetcher({ timeout: 2000 }), image(url('/101')))
    assert.deepEqual([reason, status], ['status', 101])
  })

  test('time is held: for a silent server, a silent name server, and a client that leaves', async () => {
    routes.set('/hang', () => {})
    assert.equal((await fault(fetcher({ timeout: 60 }), image(url('/hang')))).reason, 'timeout')
    const mute = fetcher({ timeout: 60 }, { lookup: () => new Promise(() => {}) })
    assert.equal((await fault(mute, image(url('/a.png')))).reason, 'timeout')
    const gone = new AbortController()
    let closed!: Promise<void>
    routes.set('/leave', (_, res) => {
      closed = new Promise(resolve => res.once('close', resolve))
      gone.abort(new Error('left'))
    })
    await assert.rejects(fetcher().fetchAll([image(url('/leave'))], gone.signal), /left/)
    await closed
  })

  // ---- routing ------------------------------------------------------------------------------------------------------

  const backend = (dialect: DialectName, more: Partial<Backend> = {}): Backend => ({
    id: `p/${dialect}`,
    provider: dialect,
    dialect,
    baseUrl: 'http://127.0.0.1:9',
    headers: {},
    model: dialect === 'gemini' ? 'gemini-3-pro' : 'some-model',
    weight: 1,
    supports: dialects[dialect]!.capabilities,
    nativeTools: new Set(),
    settings: { provider: {}, backend: { max_tokens_field: 'max_completion_tokens' } },
    ...more,
  })
  const imagePart = (path: string): Part => ({
    type: 'image',
    source: { kind: 'url', url: url(path) },
    path: 'messages[0].content[0]',
  })
  const pdfPart = (path: string): Part => ({
    type: 'document',
    source: { kind: 'url', url: url(path) },
    path: 'messages[0].content[1]',
  })
  const nobody = { organization: { id: 'o', capabilities: 'all' }, key: { capabilities: 'all' } }

  const routed = async (
    turns: Conversation['turns'],
    backends: Backend[],
    options: { media?: object; plugin?: typeof media; window?: number } = {},
  ) => {
    const { window = 100_000 } = options
    const client = plainConversation({ turns })
    const requested = { id: 'm', backends, context_window: window }
    const estimating = await runPlugin(tokenEstimate, {
      slots: [
        [identity, { organization: { id: 'o', limits: {}, model_limits: {} }, key: { limits: {}, model_limits: {} } }],
        [conversation, client],
        [model, requested],
      ],
    })
    const fetching = await runPlugin(options.plugin ?? mediaPlugin(outside()), {
      config: settings([`localhost:${port}`], options.media),
    })
    return runPlugin(routing, {
      slots: [
        [identity, nobody],
        [conversation, client],
        [counted, estimating.exchange.get(counted)],
        [model, requested],
        [rights, () => null],
        [estimate, { input: 10 }],
        [hostedSearch, { native: () => null, asFunction: () => null }],
        [mediaFetch, fetching.exchange.get(mediaFetch)],
      ],
    })
  }
  const route = (parts: Part[], backends: Backend[], options: Parameters<typeof routed>[2] = {}) =>
    routed([{ role: 'user', parts }], backends, options)
  const went = (run: Awaited<ReturnType<typeof route>>) => run.exchange.get(candidates).map(b => b.dialect)

  test('[REQ-1] what a dialect takes as bytes alone is fetched and goes to it as data; the client’s conversation stays as it was', async () => {
    serve('/a.png', 'image/png', PNG)
    serve('/a.pdf', 'application/pdf', PDF)
    const run = await route([imagePart('/a.png'), pdfPart('/a.pdf')], [backend('gemini')])
    assert.equal(run.status, 200)
    assert.deepEqual(went(run), ['gemini'])
    const sent = dialects.gemini!.request(run.exchange.get(upstreamConversation), backend('gemini'), {
      stream: true,
      upstreamCallId: id => id,
    })
    const parts = JSON.parse(sent.body).contents[0].parts
    assert.deepEqual(
      parts.map((p: any) => p.inlineData?.mimeType),
      ['image/png', 'application/pdf'],
    )
    assert.equal(parts[0].inlineData.data, PNG.toString('base64'))
    assert.deepEqual((run.exchange.get(conversation).turns[0]!.parts[0] as any).source, {
      kind: 'url',
      url: url('/a.png'),
    })
  })

  // Documents by URL count a fixed number of tokens. 2.8 million tokens of fetched text went to a model whose window
  // was 128,000, and were counted as 1,509.
  test('[MOD-2] what was fetched is held to the window of the model and of each backend', async () => {
    serve('/words.txt', 'text/plain', Buffer.from('word '.repeat(9000)))
    serve('/pages.pdf', 'application/pdf', Buffer.concat([PDF, Buffer.alloc(80_000)]))
    for (const [path, pages] of [
      ['/words.txt', 9000],
      ['/pages.pdf', 400],
    ] as const) {
      const fits = await route([pdfPart(path)], [backend('gemini')], { window: Math.max(pages, 1500) + 100 })
      assert.equal(fits.status, 200)
      // Limits and exposure count it; the bill keeps the estimate.
      const { input } = fits.exchange.get(plan)
      assert.ok(input >= pages && input < pages + 1600, `${path}: ${input}`)
      assert.equal(fits.exchange.get(estimate).input, 10)
    }
    const over = await route([pdfPart('/words.txt')], [backend('gemini')], { window: 8000 })
    assert.deepEqual([over.status, over.json.error.code], [400, 'context_length_exceeded'])
    assert.match(
      over.json.error.message,
      /prompt is too long: 90\d\d tokens > 8000 maximum, with the files that were fetched for it/,
    )
    const small = backend('gemini', { contextWindow: 8000 })
    const other = await route([pdfPart('/words.txt')], [small, backend('anthropic-messages')])
    assert.deepEqual(went(other), ['anthropic-messages'])
    assert.equal((await route([pdfPart('/words.txt')], [small])).json.error.code, 'request_requirements_unsatisfied')
  })

  test('[REQ-1] what came may be of a kind that the backend does not take', async () => {
    serve('/a.gif', 'image/gif', Buffer.from('GIF89a..'))
    const run = await route([imagePart('/a.gif')], [backend('gemini')])
    assert.equal(run.status, 400)
    const { error } = JSON.parse(run.body)
    assert.deepEqual([error.code, error.param], ['request_requirements_unsatisfied', 'messages[0].content[0]'])
    const other = await route([imagePart('/a.gif')], [backend('gemini'), backend('anthropic-messages')])
    assert.deepEqual(went(other), ['anthropic-messages'])
  })

  test('[REQ-1] openai-chat: a document by URL is fetched, an image goes on as its URL', async () => {
    serve('/a.pdf', 'application/pdf', PDF)
    seen = []
    const run = await route([imagePart('/never.png'), pdfPart('/a.pdf')], [backend('openai-chat')])
    assert.equal(run.status, 200)
    assert.deepEqual(
      seen.map(s => s.url),
      ['/a.pdf'],
    )
    const [first, second] = run.exchange.get(upstreamConversation).turns[0]!.parts as any[]
    assert.deepEqual([first.source.kind, second.source.kind], ['url', 'data'])
  })

  test('[REQ-1] media inside a tool result is fetched too', async () => {
    serve('/a.png', 'image/png', PNG)
    const turns = [
      { role: 'user' as const, parts: [{ type: 'text' as const, text: 'go' }] },
      {
        role: 'assistant' as const,
        parts: [{ type: 'call' as const, id: 'c', kind: 'function' as const, name: 'f', input: '{}', path: 'p' }],
      },
      {
        role: 'tool' as const,
        parts: [
          {
            type: 'result' as const,
            callId: 'c',
            kind: 'function' as const,
            content: [imagePart('/a.png') as any],
            path: 'p',
          },
        ],
      },
    ]
    const run = await routed(turns, [backend('gemini')])
    const [part] = run.exchange.get(upstreamConversation).turns[2]!.parts as any[]
    assert.equal(part.content[0].source.kind, 'data')
  })

  test('[REQ-1] nothing is fetched for the sake of a backend that is not first, or could not serve anyway', async () => {
    seen = []
    const first = await route([imagePart('/a.png')], [backend('anthropic-messages'), backend('gemini')])
    assert.deepEqual(went(first), ['anthropic-messages'])
    const blind = await route(
      [imagePart('/a.png')],
      [backend('gemini', { supports: new Set(['tools']) }), backend('anthropic-messages')],
    )
    assert.deepEqual(went(blind), ['anthropic-messages'])
    const unlisted: Part = {
      type: 'image',
      source: { kind: 'url', url: 'https://elsewhere.test/a.png' },
      path: 'messages[0].content[0]',
    }
    const refused = await route([unlisted], [backend('gemini')])
    assert.deepEqual(
      [refused.status, refused.json.error.code, refused.json.error.param],
      [400, 'request_requirements_unsatisfied', 'messages[0].content[0]'],
    )
    const off = await route([imagePart('/a.png')], [backend('gemini')], { media: { fetch: [] } })
    assert.equal(off.json.error.code, 'request_requirements_unsatisfied')
    assert.deepEqual(seen, [])
  })

  test('[REQ-1] when it is first all can serve afterwards; when the fetch fails those that take the URL do', async () => {
    serve('/a.png', 'image/png', PNG)
    const both = [backend('gemini'), backend('anthropic-messages')]
    assert.deepEqual(went(await route([imagePart('/a.png')], both)), ['gemini', 'anthropic-messages'])
    const rest = await route([imagePart('/none')], both)
    assert.deepEqual(went(rest), ['anthropic-messages'])
    assert.equal(rest.exchange.peek(upstreamConversation), undefined)
  })

  test('[REQ-1] a fetch that fails is 400 invalid_value with the part, and says why without saying where', async () => {
    serve('/html', 'text/html', '<html>')
    routes.set('/hang', () => {})
    const cases: [string, object, RegExp][] = [
      ['/none', {}, /answered with status 404/],
      ['/html', {}, /no PNG, JPEG, GIF or WebP/],
      ['/hang', { timeout: 50 }, /within 0\.05 s \(media\.timeout\)/],
      ['/a.png', { max_bytes: 10 }, /over 10 bytes \(media\.max_bytes\)/],
      ['/a.png', { max_files: 0 }, /more than 0 files \(media\.max_files\)/],
    ]
    serve('/a.png', 'image/png', PNG)
    for (const [path, media, expected] of cases) {
      const run = await route([imagePart(path)], [backend('gemini')], { media })
      assert.equal(run.status, 400)
      assert.equal(run.json.error.code, 'invalid_value')
      assert.equal(run.json.error.param, 'messages[0].content[0]')
      assert.match(run.json.error.message, expected)
      assert.doesNotMatch(run.body, /127\.0\.0|localhost|ECONN|certificate/)
    }
    // The plugin as it is built in: loopback is refused, in the same words as a host that is down.
    const own = await route([imagePart('/a.png')], [backend('gemini')], { plugin: media })
    assert.match(own.json.error.message, /its host could not be reached/)
    assert.doesNotMatch(own.body, /127\.0\.0|localhost/)
  })
})
