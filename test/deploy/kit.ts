/** What the tests of deploy/ share. */
import assert from 'node:assert/strict'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TestContext } from 'node:test'
import { Ajv2020 } from 'ajv/dist/2020.js'
import { load } from '../../cli/load.ts'
import { formatError } from '../../config/load.ts'
import { sha256 } from '../e2e/harness.ts'

export const ROOT = join(import.meta.dirname, '../..')
export const read = (path: string) => readFileSync(join(ROOT, path), 'utf8')

/** The variables that the files of deploy/ read. */
export const ENV = {
  SLUICE_STORE: 'redis://127.0.0.1:6379',
  OPENAI_API_KEY: 'k',
  SLUICE_ADMIN_TOKEN: 'a-token',
  SLUICE_SECRET: 'a-secret-of-the-tests-with-32-characters',
  SLUICE_KEY_SHA256: sha256('sk-mine'),
}

/** An empty folder, until the end of the test. */
export function folder(t: TestContext): string {
  const dir = mkdtempSync(join(tmpdir(), 'sluice-deploy-'))
  t.after(() => rmSync(dir, { recursive: true, force: true }))
  return dir
}

/** Fails unless a gateway starts with this configuration and those variables, and not without each that has no default. */
export async function loads(t: TestContext, text: string): Promise<void> {
  const file = join(folder(t), 'gateway.yaml')
  writeFileSync(file, text)
  const faults = async (env: Record<string, string>) => (await load(file, { env })).errors?.map(formatError) ?? []
  assert.deepEqual(await faults(ENV), [])
  for (const [, name] of text.matchAll(/\$\{(\w+)\}/g)) {
    const { [name as keyof typeof ENV]: _, ...without } = ENV
    assert.match((await faults(without)).join('\n'), new RegExp(`environment variable ${name} is not set`))
  }
}

export const valid = (schema: object, value: unknown) => {
  const ajv = new Ajv2020({ allErrors: true, strict: false })
  assert.equal(ajv.validate(schema, value), true, ajv.errorsText())
}
