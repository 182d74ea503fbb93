/**
 * Every plugin that the gateway brings has a specification in this folder: a file of its name, driven by the harness
 * that plugin authors get.
 */
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { plugins } from '../../plugins/index.ts'

for (const { name } of plugins) {
  test(`${name} has one`, () => {
    const text = readFileSync(join(import.meta.dirname, `${name}.test.ts`), 'utf8')
    assert.match(text, /\brunPlugin\(/)
  })
}
