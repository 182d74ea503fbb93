/** `sluice models`: adds models with windows and prices of a catalogue, and says where the file differs from it. */
import { readFileSync } from 'node:fs'
import { parseArgs } from 'node:util'
import { isMap, isScalar, parseDocument } from 'yaml'
import type { GatewayConfig } from '../config/types.ts'
import { configFile, tokenCount } from './arguments.ts'
import { CATALOGUE, type FindModel, needCatalogue } from './catalogue.ts'
import type { Verb } from './main.ts'
import { listing, loadEdited, loadWithoutSecrets, replaceFile } from './problems.ts'
import { columns, Failure, UsageError } from './terminal.ts'

const HELP = `Usage: sluice models add PROVIDER/NAME [--id ID] [OPTIONS]
       sluice models check [--config FILE]

Both read the catalogue of models and list prices that the package
${CATALOGUE} ships: npm install ${CATALOGUE}

  add PROVIDER/NAME  adds the model NAME of a provider of the file. Window and
                     price come from the catalogue, where no option says them
      --id ID              the id that clients use (default: NAME)
      --context N          context window, in tokens
      --max-output N       the most that the model writes, in tokens; the
                           catalogue does not know it
      --price IN,OUT       USD per million tokens

  check              says which windows and prices of the file differ from the
                     catalogue, and which models it does not have (any more)

  --config FILE      the configuration (default gateway.yaml)

Exit code: 0 done, or nothing differs; 1 not done, or something differs.
`

export const models: Verb = {
  summary: 'Adds models from a catalogue, and says what moved since.',
  help: HELP,
  async run(args, terminal) {
    const text = { type: 'string' } as const
    const { values, positionals } = parseArgs({
      args,
      options: { config: text, id: text, context: text, 'max-output': text, price: text },
      allowPositionals: true,
    })
    const [action, ...rest] = positionals
    const file = configFile(values.config)
    if (action === 'check') {
      if (rest.length > 0) throw new UsageError('models check takes no argument')
      const { config } = await loadWithoutSecrets(file, terminal)
      const { find, label } = await needCatalogue()
      const rows = differences(config, find)
      if (rows.length > 0) terminal.out(columns(rows))
      terminal.err(`Compared with ${label}: ${rows.length === 0 ? 'nothing' : rows.length} differs.`)
      return rows.length === 0 ? 0 : 1
    }
    if (action !== 'add')
      throw new UsageError(action === undefined ? 'add or check?' : `there is no 'models ${action}'`)
    const [provider, name] = /^([^/]+)\/(.+)$/.exec(rest[0] ?? '')?.slice(1) ?? []
    if (rest.length !== 1 || !provider || !name) throw new UsageError('models add needs PROVIDER/NAME')
    const { config } = await loadWithoutSecrets(file, terminal)
    const of = Object.hasOwn(config.providers, provider) ? config.providers[provider]! : undefined
    if (!of)
      throw new Failure(`${file} has no provider '${provider}'; it has ${Object.keys(config.providers).join(', ')}`)
    const id = values.id ?? name
    if (Object.hasOwn(config.models, id)) throw new Failure(`there is already a model '${id}'; --id names another`)
    const context = tokenCount(values.context, '--context')
    const maxOutput = tokenCount(values['max-output'], '--max-output')
    const [input, output, more] = values.price?.split(',') ?? []
    if (values.price !== undefined && (!output || more !== undefined))
      throw new UsageError('--price is IN,OUT: two amounts in USD per million tokens')
    // The operator's own words win: with all of them the catalogue is not needed.
    const asked = context === undefined || values.price === undefined
    const { find, label } = asked ? await needCatalogue() : { find: () => null, label: '' }
    const known = find(of, name)
    if (asked && !known) throw new Failure(`${label} has no ${provider}/${name}: name --context and --price`)
    const lacks = [
      ...(context === undefined && known?.window === undefined ? ['--context'] : []),
      ...(input === undefined && (known?.input === undefined || known.output === undefined) ? ['--price'] : []),
    ]
    if (lacks.length > 0)
      throw new Failure(`${label} knows ${provider}/${name}, but not all of it: name ${lacks.join(' and ')}`)
    const lines = [
      `${JSON.stringify(id)}:`,
      `  context_window: ${context ?? known!.window}`,
      ...(maxOutput === undefined ? [] : [`  max_output_tokens: ${maxOutput}`]),
      `  price: { input: ${input ?? known!.input}, output: ${output ?? known!.output} }${asked && input === undefined ? ` # ${label}` : ''}`,
      `  backends: [{ provider: ${JSON.stringify(provider)}, model: ${JSON.stringify(name)} }]`,
    ]
    const edited = addModel(readFileSync(file, 'utf8'), lines)
    if (edited === null)
      throw new Failure(`Add to models by hand, which are not in ${file} itself:\n${lines.join('\n')}`)
    const loaded = await loadEdited(file, file, edited)
    if (loaded.errors) throw new Failure(`${listing(file, loaded.errors)}\n${file} was not changed.`)
    replaceFile(file, edited)
    terminal.out(`${file}: ${id} is added\n${lines.map(line => `  ${line}`).join('\n')}`)
    if (maxOutput === undefined) terminal.err('max_output_tokens is not set: the catalogue does not know it.')
    if (known?.tier !== undefined && input === undefined)
      terminal.err(`The provider charges more above ${known.tier} tokens of input; this price is the one below.`)
    terminal.err(
      `Give price_book a new name, such as "${new Date().toISOString().slice(0, 10)}": ledger rows carry it.`,
    )
    return 0
  },
}

/** The text with a model at the end of `models`; null when that section is not written out in this text. */
function addModel(text: string, lines: readonly string[]): string | null {
  const document = parseDocument(text)
  const section = isMap(document.contents) ? document.get('models') : undefined
  if (!isMap(section) || section.flow || section.items.length === 0) return null
  const { key, value } = section.items.at(-1)!
  if (!isScalar(key) || !key.range) return null
  const start = key.range[0]
  const indent = text.slice(text.lastIndexOf('\n', start - 1) + 1, start)
  const end = (value as { range?: [number, number, number] | null } | null)?.range?.[1]
  if (!/^ *$/.test(indent) || end === undefined) return null
  const line = text.indexOf('\n', text[end - 1] === '\n' ? end - 1 : end)
  const at = line === -1 ? text.length : line
  return `${text.slice(0, at)}\n${lines.map(line => indent + line).join('\n')}${line === -1 ? '\n' : text.slice(at)}`
}

/** Where the models of a configuration differ from the catalogue: model, backend, what. */
export function differences(config: Pick<GatewayConfig, 'models' | 'providers'>, find: FindModel): string[][] {
  const rows: string[][] = []
  for (const { id, context_window, price, backends } of Object.values(config.models)) {
    for (const { provider, model } of backends) {
      const of = config.providers[provider]!
      if (of.base_url === 'simulator') continue
      const tell = (what: string) => rows.push([id, `${provider}/${model}`, what])
      const known = find(of, model)
      if (!known) {
        tell('is not in the catalogue')
        continue
      }
      if (known.deprecated) tell('is deprecated')
      if (known.window !== undefined && known.window !== context_window)
        tell(`context_window is ${context_window}, in the catalogue ${known.window}`)
      for (const side of ['input', 'output'] as const) {
        // The file's prices have six decimals: pico-USD per token.
        const list = known[side]
        if (price && list !== undefined && Math.round(list * 1e6) !== price[side])
          tell(`price ${side} is ${price[side] / 1e6}, in the catalogue ${list}`)
      }
    }
  }
  return rows
}
