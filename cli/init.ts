/** `sluice init`: a first gateway.yaml for the providers whose keys are in the environment. */
import { createHash, randomBytes } from 'node:crypto'
import { existsSync, writeFileSync } from 'node:fs'
import { createInterface } from 'node:readline/promises'
import { parseArgs } from 'node:util'
import { SETTING, STORE_URL } from '../config/schema.ts'
import { PRESETS, SETTINGS } from '../providers/presets.ts'
import { DEFAULT_CONFIG, ownCommand, shellWord } from './arguments.ts'
import { type ChosenModel, initTemplate, PROVIDERS, type ProviderChoice } from './init-template.ts'
import type { Verb } from './main.ts'
import { listing, loadEdited } from './problems.ts'
import { Failure, type Terminal, UsageError } from './terminal.ts'

const HELP = `Usage: sluice init [FILE] [--provider NAME]… [--model ID]… [--store URL]

Writes a commented FILE (default gateway.yaml) that checks, with one
organization and one key, which is shown once. What no option says is asked
on a terminal; in a pipe the default holds.

  --provider NAME    openai, anthropic, gemini or simulator; more than one is
                     fine. Default: those whose variable is in the environment
                     (OPENAI_API_KEY, ANTHROPIC_API_KEY, GEMINI_API_KEY), else
                     the simulator
  --provider PRESET  one of the presets of "sluice list", such as groq; needs
                     --model and, where it costs you, --price
  --set NAME=VALUE   what a preset needs: region, project, location, resource
  --base-url URL     an OpenAI-compatible server, such as vLLM, Ollama or
                     OpenRouter, with its /v1; needs --model. Its key is read
                     from --key-env, or of an https URL from HOST_API_KEY
  --key-env NAME     environment variable of that server's key
  --context N        context window of the models of --base-url, in tokens;
                     default 32768
  --model ID=NAME    expose the provider's model NAME as ID; more than one is
                     fine. With several providers: ID=PROVIDER/NAME. Default:
                     one for each provider
  --price IN,OUT     USD per million tokens of the models named by --model;
                     default of a --base-url with http: 0,0
  --store URL        default sqlite:./data/gateway.db
  --organization ID  default main
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
        price: text,
        store: text,
        organization: text,
        force: { type: 'boolean' },
      },
      allowPositionals: true,
    })
    if (positionals.length > 1) throw new UsageError('one file at a time')
    const file = positionals[0] ?? DEFAULT_CONFIG
    if (existsSync(file) && !values.force) throw new Failure(`${file} exists; --force overwrites it`)

    const server = compatibleServer(values['base-url'], values['key-env'], values.context)
    if (server && !values.model)
      throw new UsageError('--base-url needs --model ID=NAME: what the server calls its model')

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
      const models = values.model
        ? values.model.map(model => chosen(model, providers, values.price))
        : await chooseModels(providers, ask)
      const store = values.store ?? (await ask('Store', 'sqlite:./data/gateway.db', storeUrl))
      const organization = values.organization ?? (await ask('Your organization', 'main', organizationId))
      const secret = `sk-${randomBytes(32).toString('base64url')}`
      const sha256 = createHash('sha256').update(secret).digest('hex')
      const yaml = initTemplate({ providers, models, store, organization, sha256 })
      const loaded = await loadEdited(file, file, yaml)
      if (loaded.errors) throw new Failure(listing(file, loaded.errors))
      writeFileSync(file, yaml, { flag: values.force ? 'w' : 'wx' })

      const missing = providers.filter(({ variable }) => variable && !process.env[variable])
      for (const { name, variable } of missing)
        terminal.err(`${variable} is not set; ${name} needs it when the gateway starts.`)
      const command = ownCommand()
      terminal.out(
        [
          `${file} is written. Your key, shown only this once:`,
          '',
          `  ${secret}`,
          '',
          'Next:',
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
  const model = { name: '', contextWindow: 32_768, maxOutput: undefined, price }
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
function compatibleServer(
  url: string | undefined,
  keyEnv: string | undefined,
  context: string | undefined,
): ProviderChoice | undefined {
  if (url === undefined) {
    if (keyEnv !== undefined || context !== undefined) throw new UsageError('--key-env and --context are of --base-url')
    return undefined
  }
  const parsed = URL.canParse(url) ? new URL(url) : undefined
  if (parsed?.protocol !== 'http:' && parsed?.protocol !== 'https:')
    throw new UsageError(`${url} is no base URL; write http://HOST:PORT/v1 or https://HOST/v1`)
  if (keyEnv !== undefined && !/^[A-Za-z_][A-Za-z0-9_]*$/.test(keyEnv))
    throw new UsageError(`${keyEnv} is no name of an environment variable`)
  const contextWindow = Number(context ?? 32_768)
  if (!Number.isSafeInteger(contextWindow) || contextWindow < 1)
    throw new UsageError(`${context} is no context window; write a number of tokens`)
  const name = hostName(parsed.hostname)
  const own = parsed.protocol === 'http:'
  const variable = keyEnv ?? (own ? null : `${name.replaceAll('-', '_').toUpperCase()}_API_KEY`)
  const model = { name: '', contextWindow, maxOutput: undefined, price: own ? { input: '0', output: '0' } : undefined }
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

function organizationId(text: string): string {
  if (/^[A-Za-z0-9_.-]{1,64}$/.test(text)) return text
  throw new UsageError(`${text} is no id; write up to 64 letters, digits, dots, - and _`)
}

async function chooseModels(providers: readonly ProviderChoice[], ask: Ask): Promise<ChosenModel[]> {
  const models: ChosenModel[] = []
  const unused = (id: string): string => {
    if (!models.some(model => model.id === id)) return id
    throw new UsageError(`${id} is taken; each model is exposed under an id of its own`)
  }
  for (const from of providers) {
    const { name: usual, price, contextWindow, maxOutput } = from.model
    for (const name of await ask(`Models of ${from.name}`, usual, someOf)) {
      const id = await ask(`${name} is exposed as`, name, unused)
      // The price is known only for the default model.
      const known = price && name === usual ? `${price.input}, ${price.output}` : ''
      const rates = await ask(`${name}: USD per million tokens, input and output`, known, rate)
      const most = name === usual ? maxOutput : undefined
      models.push({ id, provider: from.name, name, price: rates, contextWindow, maxOutput: most })
    }
  }
  return models
}

/** Reads `--model`: `ID=NAME` or `ID=PROVIDER/NAME`. */
function chosen(text: string, providers: readonly ProviderChoice[], price: string | undefined): ChosenModel {
  const at = text.indexOf('=')
  const id = at === -1 ? text : text.slice(0, at)
  const rest = at === -1 ? text : text.slice(at + 1)
  const from = providers.find(({ name }) => rest.startsWith(`${name}/`))
  if (!from && providers.length > 1) throw new UsageError(`--model ${text}: which provider? Write ID=PROVIDER/NAME`)
  const of = from ?? providers[0]!
  const name = from ? rest.slice(from.name.length + 1) : rest
  if (id === '' || name === '') throw new UsageError(`--model ${text} is not ID=NAME`)
  // The list price is known for the default model only. A model of one's own http server costs nothing.
  const known = name === of.model.name || of.model.name === '' ? of.model.price : undefined
  const rates = price === undefined ? known : rate(price)
  if (!rates) throw new UsageError(`--model ${text} needs --price: a model without a price is not served`)
  return {
    id,
    provider: of.name,
    name,
    price: rates,
    contextWindow: of.model.contextWindow,
    maxOutput: name === of.model.name ? of.model.maxOutput : undefined,
  }
}

function rate(text: string): { input: string; output: string } {
  const [input, output, more] = split(text)
  const amount = /^\d{1,6}(\.\d{1,6})?$/
  if (!input || !output || more !== undefined || !amount.test(input) || !amount.test(output))
    throw new UsageError(`${text} is no price; write two amounts in USD, e.g. 1.25,10.00`)
  return { input, output }
}
