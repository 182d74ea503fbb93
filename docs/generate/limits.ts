/** The table of docs/limits.md, from the table of limits. `docs/generate/index.ts` writes it between its markers. */
import { DIMENSIONS, denialCode, MAXIMA } from '../../core/canon/limits.ts'

export function limitTable(): string {
  const counted = DIMENSIONS.map(([dimension, { limits, counts }]) => {
    const names = limits.map(({ name }) => `\`${name}\``).join(', ') || '[a balance](#a-balance)'
    return `| ${names} | ${counts} | \`${denialCode(dimension)}\` |`
  })
  const maxima = MAXIMA.map(({ name, counts, denial }) => `| \`${name}\` | ${counts} | ${denial} |`)
  return ['| limit | counts | denial |', '| --- | --- | --- |', ...counted, ...maxima, ''].join('\n')
}
