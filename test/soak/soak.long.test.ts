/** The soak itself, small: it runs, and its checks pass. */
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { test } from 'node:test'
import { promisify } from 'node:util'
import { findProgram } from '../ensure-deps.ts'

const SOAK = join(import.meta.dirname, 'index.ts')

function soak(...args: string[]): Promise<{ code: number; out: string; err: string }> {
  return new Promise(resolve =>
    execFile(process.execPath, ['--disable-warning=ExperimentalWarning', SOAK, ...args], (error, out, err) =>
      resolve({ code: error ? Number(error.code ?? 1) : 0, out, err }),
    ),
  )
}

test('[BILL-4] a small soak: faults, leavers, slow readers and reloads; books balance, nothing is left open', async () => {
  const { code, out, err } = await soak('--minutes', '0.05', '--streams', '50')
  assert.equal(code, 0, err)
  assert.equal(err, '', 'no progress in a pipe')
  const report = JSON.parse(out)
  assert.equal(report.admitted, report.requests)
  assert.ok(report.served > 0 && report.reloads > 0)
})

test('streams that get an event a second: each is counted, none may end', async () => {
  const { code, out, err } = await soak('--idle-streams', '20', '--minutes', '0.05')
  assert.equal(code, 0, err)
  const report = JSON.parse(out)
  assert.deepEqual([report.streams, report.errors], [20, 0])
  assert.ok(report.events >= 20 * report.fewest_on_a_stream && report.fewest_on_a_stream >= 2)
})

const script = findProgram(['script'])
test('on a terminal it shows rate and time left', {
  skip: script ? false : 'script (util-linux) is not installed',
}, async () => {
  const command = `${process.execPath} --disable-warning=ExperimentalWarning ${SOAK} --minutes 0.05 --idle-streams 5`
  const { stdout } = await promisify(execFile)(script!, ['-qefc', command, '/dev/null'])
  assert.match(stdout, /\d+ events, [\d,.]+\/s, \d+ %, \d+ s left/)
})
