/**
 * Replaces text that differs in each run by placeholders: ids, ports, folders and the `Date` header. A placeholder has
 * the same prefix and length as the id that it replaces. The same id always gets the same placeholder.
 */

/** Random ids of the gateway: a prefix, then 24 letters and digits. */
const ID = /\b((?:req|resp|msg|call_eba1|item_eba1|hist_eba1)_|chatcmpl-)([A-Za-z0-9]{24})(?![A-Za-z0-9])/g
/** The placeholder of an id, as `#placeholder` writes it. */
const NUMBERED = /\b((?:req|resp|msg|call_eba1|item_eba1|hist_eba1)_|chatcmpl-)(0{20}\d{4})(?![A-Za-z0-9])/g
/**
 * The id of a call that the upstream gets. The gateway derives it from its own id, so it is random when that one is.
 */
const DERIVED = /\b(call_)(?!eba1_)([A-Za-z0-9_-]{24})(?![A-Za-z0-9_-])/g
/** The id of a request that the upstream gets, made of the gateway's own. */
const UUID = /^[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}$/
/** What is sealed for a client differs each time, but for its length. */
const SEALED = /\b(cmp_eba1_)([A-Za-z0-9_-]{39,})/g
const DATE = /\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT/

export class Normaliser {
  readonly #places: readonly (readonly [string, string])[]
  readonly #numbers = new Map<string, string>()
  readonly #originals = new Map<string, string>()

  readonly #session: boolean

  /**
   * @param places texts and their replacements, such as `['127.0.0.1:43210', '‹upstream›']`
   * @param session whether requests name ids of earlier replies
   */
  constructor(places: readonly (readonly [string, string])[] = [], session = false) {
    this.#places = places
    this.#session = session
  }

  text(text: string): string {
    let result = text.replace(ID, (_, prefix: string, random: string) => prefix + this.#placeholder(random))
    result = result.replace(SEALED, (_, prefix: string, sealed: string) => `${prefix}‹${sealed.length}›`)
    if (this.#session)
      result = result.replace(DERIVED, (_, prefix: string, made: string) => prefix + this.#placeholder(made))
    for (const [place, name] of this.#places) result = result.replaceAll(place, name)
    return result
  }

  header(name: string, value: string): string {
    const lower = name.toLowerCase()
    if (lower === 'x-request-id' && UUID.test(value)) return '‹uuid›'
    return lower === 'date' ? value.replace(DATE, '‹date›') : this.text(value)
  }

  /**
   * Replaces placeholders by ids, because a request of a session names an id of an earlier reply by its placeholder.
   */
  original(text: string): string {
    return text.replace(NUMBERED, (whole, prefix: string, digits: string) => {
      const random = this.#originals.get(digits)
      return random === undefined ? whole : prefix + random
    })
  }

  /** Numbers only the random part of an id, because an object's id and the id of its reply may share it. */
  #placeholder(random: string): string {
    let placeholder = this.#numbers.get(random)
    if (placeholder === undefined) {
      placeholder = String(this.#numbers.size + 1).padStart(24, '0')
      this.#numbers.set(random, placeholder)
      this.#originals.set(placeholder, random)
    }
    return placeholder
  }
}
