/** `sluice models`: adds models with windows and prices of a catalogue, and says where the file differs from it. */
import { readFileSync } from 'node:fs'
import { parseArgs } from 'node:util'
import { isMap, isScalar, parseDocument } from 'yaml'
import type { GatewayConfig } from '../config/types.ts'
import { configFile } from './arguments.ts'
import type { Verb } from './main.ts'
import { listing, loadEdited, loadWithoutSecrets, replaceFile } from './problems.ts'
import { columns, Failure, UsageError } from './terminal.ts'

const CATALOGUE = '@pydantic/genai-prices'
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

/** What the catalogue knows of a model; USD per million tokens. */
export interface Known {
  window: number | undefined
  input: number | undefined
  output: number | undefined
  /** Above this many tokens of input another price holds, which a model of gateway.yaml cannot have. */
  tier: number | undefined
  deprecated: boolean
}

/** Finds a model of a provider: by the provider's base URL, else by its name. Null when it is not known. */
export type Catalogue = (provider: { name: string; base_url: string }, model: string) => Known | null

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
      const { find, version } = await catalogue()
      const rows = differences(config, find)
      if (rows.length > 0) terminal.out(columns(rows))
      terminal.err(`Compared with ${CATALOGUE} ${version}: ${rows.length === 0 ? 'nothing' : rows.length} differs.`)
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
    const context = whole(values.context, '--context')
    const maxOutput = whole(values['max-output'], '--max-output')
    const [input, output, more] = values.price?.split(',') ?? []
    if (values.price !== undefined && (!output || more !== undefined))
      throw new UsageError('--price is IN,OUT: two amounts in USD per million tokens')
    // The operator's own words win: with all of them the catalogue is not needed.
    const asked = context === undefined || values.price === undefined
    const { find, version } = asked ? await catalogue() : { find: () => null, version: '' }
    const known = find(of, name)
    if (asked && !known)
      throw new Failure(`${CATALOGUE} ${version} has no ${provider}/${name}: name --context and --price`)
    const lacks = [
      ...(context === undefined && known?.window === undefined ? ['--context'] : []),
      ...(input === undefined && (known?.input === undefined || known.output === undefined) ? ['--price'] : []),
    ]
    if (lacks.length > 0)
      throw new Failure(
        `${CATALOGUE} ${version} knows ${provider}/${name}, but not all of it: name ${lacks.join(' and ')}`,
      )
    const lines = [
      `${JSON.stringify(id)}:`,
      `  context_window: ${context ?? known!.window}`,
      ...(maxOutput === undefined ? [] : [`  max_output_tokens: ${maxOutput}`]),
      `  price: { input: ${input ?? known!.input}, output: ${output ?? known!.output} }${asked && input === undefined ? ` # ${CATALOGUE} ${version}` : ''}`,
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

function whole(text: string | undefined, option: string): number | undefined {
  if (text === undefined) return undefined
  if (!/^[1-9]\d{0,9}$/.test(text)) throw new UsageError(`${option} is a number of tokens, not ${text}`)
  return Number(text)
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
export function differences(config: Pick<GatewayConfig, 'models' | 'providers'>, find: Catalogue): string[][] {
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

async function catalogue(): Promise<{ find: Catalogue; version: string }> {
  const { calcPrice, findProvider } = await import('@pydantic/genai-prices').catch(cause => {
    throw new Failure(`this needs the catalogue: npm install ${CATALOGUE}`, { cause })
  })
  const home = new URL('.', import.meta.resolve('@pydantic/genai-prices')).href.replace(/dist\/$/, '')
  const { version } = JSON.parse(readFileSync(new URL('package.json', home), 'utf8')) as { version: string }
  const amount = (price: number | { base: number } | undefined) => (typeof price === 'object' ? price.base : price)
  const find: Catalogue = ({ name, base_url }, model) => {
    const provider = findProvider({ providerApiUrl: base_url }) ?? findProvider({ providerId: name })
    const found = provider && calcPrice({ input_tokens: 1 }, model, { provider })
    if (!found) return null
    const { input_mtok, output_mtok } = found.model_price
    return {
      window: found.model.context_window,
      input: amount(input_mtok),
      output: amount(output_mtok),
      tier: typeof input_mtok === 'object' ? input_mtok.tiers[0]?.start : undefined,
      deprecated: found.model.deprecated === true,
    }
  }
  return { find, version }
}
