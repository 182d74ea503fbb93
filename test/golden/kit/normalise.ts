/**
 * Puts stable text in place of what is random by nature: ids, ports, folders and the `Date` header. A placeholder keeps
 * the prefix and the length of the id that it stands for, and an id that comes twice gets the same placeholder twice.
 */

/** Ids that the gateway draws: their prefix, then 24 letters and digits. */
const ID = /\b((?:req|resp|msg|call_eba1|item_eba1|hist_eba1)_|chatcmpl-)([A-Za-z0-9]{24})(?![A-Za-z0-9])/g
/** A placeholder, as `#placeholder` writes it. */
const NUMBERED = /\b((?:req|resp|msg|call_eba1|item_eba1|hist_eba1)_|chatcmpl-)(0{20}\d{4})(?![A-Za-z0-9])/g
/** What an upstream gets for the id of a call: made from it, so it is chance where the id is. */
const DERIVED = /\b(call_)(?!eba1_)([A-Za-z0-9_-]{24})(?![A-Za-z0-9_-])/g
const DATE = /\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT/

export class Normaliser {
  readonly #places: readonly (readonly [string, string])[]
  readonly #numbers = new Map<string, string>()
  readonly #originals = new Map<string, string>()

  readonly #session: boolean

  /**
   * @param places what to replace, such as `['127.0.0.1:43210', '‹upstream›']`
   * @param session whether requests name ids of earlier replies
   */
  constructor(places: readonly (readonly [string, string])[] = [], session = false) {
    this.#places = places
    this.#session = session
  }

  text(text: string): string {
    let result = text.replace(ID, (_, prefix: string, random: string) => prefix + this.#placeholder(random))
    if (this.#session)
      result = result.replace(DERIVED, (_, prefix: string, made: string) => prefix + this.#placeholder(made))
    for (const [place, name] of this.#places) result = result.replaceAll(place, name)
    return result
  }

  header(name: string, value: string): string {
    return name.toLowerCase() === 'date' ? value.replace(DATE, '‹date›') : this.text(value)
  }

  /** The other way round: a request of a session may name an id that an earlier reply brought, by its placeholder. */
  original(text: string): string {
    return text.replace(NUMBERED, (whole, prefix: string, digits: string) => {
      const random = this.#originals.get(digits)
      return random === undefined ? whole : prefix + random
    })
  }

  /** The chance part alone is numbered: an object's id and the id of its reply may share it. */
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
