import { spawn } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join, relative, resolve, sep } from 'node:path'
import { parseArgs } from 'node:util'
import { isMap, isScalar, isSeq, parseDocument } from 'yaml'
import type { PipelineEntry } from '../core/engine/chain.ts'
import { estimate, type Plugin } from '../core/plugin.ts'
import { configFile, ownCommand, shellWord } from './arguments.ts'
import { dialectTemplate, dialectTest } from './dialect-template.ts'
import { addItem, insertItem, setEmpty } from './edit-yaml.ts'
import { LAYERS } from './layer-template.ts'
import type { Verb } from './main.ts'
import { packageTemplate, pluginTemplate, testTemplate, tsconfigTemplate } from './plugin-template.ts'
import { listing, loadEdited, loadWithoutSecrets, replaceFile } from './problems.ts'
import { Failure, UsageError } from './terminal.ts'

const HELP = `Usage: sluice plugin new NAME [OPTIONS]
       sluice plugin test FILE...

  plugin new NAME
      Writes DIR/NAME.ts with a request hook and a stream hook, its test, and
      the lines in the configuration that put it into a pipeline: above
      token-estimate, where it may still change what is asked, or just above
      the terminal plugin. Where they are missing, a tsconfig.json and a
      package.json let an editor resolve \`sluice\`.

      --layer PLACE     a layer of the call of a model in place of the hooks:
                        call, attempt or wire (docs/plugins.md)
      --dialect         a dialect for providers in place of a plugin; it
                        stands in no pipeline (docs/dialects.md)
      --dir DIR         where the files go (default my-plugins, beside the
                        configuration)
      --pipeline NAME   the pipeline it goes into (default: the first one)
      --config FILE     the configuration (default gateway.yaml)

  plugin test FILE...
      Runs tests of plugins, wherever they are: \`sluice\` and
      \`sluice/testing\` can be imported.
`

export const plugin: Verb = {
  summary: 'Starts a plugin of your own.',
  help: HELP,
  async run(args, terminal) {
    const { values, positionals } = parseArgs({
      args,
      options: {
        config: { type: 'string' },
        dialect: { type: 'boolean' },
        dir: { type: 'string' },
        layer: { type: 'string' },
        pipeline: { type: 'string' },
      },
      allowPositionals: true,
    })
    const [action, ...rest] = positionals
    if (action === 'test') {
      if (rest.length === 0) throw new UsageError('plugin test needs a file')
      return runTests(rest)
    }
    if (action !== 'new') throw new UsageError(action === undefined ? 'new or test?' : `there is no 'plugin ${action}'`)
    const [name, ...more] = rest
    if (name === undefined || more.length > 0) throw new UsageError('plugin new needs one name')
    if (!/^[a-z][a-z0-9]*(-[a-z0-9]+)*$/.test(name))
      throw new UsageError(`'${name}' is no plugin name; use lower-case words with hyphens: tenant-tag`)

    const layer = values.layer === undefined ? undefined : LAYERS[values.layer]
    if (values.layer !== undefined && !layer)
      throw new UsageError(`there is no layer '${values.layer}'; it is one of ${Object.keys(LAYERS).join(', ')}`)

    if (values.dialect && (layer || values.pipeline !== undefined))
      throw new UsageError('a dialect stands in no pipeline; leave --layer and --pipeline out')

    const file = configFile(values.config)
    const loaded = await loadWithoutSecrets(file, terminal)
    for (const what of ['plugin', 'dialect'] as const)
      if (loaded[`${what}s`].has(name)) throw new Failure(`there is already a ${what} '${name}'`)
    const chain = values.dialect ? null : chainFor(file, loaded, values.pipeline, layer !== undefined)

    const folder = values.dir === undefined ? join(dirname(resolve(file)), 'my-plugins') : resolve(values.dir)
    const source = join(folder, `${name}.ts`)
    const test = join(folder, `${name}.test.ts`)
    for (const path of [source, test])
      if (existsSync(path)) throw new Failure(`${path} is already there; nothing was changed`)

    const written = relative(dirname(resolve(file)), source)
      .split(sep)
      .join('/')
    const path = written.startsWith('.') ? written : `./${written}`
    const before = readFileSync(file, 'utf8')
    const text = chain ? addPlugin(before, path, chain.pipeline, chain.index, name) : addFile(before, path)
    const templates = values.dialect
      ? { plugin: dialectTemplate, test: dialectTest }
      : (layer ?? { plugin: pluginTemplate, test: testTemplate })
    mkdirSync(folder, { recursive: true })
    writeFileSync(source, templates.plugin(name), { flag: 'wx' })
    writeFileSync(test, templates.test(name), { flag: 'wx' })
    terminal.out([source, test, ...writeProject(folder)].join('\n'))
    if (text === null) {
      const inChain = chain ? `, and '- ${name}' in pipeline ${chain.pipeline}` : ''
      terminal.err(`Add to ${file} by hand: ${written} under plugins:${inChain}.`)
      return 0
    }
    const { errors } = await loadEdited(file, file, text)
    if (errors) throw new Failure(`${listing(file, errors)}\n${file} was not changed; the plugin's files were written.`)
    replaceFile(file, text)
    terminal.out(chain ? `${file}: in pipeline ${chain.pipeline}, above ${chain.above}` : `${file}: under plugins`)
    if (!chain) terminal.err(`A provider speaks it with dialect: ${name}.`)
    if (chain?.changes)
      terminal.err('There it may change what is asked, and the change is counted: docs/plugins.md tells how.')
    terminal.err(`Run its test: ${ownCommand()} plugin test ${shellWord(relative(process.cwd(), test))}`)
    return 0
  },
}

/** Where in a pipeline the new entry goes. */
interface Place {
  index: number
  /** What the plugin changes of the conversation there takes effect. */
  changes: boolean
}

/** @throws Failure where the pipeline is not there, or a layer would do nothing in it */
function chainFor(
  file: string,
  { config, plugins }: Awaited<ReturnType<typeof loadWithoutSecrets>>,
  pipeline = Object.keys(config.pipelines)[0]!,
  layer: boolean,
): Place & { pipeline: string; above: string } {
  const entries = config.pipelines[pipeline]?.filter(entry => !entry.implied)
  if (!entries)
    throw new Failure(`${file} has no pipeline '${pipeline}'; it has ${Object.keys(config.pipelines).join(', ')}`)
  if (layer && !entries.some(entry => plugins.get(entry.plugin)?.calls))
    throw new Failure(`pipeline ${pipeline} calls no model, so a layer would do nothing there; name another --pipeline`)
  const place = layer ? aboveTerminal(entries, plugins) : placeFor(entries, plugins)
  return { ...place, pipeline, above: entries[place.index]!.id }
}

/**
 * Where the new entry goes: above the plugin that counts the conversation, so that a change to the conversation still
 * takes effect (`changes` is true); in a pipeline without such a plugin, above the terminal.
 */
function placeFor(entries: readonly PipelineEntry[], plugins: ReadonlyMap<string, Plugin>): Place {
  const counts = entries.findIndex(entry =>
    plugins.get(entry.plugin)?.provides?.some(slot => slot.name === estimate.name),
  )
  if (counts !== -1) return { index: counts, changes: true }
  return aboveTerminal(entries, plugins)
}

function aboveTerminal(entries: readonly PipelineEntry[], plugins: ReadonlyMap<string, Plugin>): Place {
  return { index: entries.findIndex(entry => plugins.get(entry.plugin)?.terminal), changes: false }
}

/**
 * Writes the files that an editor needs to resolve `sluice` and to check types, where they do not exist yet.
 * @returns the files written
 */
function writeProject(folder: string): string[] {
  const root = relative(folder, join(import.meta.dirname, '..'))
    .split(sep)
    .join('/')
  const files = {
    'tsconfig.json': tsconfigTemplate(root, import.meta.filename.endsWith('.ts') ? 'ts' : 'd.ts'),
    'package.json': packageTemplate(),
  }
  return Object.entries(files).flatMap(([name, text]) => {
    const path = join(folder, name)
    if (existsSync(path)) return []
    writeFileSync(path, text, { flag: 'wx' })
    return [path]
  })
}

/**
 * The configuration with the plugin's file under `plugins:` and its name in the pipeline.
 * @param above index of the entry that the new entry goes above
 * @returns null when one of the two sections is not in this text (but in an included file)
 */
export function addPlugin(text: string, path: string, pipeline: string, above: number, name: string): string | null {
  const list = parseDocument(text).getIn(['pipelines', pipeline], true)
  return isSeq(list) && above < list.items.length ? addFile(insertItem(text, list, above, name), path) : null
}

/** The configuration with a file under `plugins:`; null when that section is not in this text. */
function addFile(text: string, path: string): string | null {
  const document = parseDocument(text)
  if (!isMap(document.contents)) return null
  const pair = document.contents.items.find(item => isScalar(item.key) && item.key.value === 'plugins')
  if (!pair) return `${text.replace(/\n*$/, '\n')}\nplugins: [${path}]\n`
  const list = pair.value
  if (isSeq(list) && list.items.length > 0) return addItem(text, list, path)
  if ((isSeq(list) || isScalar(list)) && list.range) return setEmpty(text, list, `[${path}]`)
  return null
}

/**
 * Runs test files with Node's test runner.
 * @returns its exit code
 */
function runTests(files: readonly string[]): Promise<number> {
  const hooks = join(import.meta.dirname, '../config/plugin-hooks.ts')
  const flags = ['--disable-warning=ExperimentalWarning', '--disable-warning=MODULE_TYPELESS_PACKAGE_JSON']
  const child = spawn(process.execPath, [...flags, '--import', hooks, '--test', ...files.map(file => resolve(file))], {
    stdio: 'inherit',
    // Without this, a test runner inside a test runner reports in a format of its own.
    env: { ...process.env, NODE_TEST_CONTEXT: undefined },
  })
  const { promise, resolve: done } = Promise.withResolvers<number>()
  child.on('exit', code => done(code ?? 1))
  return promise
}
