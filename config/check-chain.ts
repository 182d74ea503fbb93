/**
 * Checks one pipeline as a chain: every plugin exists, one plugin is terminal, and every slot is filled above the
 * plugin that needs it. Pure functions, which `check`, start-up and `explain` share.
 */

import type { PipelineEntry, Position } from '../core/engine/chain.ts'
import { type Plugin, requestBody, type Safeguard, type Slot } from '../core/plugin.ts'
import type { ConfigError } from './source.ts'
import { didYouMean } from './suggest.ts'

/** Plugins by name: the built-in ones and those listed under `plugins:`. A `Map` has this shape. */
export interface PluginCatalog {
  get(name: string): Plugin | undefined
  keys(): Iterable<string>
}

export interface ChainToCheck {
  name: string
  /** Position of the pipeline's name in the file. */
  at: Position
  entries: readonly PipelineEntry[]
}

/** Slots that core fills itself when a plugin needs them. */
const FILLED_BY_CORE = new Set([requestBody.name])

/** Every error of the chain; empty when the chain can be built. */
export function checkChain(chain: ChainToCheck, catalog: PluginCatalog): ConfigError[] {
  const errors: ConfigError[] = []
  if (chain.entries.length === 0) {
    return [
      {
        ...chain.at,
        message: `pipeline ${chain.name} is empty; it needs at least a terminal plugin (${terminals(catalog)})`,
      },
    ]
  }
  const links = chain.entries.map(entry => ({ entry, plugin: catalog.get(entry.plugin) }))

  const ids = new Map<string, PipelineEntry>()
  let terminal: PipelineEntry | undefined
  for (const { entry, plugin } of links) {
    if (!plugin) {
      const near = didYouMean(entry.plugin, catalog.keys())
      const cure = near || `; known plugins: ${[...catalog.keys()].join(', ')}. List a file of your own under plugins:`
      errors.push({ ...entry.at, message: `there is no plugin '${entry.plugin}'${cure}` })
      continue
    }
    const twin = ids.get(entry.id)
    if (twin) {
      const cure = `give this one another: { plugin: ${entry.plugin}, id: ${entry.id}-2, config: {…} }`
      errors.push({
        ...entry.at,
        message: `the id '${entry.id}' is taken in this pipeline (${place(twin.at, entry.at)}); ${cure}`,
      })
    } else ids.set(entry.id, entry)
    if (plugin.terminal) {
      if (terminal) {
        errors.push({
          ...entry.at,
          message: `${entry.id} is a second terminal plugin; ${terminal.id} (${place(terminal.at, entry.at)}) already answers. A pipeline has exactly one: remove this or that`,
        })
      } else terminal = entry
      if (entry.on_failure === 'skip')
        errors.push({
          ...entry.at,
          message: `${entry.id} answers the request and cannot be skipped; remove on_failure`,
        })
    }
  }
  const allKnown = links.every(link => link.plugin)
  if (!terminal && allKnown) {
    errors.push({
      ...chain.at,
      message: `pipeline ${chain.name} has no terminal plugin, so nothing would answer; add one of: ${terminals(catalog)}`,
    })
  }

  const writers = new Map<string, PipelineEntry>()
  for (const { entry, plugin } of links) {
    for (const slot of [...(plugin?.provides ?? []), ...(plugin?.mayProvide ?? []), ...(plugin?.providesLate ?? [])]) {
      const first = writers.get(slot.name)
      // An id that occurs twice was already reported above. Two entries of one plugin may share a slot that the plugin
      // may fill.
      const shares = first?.plugin === entry.plugin && fills(plugin?.mayProvide, slot)
      if (first && first.id !== entry.id && !shares) {
        errors.push({
          ...entry.at,
          message: `${entry.id} fills '${slot.name}', which ${first.id} (${place(first.at, entry.at)}) already fills; a slot has one writer. Remove one of the two`,
        })
      } else writers.set(slot.name, first ?? entry)
    }
  }

  const answers = links.findIndex(({ entry }) => entry === terminal)
  for (const [index, { entry, plugin }] of links.entries()) {
    // A plugin that version 1 implies needs nothing beyond what the plugin below it needs, and that one is checked.
    if (entry.implied) continue
    for (const slot of [...(plugin?.needs ?? []), ...(plugin?.rewrites ?? [])]) {
      if (FILLED_BY_CORE.has(slot.name)) {
        if (terminal && index > answers && !links.some(({ plugin }, i) => i <= answers && fills(plugin?.needs, slot))) {
          const needs = `${entry.id} needs '${slot.name}', which is there only when a plugin above ${terminal.id} needs it, too`
          errors.push({ ...entry.at, message: `${needs}. Move ${entry.id} above ${place(terminal.at, entry.at)}.` })
        }
        continue
      }
      const writers = links.filter(link => fills(link.plugin?.provides, slot))
      const above = writers.filter(link => links.indexOf(link) < index)
      if (above.length > 0) {
        const skippable = above.find(link => link.entry.on_failure === 'skip')
        if (skippable) {
          errors.push({
            ...skippable.entry.at,
            message: `${skippable.entry.id} cannot be skipped on failure: ${entry.id} (${place(entry.at, skippable.entry.at)}) needs '${slot.name}' from it. Remove on_failure: skip`,
          })
        }
        continue
      }
      // The plugin that is not known may be the one that fills the slot. Its own error is reported, so this one is not.
      if (writers.length === 0 && !allKnown) continue
      errors.push({ ...entry.at, message: missing(entry, slot, writers[0]?.entry, links, catalog) })
    }
  }
  for (const [index, { entry, plugin }] of links.entries()) {
    for (const slot of plugin?.needsLate ?? []) {
      const writer = links.findIndex(link => fills(link.plugin?.providesLate, slot))
      if (writer >= 0 && (writer < index || writer > answers)) continue
      if (writer < 0 && !allKnown) continue
      errors.push({ ...entry.at, message: missingLate(entry, slot, links[writer]?.entry, terminal, catalog) })
    }
  }
  for (const [index, { entry, plugin }] of links.entries()) {
    if (terminal && (plugin?.aboveTerminal || plugin?.layers) && index > answers) {
      const where = `${terminal.id} (${place(terminal.at, entry.at)})`
      errors.push({
        ...entry.at,
        message: `${entry.id} is listed below ${where}, where no request reaches it. Move it above.`,
      })
    }
    for (const slot of plugin?.reads ?? []) {
      const above = links.slice(0, index).some(link => fills(link.plugin?.provides, slot))
      const below = links.slice(index + 1).find(link => fills(link.plugin?.provides, slot))
      // One below the terminal has an error of its own.
      if (above || !below || (below.plugin?.aboveTerminal && links.indexOf(below) > answers)) continue
      const reads = `${entry.id} reads '${slot.name}', which ${below.entry.id} fills`
      errors.push({
        ...entry.at,
        message: `${reads}, but it is listed below (${place(below.entry.at, entry.at)}). Move ${below.entry.id} above.`,
      })
    }
  }
  if (terminal) errors.push(...untranslated(links, answers, allKnown, catalog))
  if (terminal) errors.push(...unguarded(links, answers, allKnown, catalog))
  return errors.filter(
    (e, i) => errors.findIndex(f => f.message === e.message && f.line === e.line && f.column === e.column) === i,
  )
}

interface ChainLink {
  entry: PipelineEntry
  plugin: Plugin | undefined
}

/** Errors for a terminal that calls models without the one plugin above it that translates. */
function untranslated(
  links: readonly ChainLink[],
  answers: number,
  allKnown: boolean,
  catalog: PluginCatalog,
): ConfigError[] {
  const { entry, plugin } = links[answers]!
  if (!plugin?.calls) return []
  const translates = (plugin: Plugin | undefined) => plugin?.layers?.includes('translate') ?? false
  const [first, ...others] = links.filter(link => translates(link.plugin))
  if (!first) {
    if (!allKnown) return []
    const cure = [...catalog.keys()].filter(name => translates(catalog.get(name))).join(' or ')
    return [
      { ...entry.at, message: `${entry.id} calls models, and nothing above translates for it. Add ${cure} above.` },
    ]
  }
  return others.map(({ entry: other }) => ({
    ...other.at,
    message: `${other.id} translates, which ${first.entry.id} (${place(first.entry.at, other.at)}) already does. Remove one of the two`,
  }))
}

/** Errors for the safeguards of the terminal that nothing above it provides and that its entry does not waive. */
function unguarded(
  links: readonly ChainLink[],
  answers: number,
  allKnown: boolean,
  catalog: PluginCatalog,
): ConfigError[] {
  const errors: ConfigError[] = []
  const { entry } = links[answers]!
  for (const { slot, waiver, without } of safeguardsOf(links[answers]!)) {
    if (entry.config[waiver] === true) continue
    const error = (message: string) => errors.push({ ...entry.at, message })
    const above = links.slice(0, answers).find(link => fills(link.plugin?.provides, slot))
    if (above) {
      if (above.entry.on_failure !== 'skip') continue
      const at = place(above.entry.at, entry.at)
      error(
        `${entry.id} ${without} whenever ${above.entry.id} (${at}) fails. Remove on_failure: skip there, or say ${waiver}: true`,
      )
      continue
    }
    // A plugin that is not known may be the one. One below the terminal has an error of its own.
    const below = links.slice(answers + 1).find(link => fills(link.plugin?.provides, slot))
    if (!allKnown || below?.plugin?.aboveTerminal) continue
    const sometimes = links.slice(0, answers).find(link => fills(link.plugin?.mayProvide, slot))
    const writers = [...catalog.keys()].filter(name => fills(catalog.get(name)?.provides, slot))
    const cure = below
      ? `Move ${below.entry.id} above`
      : `Add ${writers.join(' or ') || `what fills '${slot.name}'`} above`
    const known = sometimes ? `; ${sometimes.entry.id} fills it for some exchanges only` : ''
    error(`${entry.id} ${without}: nothing above it fills '${slot.name}'${known}. ${cure}, or say ${waiver}: true`)
  }
  return errors
}

function safeguardsOf({ entry, plugin }: ChainLink): readonly Safeguard[] {
  return plugin?.safeguards?.(entry.config) ?? []
}

/** Warnings about a chain that can be built. */
export function chainWarnings(chain: ChainToCheck, catalog: PluginCatalog): ConfigError[] {
  const warnings: ConfigError[] = []
  /**
   * By slot: the first entry that makes another slot's value from it. Whoever rewrites it below changes less than
   * intended.
   */
  const madeFrom = new Map<string, PipelineEntry>()
  for (const entry of chain.entries) {
    const plugin = catalog.get(entry.plugin)
    for (const { name } of plugin?.rewrites ?? []) {
      const by = madeFrom.get(name)
      if (!by) continue
      const why = `${by.id} (${place(by.at, entry.at)}) has read it by then, and what goes upstream may be without the change`
      warnings.push({
        ...entry.at,
        message: `${entry.id} rewrites '${name}' too late: ${why}. Move it above ${by.id}.`,
      })
    }
    for (const slot of plugin?.provides ?? [])
      if (slot.madeFrom !== undefined && !madeFrom.has(slot.madeFrom)) madeFrom.set(slot.madeFrom, entry)
  }
  // A waiver that nothing needs now would hide that its safeguard is taken away later.
  const links = chain.entries.map(entry => ({ entry, plugin: catalog.get(entry.plugin) }))
  const answers = links.findIndex(({ plugin }) => plugin?.terminal)
  for (const { slot, waiver } of answers < 0 ? [] : safeguardsOf(links[answers]!)) {
    const { entry } = links[answers]!
    const above = links.slice(0, answers).find(link => fills(link.plugin?.provides, slot))
    if (!above || entry.config[waiver] !== true) continue
    const at = place(above.entry.at, entry.at)
    warnings.push({
      ...entry.at,
      message: `${entry.id} says ${waiver}: true, but ${above.entry.id} (${at}) fills '${slot.name}', so it does nothing. Remove it.`,
    })
  }
  return warnings
}

function missing(
  entry: PipelineEntry,
  slot: Slot<unknown>,
  below: PipelineEntry | undefined,
  links: readonly ChainLink[],
  catalog: PluginCatalog,
): string {
  const needs = `${entry.id} needs '${slot.name}'`
  if (below === entry)
    return `${needs}, which it fills itself; a plugin that reads a slot needs another one above that fills it`
  if (below)
    return `${needs}, which ${below.id} fills, but it is listed below (${place(below.at, entry.at)}). Move it above.`
  const sometimes = links.find(link => fills(link.plugin?.mayProvide, slot))
  if (sometimes)
    return `${needs}, which ${sometimes.entry.id} fills for some exchanges only; take it out of needs and peek at it`
  const late = links.find(link => fills(link.plugin?.providesLate, slot))
  if (late) return `${needs}, which ${late.entry.id} fills only during the response; on the way down it is never there`
  const writers = [...catalog.keys()].filter(name => fills(catalog.get(name)?.provides, slot))
  if (writers.length === 0) return `${needs}, which no known plugin fills`
  return `${needs}, which nothing above fills. Add ${writers.join(' or ')} above.`
}

function missingLate(
  entry: PipelineEntry,
  slot: Slot<unknown>,
  writer: PipelineEntry | undefined,
  terminal: PipelineEntry | undefined,
  catalog: PluginCatalog,
): string {
  const needs = `${entry.id} needs '${slot.name}' of every reply`
  const below = terminal ? `below ${terminal.id}` : 'below the terminal'
  if (writer) {
    const at = place(writer.at, entry.at)
    return `${needs}, but a refusal by a plugin above ${writer.id} (${at}) would not pass it. Move it ${below}.`
  }
  const writers = [...catalog.keys()].filter(name => fills(catalog.get(name)?.providesLate, slot))
  if (writers.length === 0) return `${needs}, which no known plugin fills`
  return `${needs}, which nothing in this pipeline fills. Add ${writers.join(' or ')} ${below}.`
}

/** Whether a slot is among these. A plugin file that defines a slot again means the same one. */
export const fills = (slots: readonly Slot<any>[] | undefined, slot: Slot<unknown>): boolean =>
  slots?.some(s => s.name === slot.name) ?? false

const terminals = (catalog: PluginCatalog) => [...catalog.keys()].filter(name => catalog.get(name)?.terminal).join(', ')

/**
 * `line 17`; `FILE:17` when the position is in another file than `seenFrom`; with the column when both are on one line.
 */
export function place(at: Position, seenFrom: Position): string {
  if (at.file !== seenFrom.file) return `${at.file}:${at.line}`
  return at.line === seenFrom.line ? `line ${at.line}, column ${at.column}` : `line ${at.line}`
}
