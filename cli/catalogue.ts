/** The catalogue of models and list prices, an optional package: what `sluice init` and `sluice models` fill in. */
import { readFileSync } from 'node:fs'
import { Failure } from './terminal.ts'

export const CATALOGUE = '@pydantic/genai-prices'

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
export type FindModel = (provider: { name: string; base_url: string }, model: string) => Known | null

export interface Catalogue {
  find: FindModel
  /** The package with its version, which is written beside a price. */
  label: string
}

/** The catalogue; null where the package is not installed. */
export async function openCatalogue(): Promise<Catalogue | null> {
  const library = await import('@pydantic/genai-prices').catch(error => {
    if (error.code === 'ERR_MODULE_NOT_FOUND') return null
    throw error
  })
  if (!library) return null
  const { calcPrice, findProvider } = library
  const home = new URL('.', import.meta.resolve('@pydantic/genai-prices')).href.replace(/dist\/$/, '')
  const { version } = JSON.parse(readFileSync(new URL('package.json', home), 'utf8')) as { version: string }
  const amount = (price: number | { base: number } | undefined) => (typeof price === 'object' ? price.base : price)
  const find: FindModel = ({ name, base_url }, model) => {
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
  return { find, label: `${CATALOGUE} ${version}` }
}

/** @throws Failure with the command that installs it, where the package is missing */
export async function needCatalogue(): Promise<Catalogue> {
  const catalogue = await openCatalogue()
  if (!catalogue) throw new Failure(`this needs the catalogue: npm install ${CATALOGUE}`)
  return catalogue
}
