/** The log's lines: fields as docs/metrics.md lists them, errors without their messages, and the form for people. */
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { describeError, type LogOptions, openLog } from '../../cli/log.ts'
import { prettyLine } from '../../cli/pretty.ts'
import { StoreUnavailable } from '../../core/canon/errors.ts'
import { startSimulator } from '../../providers/simulator/server.ts'
import { defaultYaml, KEY, startGateway } from '../e2e/harness.ts'
import { eventually, timersOf } from '../eventually.ts'
import { request } from './load.ts'

const ROOT = join(import.meta.dirname, '../..')

/** What these calls write. */
async function written(
  options: LogOptions,
  use: (log: ReturnType<typeof openLog>) => unknown,
  settings = { level: 'debug', bodies: false } as Parameters<typeof openLog>[0],
): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-log-'))
  const descriptor = openSync(join(folder, 'log'), 'w')
  try {
    const log = openLog(settings, { ...options, descriptor })
    await use(log)
    await log.close()
    return readFileSync(join(folder, 'log'), 'utf8')
  } finally {
    closeSync(descriptor)
    rmSync(folder, { recursive: true })
  }
}

test('an exchange’s line has the documented fields, and no others', async () => {
  const docs = readFileSync(join(ROOT, 'docs/metrics.md'), 'utf8')
  const section = docs.slice(docs.indexOf('### One line per exchange'), docs.indexOf('### Other lines'))
  const told = new Set(
    [...section.matchAll(/^\| ((?:`\w+`(?:, )?)+) \|/gm)].flatMap(row =>
      [...row[1]!.matchAll(/`(\w+)`/g)].map(field => field[1]!),
    ),
  )
  const text = await written({}, async log => {
    const g = await startGateway({ gateway: { log } })
    try {
      for (let i = 0; i < 20; i++) await request(g, i)
      await (await fetch(`${g.url}/v1/nothing`)).text()
      await (await g.post('/v1/chat/completions', { model: 'eb1-preview', messages: [], tempreature: 1 })).text()
      await eventually(() => g.gateway.ingress.running.size === 0)
    } finally {
      await g.close()
    }
  })
  const lines = text
    .trimEnd()
    .split('\n')
    .map(line => JSON.parse(line))
  const seen = new Set<string>()
  const exchanges = lines.filter(line => line.msg === 'exchange')
  assert.equal(exchanges.length, 22)
  // A 404 named no model, and a 400 no member: the log alone did not tell what the client had done wrong.
  const lost = exchanges.find(line => line.code === 'model_not_found')
  assert.deepEqual([lost.unknown_model, lost.model, lost.param], ['gpt-9', undefined, 'model'])
  assert.equal(exchanges.find(line => line.code === 'unknown_parameter').param, 'tempreature')
  for (const line of lines) {
    assert.match(line.level, /^(debug|info|warn|error)$/)
    assert.match(line.time, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
  }
  for (const { level, time, msg, ...fields } of exchanges) {
    assert.equal(level, 'info')
    assert.match(fields.request_id, /^req_/)
    for (const field of Object.keys(fields)) seen.add(field)
  }
  // Of the plugin `runaway`: test/e2e/runaway.test.ts has it.
  seen.add('slowed_ms')
  // Of a backend that is out: test/e2e/passed-over.test.ts has it.
  seen.add('passed_over')
  // Of a limit or a store: test/cli/trace.test.ts has it.
  seen.add('cause')
  // Of a provider that cannot be reached, or whose reply is cut: test/cli/trace.test.ts has it.
  seen.add('upstream_why')
  assert.deepEqual([...seen].sort(), [...told].sort())
  const messages = [...docs.slice(docs.indexOf('### Other lines')).matchAll(/^\| `([^`…:]+)/gm)].map(row =>
    row[1]!.trim(),
  )
  for (const { msg } of lines) assert.ok(msg === 'exchange' || messages.some(known => msg.startsWith(known)), msg)
})

test('lines arrive whole and in their order, however long they are and whatever they hold', async () => {
  const text = await written({}, async log => {
    for (let i = 0; i < 3000; i++) {
      // Now and then one that is longer than any group, and a pause in which what waits is written.
      log.info({ i, plain: 'x'.repeat(i % 300), wide: '€'.repeat(i % 700 === 0 ? 50_000 : i % 7) }, 'line')
      if (i % 1000 === 0) await timersOf(150)
    }
  })
  const lines = text.trimEnd().split('\n')
  assert.equal(lines.length, 3000)
  for (const [i, line] of lines.entries()) {
    const { plain, wide, ...fields } = JSON.parse(line)
    assert.equal(fields.i, i)
    assert.equal(plain.length, i % 300)
    assert.equal(wide, '€'.repeat(i % 700 === 0 ? 50_000 : i % 7))
  }
})

test('configure: level and messages of errors change for the lines that follow', async () => {
  const text = await written({}, log => {
    const { debug, info } = log
    const lines = (name: string) => {
      debug({ name }, 'debug')
      info({ name }, 'info')
      log.warn({ name, err: new Error('the prompt') }, 'warn')
    }
    lines('first')
    log.configure({ level: 'warn', bodies: true })
    lines('second')
    log.configure({ level: 'info', bodies: false })
    lines('third')
  })
  const told = text
    .trimEnd()
    .split('\n')
    .map(line => JSON.parse(line))
    .map(({ name, level, err }) => [name, level, err?.message])
  assert.deepEqual(told, [
    ['first', 'debug', undefined],
    ['first', 'info', undefined],
    ['first', 'warn', undefined],
    ['second', 'warn', 'the prompt'],
    ['third', 'info', undefined],
    ['third', 'warn', undefined],
  ])
})

test('messages of errors are left out by default, but for a log that nobody else reads', async () => {
  for (const [own, bodies, shown] of [
    [false, undefined, false],
    [true, undefined, true],
    [true, false, false],
    [false, true, true],
  ] as const) {
    const settings = { level: 'info', ...(bodies !== undefined && { bodies }) }
    const log = (log: ReturnType<typeof openLog>) => {
      log.error({ err: new Error('the prompt') }, 'plugin failed')
      log.configure(settings)
      log.error({ err: new Error('the prompt') }, 'plugin failed')
    }
    const lines = (await written({ private: own }, log, settings)).trimEnd().split('\n')
    assert.deepEqual(
      lines.map(line => line.includes('the prompt')),
      [shown, shown],
    )
  }
})

test('an error is told by type, code and place; its message only where the system wrote it, or bodies are asked for', () => {
  const secret = 'the prompt'
  const cause = new RangeError(secret)
  const plain = describeError(new TypeError(secret, { cause }), false)
  assert.deepEqual(
    [plain.type, plain.message, plain.cause?.type, plain.cause?.message],
    ['TypeError', undefined, 'RangeError', undefined],
  )
  assert.match(plain.stack![0]!, /^at .*log\.test\.ts:\d+:\d+/)
  assert.doesNotMatch(JSON.stringify(plain), /prompt/)
  assert.equal(describeError(new TypeError(secret, { cause }), true).cause?.message, secret)
  assert.equal(
    describeError(
      Object.assign(new Error('connect ECONNREFUSED 127.0.0.1:1'), { code: 'ECONNREFUSED', syscall: 'connect' }),
      false,
    ).message,
    'connect ECONNREFUSED 127.0.0.1:1',
  )
  assert.equal(
    describeError(new StoreUnavailable('redis did not answer within 250 ms'), false).message,
    'redis did not answer within 250 ms',
  )
  assert.equal(
    describeError(Object.assign(new Error(`bad ${secret}`), { code: 'ERR_INVALID_ARG_VALUE' }), false).message,
    undefined,
  )
  for (const odd of [secret, undefined, null, 7, { secret }])
    assert.doesNotMatch(JSON.stringify(describeError(odd, false)), /prompt/)
  const loop = new Error('a')
  loop.cause = loop
  assert.ok(JSON.stringify(describeError(loop, true)).length < 10_000)
  // A stack whose message has lines like frames.
  const sly = new Error('x')
  sly.stack = undefined
  assert.equal(describeError(sly, false).stack, undefined)
})

test('a message of several lines is not taken for the stack', () => {
  const sly = describeError(new Error('one\ntwo prompt\nthree'), false)
  assert.doesNotMatch(JSON.stringify(sly), /prompt|three/)
  const frames = describeError(new Error('one\n    at prompt (/secret:1:2)'), false)
  assert.doesNotMatch(JSON.stringify(frames), /prompt/)
})

test('--pretty: one line an exchange, other lines with their fields, errors with their place', () => {
  const time = '2026-01-02T03:04:05.678Z'
  const line = (fields: object) =>
    prettyLine(`${JSON.stringify({ level: 'info', time, ...fields })}\n`, false).replace(/^\d\d:\d\d:\d\d\.\d{3} /, '')
  assert.equal(
    line({
      request_id: 'req_1',
      route: 'POST /v1/responses',
      status: 200,
      outcome: 'completed',
      organization: 'acme',
      key: 'key_ci',
      model: 'eb1',
      backend: 'openai/gpt',
      input_tokens: 12,
      output_tokens: 34,
      duration_ms: 900,
      ttfb_ms: 40,
      msg: 'exchange',
    }),
    'info  200 completed  POST /v1/responses  acme/key_ci  eb1 → openai/gpt  12 in 34 out  ttfb 40 ms  900 ms  req_1\n',
  )
  assert.equal(
    line({
      request_id: 'req_2',
      route: '',
      status: 404,
      outcome: 'refused',
      code: 'not_found',
      duration_ms: 0,
      msg: 'exchange',
    }),
    'info  404 not_found  (no route)  0 ms  req_2\n',
  )
  assert.equal(
    line({ level: 'warn', sections: ['server'], msg: 'these sections take effect at the next start' }),
    'warn  these sections take effect at the next start  sections=["server"]\n',
  )
  assert.equal(
    line({
      level: 'error',
      request_id: 'req_3',
      plugin: 'mine',
      err: { type: 'TypeError', stack: ['at a (b.ts:1:2)'], cause: { type: 'Error', code: 'E' } },
      msg: 'plugin failed',
    }),
    'ERROR plugin failed  request_id=req_3  plugin=mine\n    TypeError\n      at a (b.ts:1:2)\n    Error E\n',
  )
  assert.equal(prettyLine('not json\n', false), 'not json\n')
  assert.match(prettyLine(JSON.stringify({ level: 'error', time, msg: 'x' }), true), /\x1b\[31mERROR\x1b\[0m/)
})

test('sluice start --pretty writes for people; without it JSON; a terminal’s colours are for terminals', {
  timeout: 120_000,
}, async () => {
  const simulator = await startSimulator({ port: 0 })
  const folder = mkdtempSync(join(tmpdir(), 'sluice-pretty-'))
  try {
    writeFileSync(join(folder, 'gateway.yaml'), defaultYaml(simulator.url))
    const logged = async (flags: string[]): Promise<string> => {
      const child = spawn(
        process.execPath,
        ['--disable-warning=ExperimentalWarning', join(ROOT, 'cli/main.ts'), 'start', ...flags],
        { cwd: folder, stdio: ['ignore', 'pipe', 'pipe'] },
      )
      let errors = ''
      let out = ''
      child.stderr.setEncoding('utf8').on('data', piece => {
        errors += piece
      })
      const address = await new Promise<string>((resolve, reject) => {
        child.stdout.setEncoding('utf8').on('data', piece => {
          out += piece
          const found = /listens on (\S+)/.exec(out)?.[1]
          if (found && out.includes('dashboard')) resolve(found)
        })
        child.on('exit', code => reject(new Error(`ended with ${code}: ${errors}`)))
      })
      await (await fetch(`${address}/v1/models`, { headers: { authorization: `Bearer ${KEY}` } })).text()
      const ended = new Promise(resolve => child.on('close', resolve))
      child.kill('SIGTERM')
      await ended
      return errors
    }
    assert.match(
      await logged(['--pretty']),
      /^\d\d:\d\d:\d\d\.\d{3} info {2}200 completed {2}GET \/v1\/models {2}acme\/key_test {2}(ttfb \d+ ms {2})?\d+ ms {2}req_\w+$/m,
    )
    const line = (await logged([])).split('\n').find(text => text.includes('"exchange"'))!
    assert.equal(JSON.parse(line).route, 'GET /v1/models')
  } finally {
    rmSync(folder, { recursive: true })
    await simulator.close()
  }
})
