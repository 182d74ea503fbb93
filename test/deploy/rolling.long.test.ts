/**
 * Gateways that restart one after the other behind a proxy, under load, as docs/deploy.md has it: no request may fail.
 * deploy/haproxy.cfg and the commands that the page shows for nginx are what runs here. Clients keep their connections, as
 * every SDK does. They did not, and so nobody saw that each reload of nginx resets some of them.
 */
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { Agent, request } from 'node:http'
import { test } from 'node:test'
import { KEY } from '../e2e/harness.ts'
import { eventually } from '../eventually.ts'
import { behindHaproxy, behindNginx, type Gateway, shown, twoGateways, withoutHaproxy, withoutNginx } from './fleet.ts'

/** Requests at least; the load goes on until all gateways were restarted. */
const REQUESTS = 1000
/** Clients, each with a connection that it keeps. */
const CLIENTS = 8

/** A kept connection was closed under a request: nothing of an answer has come. */
const RESET = 'reset'

/** One request and its whole stream. @returns what is wrong with the answer */
function ask(port: number, agent?: Agent): Promise<string | undefined> {
  const body = JSON.stringify({
    model: 'eb1-preview',
    stream: true,
    messages: [{ role: 'user', content: '[[sim: tokens 4; pace 20ms]]' }],
  })
  return new Promise(resolve => {
    const call = request(
      {
        host: '127.0.0.1',
        port,
        path: '/v1/chat/completions',
        method: 'POST',
        agent: agent ?? false,
        headers: {
          authorization: `Bearer ${KEY}`,
          'content-type': 'application/json',
          'content-length': Buffer.byteLength(body),
        },
      },
      response => {
        let text = ''
        response.setEncoding('utf8').on('data', piece => {
          text += piece
        })
        response.on('error', error => resolve(`cut: ${error.message}`))
        response.on('end', () =>
          resolve(
            response.statusCode === 200 && text.endsWith('data: [DONE]\n\n')
              ? undefined
              : `${response.statusCode} ${text}`,
          ),
        )
      },
    )
    call.on('error', (error: NodeJS.ErrnoException) =>
      resolve(call.reusedSocket && /ECONNRESET|EPIPE/.test(error.code ?? '') ? RESET : error.message),
    )
    call.end(body)
  })
}

interface Load {
  sent: number
  failures: string[]
}

/** Sends requests without a pause while `work` runs, and until there were enough. */
async function underLoad(port: number, work: () => Promise<void>): Promise<Load> {
  const failures: string[] = []
  let sent = 0
  let working = true
  const clients = Array.from({ length: CLIENTS }, async () => {
    const agent = new Agent({ keepAlive: true, maxSockets: 1 })
    while (working || sent < REQUESTS) {
      sent++
      const failure = await ask(port, agent)
      if (failure !== undefined) failures.push(failure)
    }
    agent.destroy()
  })
  try {
    await eventually(() => sent > 5 * CLIENTS)
    await work()
  } finally {
    working = false
    await Promise.all(clients)
  }
  assert.ok(sent >= REQUESTS)
  return { sent, failures }
}

test('behind HAProxy two gateways restart one after the other, and no request of a thousand is lost', {
  skip: withoutHaproxy,
}, async t => {
  const { gateways } = await twoGateways(t)
  const { port, said, states } = await behindHaproxy(t, gateways)
  await eventually(async () => (await ask(port)) === undefined, said)

  const { sent, failures } = await underLoad(port, async () => {
    for (const [i, gateway] of gateways.entries()) {
      const ended = gateway.stop()
      // HAProxy notices by /readyz alone, while the gateway still serves.
      await eventually(async () => (await states()).split(',')[i] === 'DOWN', said)
      assert.equal(await ask(gateway.port), undefined, 'the gateway still serves')
      assert.equal(await ended, 0)
      await gateway.start()
      await eventually(async () => (await states()) === 'UP,UP', said)
    }
  })
  assert.deepEqual(failures, [], `${failures.length} of ${sent} failed\n${said()}`)
})

test('behind nginx two gateways restart one after the other; of a thousand requests only some are lost that its reload resets, and those reach no gateway', {
  skip: withoutNginx,
}, async t => {
  const { gateways, simulator } = await twoGateways(t)
  const { port, file, reload, said } = await behindNginx(t, gateways)
  await eventually(async () => (await ask(port)) === undefined, said)
  const before = simulator.requests.length

  /** Runs a command of the page, on this nginx and for this gateway. */
  const command = (begin: string, gateway: Gateway): void => {
    const text = shown(begin)
      .replace('127.0.0.1:8081', `127.0.0.1:${gateway.port}`)
      .replace('/etc/nginx/conf.d/sluice.conf', file)
      .replace('nginx -s reload', reload)
    const { status, stderr } = spawnSync('sh', ['-c', text], { encoding: 'utf8' })
    assert.equal(status, 0, stderr)
  }
  const marked = () => readFileSync(file, 'utf8').match(/ down;/g)?.length ?? 0

  let direct = 0
  const { sent, failures } = await underLoad(port, async () => {
    for (const gateway of gateways) {
      const ended = gateway.stop()
      command("sed -i 's/server", gateway)
      assert.equal(marked(), 1)
      assert.equal(await ask(gateway.port), undefined, 'the gateway still serves')
      direct++
      assert.equal(await ended, 0)
      await gateway.start()
      command("sed -i 's/ down;", gateway)
      assert.equal(marked(), 0)
    }
  })
  const others = failures.filter(failure => failure !== RESET)
  assert.deepEqual(others, [], `${others.length} of ${sent} failed\n${said()}`)
  // There is one connection for each client and reload that can be reset.
  assert.ok(failures.length <= CLIENTS * 2 * gateways.length, `${failures.length} of ${sent} were reset`)
  assert.equal(simulator.requests.length - before, sent + direct - failures.length, 'what was reset was not served')
  t.diagnostic(`${failures.length} of ${sent} were reset`)
})
