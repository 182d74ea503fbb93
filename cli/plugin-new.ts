import { spawn } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join, relative, resolve, sep } from 'node:path'
import { parseArgs } from 'node:util'
import { isMap, isScalar, isSeq, parseDocument } from 'yaml'
import type { PipelineEntry } from '../core/engine/chain.ts'
import { estimate, type Plugin } from '../core/plugin.ts'
import { configFile, ownCommand, shellWord } from './arguments.ts'
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

    const file = configFile(values.config)
    const { config, plugins } = await loadWithoutSecrets(file, terminal)
    if (plugins.has(name)) throw new Failure(`there is already a plugin '${name}'`)
    const pipeline = values.pipeline ?? Object.keys(config.pipelines)[0]!
    const entries = config.pipelines[pipeline]?.filter(entry => !entry.implied)
    if (!entries)
      throw new Failure(`${file} has no pipeline '${pipeline}'; it has ${Object.keys(config.pipelines).join(', ')}`)

    const folder = values.dir === undefined ? join(dirname(resolve(file)), 'my-plugins') : resolve(values.dir)
    const source = join(folder, `${name}.ts`)
    const test = join(folder, `${name}.test.ts`)
    for (const path of [source, test])
      if (existsSync(path)) throw new Failure(`${path} is already there; nothing was changed`)

    const written = relative(dirname(resolve(file)), source)
      .split(sep)
      .join('/')
    if (layer && !entries.some(entry => plugins.get(entry.plugin)?.calls))
      throw new Failure(
        `pipeline ${pipeline} calls no model, so a layer would do nothing there; name another --pipeline`,
      )
    const place = layer ? aboveTerminal(entries, plugins) : placeFor(entries, plugins)
    const text = addPlugin(
      readFileSync(file, 'utf8'),
      written.startsWith('.') ? written : `./${written}`,
      pipeline,
      place.index,
      name,
    )
    mkdirSync(folder, { recursive: true })
    writeFileSync(source, layer ? layer.plugin(name) : pluginTemplate(name), { flag: 'wx' })
    writeFileSync(test, layer ? layer.test(name) : testTemplate(name), { flag: 'wx' })
    terminal.out([source, test, ...writeProject(folder)].join('\n'))
    if (text === null) {
      terminal.err(`Add to ${file} by hand: ${written} under plugins:, and '- ${name}' in pipeline ${pipeline}.`)
      return 0
    }
    const loaded = await loadEdited(file, file, text)
    if (loaded.errors)
      throw new Failure(`${listing(file, loaded.errors)}\n${file} was not changed; the plugin's files were written.`)
    replaceFile(file, text)
    terminal.out(`${file}: in pipeline ${pipeline}, above ${entries[place.index]!.id}`)
    if (place.changes)
      terminal.err('There it may change what is asked, and the change is counted: docs/plugins.md tells how.')
    terminal.err(`Run its test: ${ownCommand()} plugin test ${shellWord(relative(process.cwd(), test))}`)
    return 0
  },
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

interface Place {
  index: number
  /** What the plugin changes of the conversation there takes effect. */
  changes: boolean
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
  const inChain = (): string | null => {
    const list = parseDocument(text).getIn(['pipelines', pipeline], true)
    return isSeq(list) && above < list.items.length ? insertItem(text, list, above, name) : null
  }
  const chained = inChain()
  if (chained === null) return null
  text = chained
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
