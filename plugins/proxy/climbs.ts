/** A path is percent-decoded at most this many times; one that still changes after that is refused. */
const MAX_ROUNDS = 4
/** `.` and `/` and `\` as overlong UTF-8 and as `%uXXXX`, which some servers decode. */
const ODD_FORMS: readonly [RegExp, string][] = [
  [/%c0%ae|%e0%80%ae|%f0%80%80%ae|%u(?:00|ff0)2e|%uff0e/gi, '.'],
  [/%c0%af|%e0%80%af|%f0%80%80%af|%u002f|%uff0f|%u2215/gi, '/'],
  [/%c1%9c|%c0%dc|%u005c|%uff3c/gi, '\\'],
]
/** Control characters and blanks, which some servers drop from a segment. */
const DROPPED = /[\x00-\x20\x7f-\xa0]/g

/**
 * Whether a path holds a segment `..` in any spelling: percent-encoded once or several times, with a path parameter
 * (`..;x`), with a blank or control character beside the dots, or after a backslash. Routes match the path as the
 * client sent it: a target that resolves `..` would serve a path that no route names, with the gateway's key.
 * @param path without the query
 */
export function climbs(path: string): boolean {
  let text = path
  for (let round = 0; round <= MAX_ROUNDS; round++) {
    for (const segment of text.split(/[/\\]/)) {
      const name = segment.replace(/;.*/s, '').replace(DROPPED, '')
      if (name === '..') return true
    }
    const plain = decodeOnce(text)
    if (plain === text) return false
    text = plain
  }
  return true
}

function decodeOnce(text: string): string {
  if (!text.includes('%')) return text
  for (const [form, character] of ODD_FORMS) text = text.replace(form, character)
  return text.replace(/%([0-9a-f]{2})/gi, (_, hex) => String.fromCharCode(Number.parseInt(hex, 16)))
}
