import { parseArgs } from 'node:util'
import { BUILT_IN_PLANS } from '../config/plans.ts'
import type { Preset } from '../providers/presets.ts'
import type { Verb } from './main.ts'
import { columns } from './terminal.ts'

const HELP = `Usage: sluice list

Lists the built-in plugins, the dialects that upstreams may speak, the
presets of providers, and the plans that organizations may name without a
plans section.
`

export const list: Verb = {
  summary: 'Lists what is built in.',
  help: HELP,
  async run(args, terminal) {
    parseArgs({ args, options: {} })
    const { plugins } = await import('../plugins/index.ts')
    const { PRESETS } = await import('../providers/presets.ts')
    const { extras } = await import('../plugins/extra/index.ts')
    const { loadPluginFile } = await import('../config/modules.ts')
    const named = await Promise.all([...extras.values()].map(path => loadPluginFile(path, 0)))
    const { dialects } = await import('../providers/index.ts')
    terminal.out('plugins')
    terminal.out(columns(plugins.map(p => [p.name, p.terminal ? `${p.summary} (terminal)` : p.summary])))
    terminal.out('\nplugins that are loaded when a pipeline names them')
    terminal.out(columns(named.map(p => [p.name, p.summary])))
    terminal.out('\ndialects')
    terminal.out(columns(Object.values(dialects).map(d => [d.name, [...d.capabilities].join(', ')])))
    terminal.out('\npresets')
    terminal.out(columns(Object.entries(PRESETS).map(([name, preset]) => [name, presetLine(preset)])))
    terminal.out('\nplans')
    terminal.out(columns(Object.entries(BUILT_IN_PLANS).map(([name, plan]) => [name, planLine(plan)])))
    return 0
  },
}

function presetLine({ of, settings }: Preset): string {
  const dialects = Object.keys(of).join(', ')
  return settings ? `${dialects}; needs ${settings.join(', ')}` : dialects
}

function planLine(plan: Record<string, unknown>): string {
  const limits = Object.entries(plan['limits'] as Record<string, unknown>).filter(([, value]) => value !== null)
  return limits.map(([name, value]) => `${name} ${value}`).join(', ') || 'no limits'
}
