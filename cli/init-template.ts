// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the notation of gateway.yaml
/** The text that `sluice init` writes. */

export interface ProviderChoice {
  name: string
  /** Environment variable that holds its key; null: it needs no key. */
  variable: string | null
  dialect: string
  baseUrl: string
  /** A preset says the dialect and the base URL; its settings, such as a region, are written beside it. */
  preset?: { name: string; settings: Readonly<Record<string, string>> }
  /**
   * The model that is exposed by default. Prices are the list prices of the provider when this was written: check them.
   */
  model: {
    /** '' when there is no default. */
    name: string
    contextWindow: number
    /** Undefined where it is not known. */
    maxOutput: number | undefined
    price: { input: string; output: string } | undefined
  }
}

export interface ChosenModel {
  id: string
  provider: string
  name: string
  price: { input: string; output: string }
  /** The catalogue that has this price; undefined where the operator or this file says it. */
  source: string | undefined
  contextWindow: number
  /** Nobody said the window: `contextWindow` is a guess. */
  guessed: boolean
  /** Undefined where it is not known. */
  maxOutput: number | undefined
}

export const PROVIDERS: Record<string, ProviderChoice> = {
  openai: {
    name: 'openai',
    variable: 'OPENAI_API_KEY',
    dialect: 'openai-responses',
    baseUrl: 'https://api.openai.com/v1',
    model: { name: 'gpt-5', contextWindow: 272_000, maxOutput: 128_000, price: { input: '1.25', output: '10.00' } },
  },
  anthropic: {
    name: 'anthropic',
    variable: 'ANTHROPIC_API_KEY',
    dialect: 'anthropic-messages',
    baseUrl: 'https://api.anthropic.com/v1',
    model: {
      name: 'claude-sonnet-4-5',
      contextWindow: 200_000,
      maxOutput: 64_000,
      price: { input: '3.00', output: '15.00' },
    },
  },
  gemini: {
    name: 'gemini',
    variable: 'GEMINI_API_KEY',
    dialect: 'gemini',
    baseUrl: 'https://generativelanguage.googleapis.com/v1beta',
    model: {
      name: 'gemini-2.5-flash',
      contextWindow: 1_048_576,
      maxOutput: 65_536,
      price: { input: '0.30', output: '2.50' },
    },
  },
  simulator: {
    name: 'simulator',
    variable: null,
    dialect: 'openai-chat',
    baseUrl: 'simulator',
    model: { name: 'sim-large', contextWindow: 400_000, maxOutput: 128_000, price: { input: '1.25', output: '10.00' } },
  },
}

/** Where the file reads the token of admin pages that are open to the network; `sluice trace` reads it there, too. */
export const ADMIN_VARIABLE = 'SLUICE_ADMIN_TOKEN'

export interface Address {
  /** As gateway.yaml has it, such as 127.0.0.1:8080. */
  text: string
  /** Other machines can reach it. */
  open: boolean
}

export interface InitChoices {
  listen: Address
  admin: Address
  providers: readonly ProviderChoice[]
  models: readonly ChosenModel[]
  store: string
  organization: string
  sha256: string
  /** The day of writing, such as 2026-01-31. */
  today: string
}

export function initTemplate({
  listen,
  admin,
  providers,
  models,
  store,
  organization,
  sha256,
  today,
}: InitChoices): string {
  const quote = (text: string) => JSON.stringify(text)
  const source = models.find(({ source }) => source !== undefined)?.source
  const providerLines = providers.map(({ name, variable, dialect, baseUrl, preset }) => {
    const key = variable === null ? '' : `, api_key: "\${${variable}}"`
    if (preset) {
      const settings = Object.entries(preset.settings).map(([setting, value]) => `, ${setting}: ${quote(value)}`)
      return `  ${name}: { preset: ${preset.name}${settings.join('')}${key} }`
    }
    return `  ${name}: { dialect: ${dialect}, base_url: ${quote(baseUrl)}${key} }`
  })
  const modelLines = models.map(
    ({ id, provider, name, price, source, contextWindow, guessed, maxOutput }) => `  ${quote(id)}:
    context_window: ${contextWindow}${guessed ? ' # a guess: the largest prompt that the model takes, in tokens' : ''}
    ${maxOutput === undefined ? '# max_output_tokens: the most that it writes; a prepaid organization can use no model without it' : `max_output_tokens: ${maxOutput}`}
    price: { input: ${price.input}, output: ${price.output} }${source === undefined ? '' : ` # ${source}`}
    backends: [{ provider: ${provider}, model: ${quote(name)} }]`,
  )
  // The built-in model has a built-in web to search.
  const simulated = providers.every(({ name }) => name === 'simulator')
  const search = simulated ? 'web-search: { provider: simulator }' : 'web-search'
  const searchNote = simulated
    ? 'its pages are made up (docs/web-search.md)'
    : "{ provider: NAME } searches for models that can't (docs/web-search.md)"
  const adminLine = admin.open
    ? `{ listen: ${quote(admin.text)}, token: "\${${ADMIN_VARIABLE}}" } # health, metrics, dashboard; never public`
    : `${quote(admin.text)} # health, metrics, dashboard; never public`
  return `# Made by \`sluice init\`. docs/configuration.md lists every key; \`sluice check\` finds what is wrong. Saving this file reloads it.
# Pages that are named here (docs/…) are in the folder of Sluice: of a package, node_modules/sluice/docs.
version: 2

server:
  listen: ${quote(listen.text)} # the public APIs${listen.open ? ', open to the network' : '; 0.0.0.0:8080 opens them to the network'}
  admin: ${adminLine}

# Limits, spend, ledger. sqlite is for one process; redis://HOST for any number.
store: ${quote(store)}

# Seals ids and what is retained. Set it before the first start and keep it with your backups: another one cannot open
# what this one has sealed. Where it is not set, the gateway makes one and keeps it in the store.
secret: "\${SLUICE_SECRET:-}"

# Requests go down the list to the terminal plugin; responses come back up, then out through what stands below it.
pipelines:
  completions:
    - auth
    - validation
    - idempotency
    - model-access # finds the model; checks what plan and key allow
    - conversation # adds the history; keeps what the next turn needs
    - compaction # shortens long conversations for clients that ask for it (docs/compaction.md)
    - token-estimate
    - ${search} # ${searchNote}
    - media # { fetch: [HOST] } fetches files for models that take no URLs (docs/media.md)
    - routing
    - admission
    - translation
    - upstream # the terminal: calls a backend
    - usage-capture
    - header-stamp
  count_tokens: [auth, validation, model-access, conversation, compaction, token-estimate, count-tokens, header-stamp]
  responses: [auth, retained-responses, header-stamp]
  models: [auth, models, header-stamp]
  usage: [auth, own-usage, header-stamp] # what the caller used
  limits: [auth, own-limits, header-stamp] # and what it may use
  quote: # what a request would cost; web-search and media as above
    [auth, validation, model-access, conversation, compaction, token-estimate, ${simulated ? `{ ${search} }` : search}, media, routing, quote, header-stamp]

routes:
  - { match: POST /v1/responses, surface: responses, pipeline: completions }
  - { match: POST /v1/responses/compact, surface: compact, pipeline: completions }
  - { match: POST /v1/chat/completions, surface: chat, pipeline: completions }
  - { match: POST /v1/messages, surface: messages, pipeline: completions }
  - { match: POST /v1/messages/count_tokens, surface: messages, pipeline: count_tokens }
  - { match: POST /v1/responses/input_tokens, surface: responses, pipeline: count_tokens }
  - { match: GET /v1/responses/*, pipeline: responses }
  - { match: DELETE /v1/responses/*, pipeline: responses }
  - { match: GET /v1/models, pipeline: models }
  - { match: GET /v1/models/*, pipeline: models }
  - { match: GET /v1/usage, pipeline: usage }
  - { match: GET /v1/limits, pipeline: limits }
  - { match: POST /v1/responses/quote, surface: responses, pipeline: quote }
  - { match: POST /v1/chat/completions/quote, surface: chat, pipeline: quote }
  - { match: POST /v1/messages/quote, surface: messages, pipeline: quote }
  - { match: POST /v1/quote, surface: any, pipeline: quote }

# Who serves. Keys come from the environment: this file holds no secret.
providers:
${providerLines.join('\n')}

# What is served, under ids of your choice. Prices are USD per million tokens: compare them with your provider's list.
models:
${modelLines.join('\n')}

# Name of this set of prices; every ledger row carries it. Change it with the prices.
price_book: ${source === undefined ? '"1"' : `"${today}" # the day on which prices were taken from ${source}`}

# Who may call. \`sluice key new ${organization}\` makes another key.
organizations:
  ${quote(organization)}:
    plan: tier1 # \`sluice list\` shows the plans
    keys:
      - { id: key_1, sha256: "${sha256}", status: active }
`
}
