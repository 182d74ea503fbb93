/**
 * What the gateway writes is its owner's alone: the store holds replies and the secret, and another user could read
 * them.
 */
import assert from 'node:assert/strict'
import { chmodSync, mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { defaultYaml, startGateway } from './harness.ts'

/** Paths below the folder, with their modes. */
function modes(folder: string, below = ''): [string, number][] {
  return readdirSync(join(folder, below), { withFileTypes: true }).flatMap(entry => {
    const name = join(below, entry.name)
    const own: [string, number] = [name, statSync(join(folder, name)).mode & 0o777]
    return entry.isDirectory() ? [own, ...modes(folder, name)] : [own]
  })
}

/** As Debian has it: what is made without a mode is readable to all. */
function withPlainUmask(t: { after(fn: () => void): void }): void {
  const before = process.umask(0o022)
  t.after(() => process.umask(before))
}

async function serveOnce(t: { after(fn: () => unknown): void }, file: string): Promise<void> {
  const gateway = await startGateway({ yaml: sim => defaultYaml(sim).replace('sqlite::memory:', `sqlite:${file}`) })
  t.after(() => gateway.close())
  const reply = await gateway.post('/v1/responses', { model: 'eb1-preview', input: 'x' }, { 'idempotency-key': 'k' })
  assert.equal(reply.status, 200)
  await reply.text()
}

test('the store’s folder and files are made for their owner alone, the write-ahead log from its first byte', async t => {
  // Was: the database was chmodded after SQLite had made the log, which stayed 0644 and showed an idempotent reply.
  withPlainUmask(t)
  const folder = mkdtempSync(join(tmpdir(), 'sluice-private-'))
  t.after(() => rmSync(folder, { recursive: true, force: true }))
  await serveOnce(t, join(folder, 'data', 'gateway.db'))
  const found = modes(folder)
  assert.ok(
    found.some(([name]) => name.endsWith('gateway.db-wal')),
    String(found),
  )
  for (const [name, mode] of found) assert.equal(mode & 0o077, 0, `${name} is ${mode.toString(8)}`)
})

test('files that an earlier release left readable to others are mended at the start', async t => {
  withPlainUmask(t)
  const folder = mkdtempSync(join(tmpdir(), 'sluice-private-'))
  t.after(() => rmSync(folder, { recursive: true, force: true }))
  const file = join(folder, 'gateway.db')
  for (const name of [file, `${file}-wal`]) {
    writeFileSync(name, '')
    chmodSync(name, 0o644)
  }
  await serveOnce(t, file)
  for (const [name, mode] of modes(folder)) assert.equal(mode & 0o077, 0, `${name} is ${mode.toString(8)}`)
})
