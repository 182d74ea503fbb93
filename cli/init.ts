/** `sluice init`: a first gateway.yaml for the providers whose keys are in the environment. */
import { createHash, randomBytes } from 'node:crypto'
import { existsSync, writeFileSync } from 'node:fs'
import { createInterface } from 'node:readline/promises'
import { parseArgs } from 'node:util'
import { SETTING, STORE_URL } from '../config/schema.ts'
import { isLoopback, parseListen } from '../config/units.ts'
import { PRESETS, SETTINGS } from '../providers/presets.ts'
import { DEFAULT_CONFIG, ownCommand, shellWord, tokenCount } from './arguments.ts'
import { CATALOGUE, type Catalogue, openCatalogue } from './catalogue.ts'
import {
  ADMIN_VARIABLE,
  type Address,
  type ChosenModel,
  initTemplate,
  PROVIDERS,
  type ProviderChoice,
} from './init-template.ts'
import type { Verb } from './main.ts'
import { listing, loadEdited } from './problems.ts'
import { Failure, type Terminal, UsageError } from './terminal.ts'

const HELP = `Usage: sluice init [FILE] [--provider NAME]… [--model ID]… [--store URL]

Writes a commented FILE (default gateway.yaml) that checks, with one
organization and one key, which is shown once, beside a value for the
gateway's own secret, SLUICE_SECRET, unless that is set. Providers, models,
prices, store and organization that no option says are asked on a terminal; in
a pipe the default holds. Windows and prices that nobody says come from the
catalogue of models, where it is installed:
npm install ${CATALOGUE}

  --provider NAME    openai, anthropic, gemini or simulator; more than one is
                     fine. Default: those whose variable is in the environment
                     (OPENAI_API_KEY, ANTHROPIC_API_KEY, GEMINI_API_KEY), else
                     the simulator
  --provider PRESET  one of the presets of "sluice list", such as groq; needs
                     --model
  --set NAME=VALUE   what a preset needs: region, project, location, resource
  --base-url URL     an OpenAI-compatible server, such as vLLM, Ollama or
                     OpenRouter, with its /v1; needs --model. Its key is read
                     from --key-env, or of an https URL from HOST_API_KEY
  --key-env NAME     environment variable of that server's key
  --model ID=NAME    expose the provider's model NAME as ID; more than one is
                     fine. With several providers: ID=PROVIDER/NAME. Default:
                     one for each provider
  --price IN,OUT     USD per million tokens of the models named by --model;
                     default of a server of your own (http): 0,0
  --context N        context window of the models named by --model, in tokens;
                     a guess of 32768 where nobody knows it
  --max-output N     the most that they write, in tokens
  --store URL        default sqlite:./data/gateway.db
  --organization ID  default main
  --listen ADDRESS   where the public APIs listen; default 127.0.0.1:8080
  --admin ADDRESS    where health, metrics and dashboard listen; default
                     127.0.0.1:9090. Beyond loopback they ask for a token,
                     which the file reads from SLUICE_ADMIN_TOKEN
  --force            overwrite FILE

Exit code: 0 written, 1 not, 2 called wrongly.
`

export const init: Verb = {
  summary: 'Writes a gateway.yaml for the providers you have.',
  help: HELP,
  async run(args, terminal) {
    const text = { type: 'string' } as const
    const { values, positionals } = parseArgs({
      args,
      options: {
        provider: { ...text, multiple: true },
        model: { ...text, multiple: true },
        set: { ...text, multiple: true },
        'base-url': text,
        'key-env': text,
        context: text,
        'max-output': text,
        price: text,
        store: text,
        organization: text,
        listen: text,
        admin: text,
        force: { type: 'boolean' },
      },
      allowPositionals: true,
    })
    if (positionals.length > 1) throw new UsageError('one file at a time')
    const file = positionals[0] ?? DEFAULT_CONFIG
    if (existsSync(file) && !values.force) throw new Failure(`${file} exists; --force overwrites it`)

    const listen = address(values.listen ?? '127.0.0.1:8080', '--listen')
    const admin = address(values.admin ?? '127.0.0.1:9090', '--admin')
    const server = compatibleServer(values['base-url'], values['key-env'])
    if (server && !values.model)
      throw new UsageError('--base-url needs --model ID=NAME: what the server calls its model')
    const own: Own = {
      price: values.price === undefined ? undefined : rate(values.price),
      contextWindow: tokenCount(values.context, '--context'),
      maxOutput: tokenCount(values['max-output'], '--max-output'),
    }
    if (!values.model && Object.values(own).some(value => value !== undefined))
      throw new UsageError('--price, --context and --max-output are of the models named by --model')

    const ask = questions(terminal)
    try {
      const given = settingsOf(values.set ?? [])
      const listed = values.provider && providersOf(values.provider.join())
      const providers =
        (server ? [...(listed ?? []), server] : listed) ??
        (await ask(`Providers, of ${Object.keys(PROVIDERS).join(', ')}`, found().join(', '), providersOf))
      for (const { name, preset } of providers) {
        const { settings: needed = [] } = preset ? PRESETS[preset.name]! : {}
        for (const setting of needed) {
          const fallback = given[setting] ?? ''
          const asked = `${setting} of ${name}`
          const value = fallback || (await ask(asked, '', text => settingOf(setting, text)))
          Object.assign(preset!.settings, { [setting]: settingOf(setting, value) })
        }
      }
      const unnamed = providers.find(({ model }) => model.name === '')
      if (unnamed && !values.model && !process.stdin.isTTY)
        throw new UsageError(`${unnamed.name} needs --model ID=NAME: its name of a model`)
      const wanted = providers.some(isHosted) && (own.price === undefined || own.contextWindow === undefined)
      const catalogue = wanted ? await openCatalogue() : null
      if (wanted && !catalogue)
        terminal.err(
          `The catalogue of models is not installed; it has windows and prices that you do not give: npm install ${CATALOGUE}`,
        )
      const models = values.model
        ? values.model.map(model => chosen(model, providers, own, catalogue))
        : await chooseModels(providers, ask, catalogue)
      const store = values.store ?? (await ask('Store', 'sqlite:./data/gateway.db', storeUrl))
      const organization = values.organization ?? (await ask('Your organization', 'main', organizationId))
      const secret = `sk-${randomBytes(32).toString('base64url')}`
      const sha256 = createHash('sha256').update(secret).digest('hex')
      const today = new Date().toISOString().slice(0, 10)
      const yaml = initTemplate({ listen, admin, providers, models, store, organization, sha256, today })
      const loaded = await loadEdited(file, file, yaml)
      if (loaded.errors) throw new Failure(listing(file, loaded.errors))
      writeFileSync(file, yaml, { flag: values.force ? 'w' : 'wx' })

      for (const { remarks } of models) for (const remark of remarks) terminal.err(remark)
      const missing = providers.filter(({ variable }) => variable && !process.env[variable])
      for (const { name, variable } of missing)
        terminal.err(`${variable} is not set; ${name} needs it when the gateway starts.`)
      const command = ownCommand()
      // Another value would leave what the present one has sealed, on the same store, closed for good.
      const secrets = ['SLUICE_SECRET', ...(admin.open ? [ADMIN_VARIABLE] : [])]
      const kept = secrets.filter(name => process.env[name])
      const exports = secrets.filter(name => !kept.includes(name))
      terminal.out(
        [
          `${file} is written. Your key, shown only this once:`,
          '',
          `  ${secret}`,
          '',
          ...(kept.length > 0 ? [`${kept.join(' and ')} ${KEPT[kept.length]}`, ''] : []),
          'Next:',
          ...exports.map(name => `  export ${name}=${randomBytes(32).toString('hex')}`),
          `  ${command} start --config ${shellWord(file)}`,
          `  SLUICE_API_KEY=${secret} ${command} try --config ${shellWord(file)}`,
        ].join('\n'),
      )
      return 0
    } finally {
      ask.close()
    }
  },
}

/** Behind the names of so many variables. */
const KEPT = ['', 'is set already: keep it.', 'are set already: keep them.']

/** Asks until `read` accepts the answer. `read` throws a UsageError that says what is wrong with it. */
type Ask = (<T>(question: string, fallback: string, read: (text: string) => T) => Promise<T>) & { close(): void }

/** Asks on a terminal; elsewhere every answer is the default. */
function questions(terminal: Terminal): Ask {
  if (!process.stdin.isTTY || !process.stdout.isTTY)
    return Object.assign(async <T>(_: string, fallback: string, read: (text: string) => T) => read(fallback), {
      close() {},
    })
  const lines = createInterface({ input: process.stdin, output: process.stdout })
  const ask = async <T>(question: string, fallback: string, read: (text: string) => T): Promise<T> => {
    for (;;) {
      const shown = fallback === '' ? question : `${question} [${fallback}]`
      // Ctrl-C and Ctrl-D reject.
      const answer = await lines.question(`${shown}: `).catch(() => {
        throw new Failure('\nnothing is written')
      })
      try {
        return read(answer.trim() || fallback)
      } catch (error) {
        if (!(error instanceof UsageError)) throw error
        terminal.err(error.message)
      }
    }
  }
  return Object.assign(ask, { close: () => lines.close() })
}

/** Names of the providers whose variable is set; the simulator when there is none. */
function found(): string[] {
  const set = Object.values(PROVIDERS).filter(({ variable }) => variable && process.env[variable])
  return set.length > 0 ? set.map(({ name }) => name) : ['simulator']
}

const split = (text: string) => text.split(/[\s,]+/).filter(word => word !== '')

function someOf(text: string): string[] {
  const names = new Set(split(text))
  if (names.size === 0) throw new UsageError('at least one')
  return [...names]
}

/** The context window of a model of which nothing is known, in tokens. */
const GUESSED_WINDOW = 32_768

function provider(name: string): ProviderChoice {
  const known = Object.hasOwn(PROVIDERS, name) ? PROVIDERS[name] : undefined
  if (known) return known
  const preset = Object.hasOwn(PRESETS, name) ? PRESETS[name] : undefined
  if (!preset) {
    const all = [...Object.keys(PROVIDERS), ...Object.keys(PRESETS).filter(preset => !(preset in PROVIDERS))]
    throw new UsageError(`there is no provider ${name}; there are ${all.join(', ')}`)
  }
  const [dialect, members] = Object.entries(preset.of)[0]!
  const baseUrl = String(members['base_url'])
  const price = baseUrl.startsWith('http:') ? { input: '0', output: '0' } : undefined
  const model = { name: '', contextWindow: GUESSED_WINDOW, maxOutput: undefined, price }
  return { name, variable: preset.variable, dialect, baseUrl, preset: { name, settings: {} }, model }
}

/** Reads `--set NAME=VALUE`. */
function settingsOf(texts: readonly string[]): Record<string, string> {
  return Object.fromEntries(
    texts.map(text => {
      const [, name, value] = /^(\w+)=(.+)$/s.exec(text) ?? []
      if (!SETTINGS.some(setting => setting === name))
        throw new UsageError(`--set ${text} is not NAME=VALUE with a name of ${SETTINGS.join(', ')}`)
      return [name!, settingOf(name!, value!)]
    }),
  )
}

function settingOf(name: string, text: string): string {
  if (new RegExp(SETTING).test(text)) return text
  throw new UsageError(text === '' ? `${name} is needed: --set ${name}=VALUE` : `'${text}' is no ${name}`)
}

/** The server at `--base-url`, as a provider that is named after its host. */
function compatibleServer(url: string | undefined, keyEnv: string | undefined): ProviderChoice | undefined {
  if (url === undefined) {
    if (keyEnv !== undefined) throw new UsageError('--key-env is of --base-url')
    return undefined
  }
  const parsed = URL.canParse(url) ? new URL(url) : undefined
  if (parsed?.protocol !== 'http:' && parsed?.protocol !== 'https:')
    throw new UsageError(`${url} is no base URL; write http://HOST:PORT/v1 or https://HOST/v1`)
  if (keyEnv !== undefined && !/^[A-Za-z_][A-Za-z0-9_]*$/.test(keyEnv))
    throw new UsageError(`${keyEnv} is no name of an environment variable`)
  const name = hostName(parsed.hostname)
  const own = parsed.protocol === 'http:'
  const variable = keyEnv ?? (own ? null : `${name.replaceAll('-', '_').toUpperCase()}_API_KEY`)
  const price = own ? { input: '0', output: '0' } : undefined
  const model = { name: '', contextWindow: GUESSED_WINDOW, maxOutput: undefined, price }
  return { name, variable, dialect: 'openai-chat', baseUrl: url, model }
}

/**
 * Name of a provider after its host: `openrouter` for openrouter.ai and for api.openrouter.ai, `local` for an address.
 */
function hostName(host: string): string {
  const labels = host.split('.')
  if (host === 'localhost' || host.includes(':') || /^\d+$/.test(labels.at(-1)!)) return 'local'
  const name = labels.at(-2) ?? labels[0]!
  return Object.hasOwn(PROVIDERS, name) ? `${name}-compatible` : name
}

const providersOf = (text: string): ProviderChoice[] => someOf(text).map(provider)

function storeUrl(text: string): string {
  if (new RegExp(STORE_URL).test(text)) return text
  throw new UsageError(`${text} is no store; write sqlite:FILE or redis://HOST:PORT`)
}

/**
 * Reads the address of an option.
 * @throws UsageError when it is none
 */
function address(text: string, option: string): Address {
  const parsed = parseListen(text)
  if (!parsed) throw new UsageError(`${option} ${text} is no address; write one such as 127.0.0.1:8080 or 0.0.0.0:8080`)
  return { text, open: !isLoopback(parsed.host) }
}

function organizationId(text: string): string {
  if (/^[A-Za-z0-9_.-]{1,64}$/.test(text)) return text
  throw new UsageError(`${text} is no id; write up to 64 letters, digits, dots, - and _`)
}

/** What the operator says of the models named by --model. */
interface Own {
  price?: Price | undefined
  contextWindow?: number | undefined
  maxOutput?: number | undefined
}

type Price = ChosenModel['price']

/** A model, with what the operator should know of its figures. */
interface Choice extends ChosenModel {
  remarks: readonly string[]
}

/** A hosted service may be in the catalogue. A server of one's own, with http, and the simulator are not. */
const isHosted = ({ baseUrl }: ProviderChoice) => baseUrl.startsWith('https:')

/** What is known of a model when the operator says nothing; without `price` where that is not known. */
function figuresOf(of: ProviderChoice, name: string, catalogue: Catalogue | null) {
  const { model, preset } = of
  const isUsual = name === model.name
  const base_url = of.baseUrl.replace(/\{(\w+)\}/g, (_, setting) => preset?.settings[setting] ?? '')
  const entry = isHosted(of) ? catalogue?.find({ name: of.name, base_url }, name) : undefined
  const amount = (usd: number) => String(Number(usd.toFixed(6)))
  const listed =
    entry?.input === undefined || entry.output === undefined
      ? undefined
      : { input: amount(entry.input), output: amount(entry.output) }
  // The window of the usual model is its largest prompt. The catalogue's windows may include what the model writes.
  const window = isUsual ? model.contextWindow : entry?.window
  return {
    contextWindow: window ?? model.contextWindow,
    guessed: window === undefined,
    maxOutput: isUsual ? model.maxOutput : undefined,
    price: listed ?? (isUsual || model.name === '' ? model.price : undefined),
    source: listed && catalogue!.label,
    tier: entry?.tier,
    deprecated: entry?.deprecated === true,
  }
}

/** The model as it is written: the operator's own words win over what is known. */
function choice(
  id: string,
  of: ProviderChoice,
  name: string,
  figures: ReturnType<typeof figuresOf>,
  price: Price,
  own: Own = {},
): Choice {
  const contextWindow = own.contextWindow ?? figures.contextWindow
  const isListed =
    own.price === undefined && price.input === figures.price?.input && price.output === figures.price.output
  const { tier, deprecated } = figures
  const maxOutput = own.maxOutput ?? figures.maxOutput
  const remarks = [
    ...(maxOutput === undefined && of.baseUrl !== 'simulator'
      ? [`${name}: it is not known how much it writes at most. Set max_output_tokens of ${id}; \`check\` asks for it.`]
      : []),
    ...(deprecated ? [`${name} is deprecated, as the catalogue has it.`] : []),
    ...(isListed && tier !== undefined && tier < contextWindow
      ? [`${name}: the provider charges more above ${tier} tokens of input; this price is the one below.`]
      : []),
  ]
  return {
    id,
    provider: of.name,
    name,
    price,
    source: isListed ? figures.source : undefined,
    contextWindow,
    guessed: own.contextWindow === undefined && figures.guessed,
    maxOutput,
    remarks,
  }
}

async function chooseModels(
  providers: readonly ProviderChoice[],
  ask: Ask,
  catalogue: Catalogue | null,
): Promise<Choice[]> {
  const models: Choice[] = []
  const unused = (id: string): string => {
    if (!models.some(model => model.id === id)) return id
    throw new UsageError(`${id} is taken; each model is exposed under an id of its own`)
  }
  for (const from of providers) {
    for (const name of await ask(`Models of ${from.name}`, from.model.name, someOf)) {
      const id = await ask(`${name} is exposed as`, name, unused)
      const figures = figuresOf(from, name, catalogue)
      const known = figures.price ? `${figures.price.input}, ${figures.price.output}` : ''
      const price = await ask(`${name}: USD per million tokens, input and output`, known, rate)
      models.push(choice(id, from, name, figures, price))
    }
  }
  return models
}

/** Reads `--model`: `ID=NAME` or `ID=PROVIDER/NAME`. */
function chosen(text: string, providers: readonly ProviderChoice[], own: Own, catalogue: Catalogue | null): Choice {
  const at = text.indexOf('=')
  const id = at === -1 ? text : text.slice(0, at)
  const rest = at === -1 ? text : text.slice(at + 1)
  const from = providers.find(({ name }) => rest.startsWith(`${name}/`))
  if (!from && providers.length > 1) throw new UsageError(`--model ${text}: which provider? Write ID=PROVIDER/NAME`)
  const of = from ?? providers[0]!
  const name = from ? rest.slice(from.name.length + 1) : rest
  if (id === '' || name === '') throw new UsageError(`--model ${text} is not ID=NAME`)
  const figures = figuresOf(of, name, catalogue)
  const price = own.price ?? figures.price
  if (!price) {
    const lacking = catalogue ? `, and ${catalogue.label} does not have it` : ''
    throw new UsageError(`--model ${text} needs --price: a model without a price is not served${lacking}`)
  }
  return choice(id, of, name, figures, price, own)
}

function rate(text: string): Price {
  const [input, output, more] = split(text)
  const amount = /^\d{1,6}(\.\d{1,6})?$/
  if (!input || !output || more !== undefined || !amount.test(input) || !amount.test(output))
    throw new UsageError(`${text} is no price; write two amounts in USD, e.g. 1.25,10.00`)
  return { input, output }
}
