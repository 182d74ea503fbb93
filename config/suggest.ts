/** The known word nearest to a mistyped one, or null when none is near. */
export function nearest(word: string, known: Iterable<string>): string | null {
  const typed = fold(word)
  let best: string | null = null
  let least = Math.max(1, Math.floor(typed.length / 3)) + 1
  for (const candidate of known) {
    const distance = edits(typed, fold(candidate), least)
    if (distance < least) {
      least = distance
      best = candidate
    }
  }
  return best
}

/** `; did you mean 'x'?`, or nothing. */
export function didYouMean(word: string, known: Iterable<string>): string {
  const near = nearest(word, known)
  return near === null ? '' : `; did you mean '${near}'?`
}

// Hyphens, underscores and case are often mistyped, so they do not count as edits.
const fold = (word: string) => word.toLowerCase().replaceAll(/[-_ ]/g, '')

/**
 * Number of edits (insert, delete, replace, swap of neighbours) between two words; `limit` when there are that many or
 * more.
 */
function edits(a: string, b: string, limit: number): number {
  if (Math.abs(a.length - b.length) >= limit || a.length > 80) return limit
  let before: number[] = []
  let last = Array.from({ length: b.length + 1 }, (_, j) => j)
  for (let i = 1; i <= a.length; i++) {
    const row = [i]
    for (let j = 1; j <= b.length; j++) {
      const cost = a[i - 1] === b[j - 1] ? 0 : 1
      let value = Math.min(last[j]! + 1, row[j - 1]! + 1, last[j - 1]! + cost)
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) value = Math.min(value, before[j - 2]! + 1)
      row.push(value)
    }
    before = last
    last = row
  }
  return Math.min(last[b.length]!, limit)
}
