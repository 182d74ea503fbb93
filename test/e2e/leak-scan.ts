/**
 * Watches every byte that reaches a client for what must not leave the gateway (GEN-7): upstream ids and models, base URLs, private
 * continuation data, and the texts of upstream and internal errors. The harness puts it under every client it hands out.
 */
import type { GatewayConfig } from '../../core/config/types.ts'

/** Whatever the configuration says. */
const ALWAYS = [
  // Ids that the simulator gives, in all four dialects.
  /(?:^|[^A-Za-z0-9])sim[0-9a-f]{12}/,
  /(?:_|-)sim[0-9a-f]{8}/,
  /\b(?:srvtoolu|toolu|rs|fc|ctc|ws)_[A-Za-z0-9]{8}/,
  // Private continuation data (TOOL-6).
  /gAAAAA|thought_?signature|redacted-[0-9a-f]{8}/i,
  // Hosts of providers.
  /api\.openai\.com|api\.anthropic\.com|googleapis\.com/,
  // Texts of upstream and internal errors.
  /simulated provider|simulator (?:failed|has no)|Overloaded|invalid x-api-key|Incorrect API key|credit balance/,
  /ECONNREFUSED|ECONNRESET|UND_ERR|socket hang up|other side closed|\bat [\w.<>#]+ \((?:file|node|\/)/,
]

/** Longer than any pattern's match can be cut into. */
const OVERLAP = 200

export class LeakScan {
  readonly found: string[] = []
  readonly #config: () => GatewayConfig
  /** Bytes looked at. */
  scanned = 0

  constructor(config: () => GatewayConfig) {
    this.#config = config
  }

  /** As the global `fetch`; what passes is looked at on its way. */
  readonly fetch: typeof fetch = async (input, init) => {
    const response = await fetch(input, init)
    const words = this.#words()
    const where = `${response.status} of ${typeof input === 'string' ? input : input instanceof URL ? input.href : input.url}`
    this.look(JSON.stringify([...response.headers]), `${where}, headers`, words)
    if (!response.body) return response
    const decoder = new TextDecoder()
    const reader = response.body.getReader()
    let tail = ''
    // Pulled by the client, one chunk at a time: nothing is read ahead, so that backpressure is what it was.
    const watched = new ReadableStream<Uint8Array>(
      {
        pull: async controller => {
          const { done, value } = await reader.read()
          if (done) return controller.close()
          const text = tail + decoder.decode(value, { stream: true })
          this.look(text, where, words)
          tail = text.slice(-OVERLAP)
          controller.enqueue(value)
        },
        cancel: reason => reader.cancel(reason),
      },
      { highWaterMark: 0 },
    )
    return new Response(watched, response)
  }

  look(text: string, where: string, words = this.#words()): void {
    this.scanned += text.length
    for (const word of words) if (text.includes(word)) this.#report(word, text.indexOf(word), text, where)
    for (const pattern of ALWAYS) {
      const match = pattern.exec(text)
      if (match) this.#report(match[0], match.index, text, where)
    }
  }

  #report(what: string, at: number, text: string, where: string): void {
    this.found.push(`${JSON.stringify(what)} in ${where}: …${text.slice(Math.max(0, at - 80), at + 120)}…`)
  }

  /** Upstream models, backends and base URLs of the running configuration. Names of fewer than four letters occur in any text. */
  #words(): string[] {
    const { models, providers } = this.#config()
    const words = new Set<string>()
    for (const served of Object.values(models)) {
      for (const backend of served.backends) {
        if (backend.model.length > 3 && !(backend.model in models)) words.add(backend.model)
        words.add(backend.id)
      }
    }
    for (const provider of Object.values(providers)) {
      if (URL.canParse(provider.base_url)) words.add(new URL(provider.base_url).host)
    }
    return [...words]
  }
}
