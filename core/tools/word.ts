/** What a log line may take of text from outside: a word of a closed list, an id, or a path to a member. */

/** What has spaces, or is longer, may be a sentence that quotes a prompt. What begins like a key may be one. */
const WORD = /^(?!sk-)[\w.:/$@[\]-]{1,128}$/

/** @returns the word, or undefined where the value is none */
export function wordOf(value: unknown): string | undefined {
  const text = typeof value === 'number' ? String(value) : value
  return typeof text === 'string' && WORD.test(text) ? text : undefined
}
