/** The soak itself, small: it runs, and its checks pass. */
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { test } from 'node:test'

const SOAK = join(import.meta.dirname, '..', '..', 'bench', 'soak.ts')

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
  const report = JSON.parse(out)
  assert.equal(report.admitted, report.requests)
  assert.ok(report.served > 0 && report.reloads > 0)
})
