/** docs/architecture.md: at most 150 lines, and every folder has its place in it. */
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { plugins } from '../../plugins/index.ts'

const ROOT = join(import.meta.dirname, '..', '..')
const page = readFileSync(join(ROOT, 'docs/architecture.md'), 'utf8')
const tracked = execFileSync('git', ['ls-files'], { cwd: ROOT, encoding: 'utf8' }).split('\n')
const rooms = [...new Set(tracked.filter(file => file.includes('/')).map(file => file.slice(0, file.indexOf('/'))))]
/** By room, from biome.json: the rooms that it may not import. */
const { overrides } = JSON.parse(readFileSync(join(ROOT, 'biome.json'), 'utf8'))

test('the page is short, and names every room', () => {
  assert.ok(page.split('\n').length <= 150, String(page.split('\n').length))
  for (const room of rooms) if (!room.startsWith('.')) assert.ok(page.includes(`${room}/`), room)
})

test('plugins/ holds one entry for each plugin, and nothing else but the extra ones, their registry, their test kit and what they share', () => {
  const entries = new Set(tracked.filter(file => file.startsWith('plugins/')).map(file => file.split('/')[1]!))
  const named = [...entries].map(entry => entry.replace(/\.ts$/, '')).sort()
  assert.deepEqual(named, [...plugins.map(plugin => plugin.name), 'extra', 'index', 'shared', 'testing'].sort())
})

test('every room that serves has its rule of imports, which forbids tests, benches, docs and the console', () => {
  for (const room of [
    'core',
    'http',
    'config',
    'surfaces',
    'providers',
    'meter',
    'stores',
    'plugins',
    'admin',
    'cli',
    'console',
  ]) {
    const rule = overrides.find((each: any) => each.includes.includes(`${room}/**`))
    const groups: string[] = rule.linter.rules.style.noRestrictedImports.options.patterns.flatMap((p: any) => p.group)
    for (const never of ['test', 'bench', 'docs']) assert.ok(groups.includes(`**/${never}/**`), `${room}: ${never}`)
    if (room !== 'console') assert.ok(groups.includes('**/console/**'), `${room}: console`)
    if (room === 'core')
      for (const other of rooms.filter(name => ['http', 'config', 'plugins', 'cli'].includes(name)))
        assert.ok(groups.includes(`**/${other}/**`), other)
  }
})
