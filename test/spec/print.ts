/**
 * Prints the specification's table: `npm run spec`.
 *
 *   npm run spec -- limits           the sections and rows whose title or id has this word
 *   npm run spec -- --open           only what does not hold
 *   npm run spec -- --long           the rows that wait for real clocks, too
 */
import { tryRows } from './kit/run.ts'
import { ROWS } from './rows.ts'

const args = process.argv.slice(2)
const word = args.find(arg => !arg.startsWith('-'))?.toLowerCase()
const rows = ROWS.filter(
  row => word === undefined || row.id.startsWith(word) || row.section.toLowerCase().includes(word),
)
const results = [
  ...(await tryRows(rows.filter(row => !row.long))),
  ...(args.includes('--long')
    ? await tryRows(
        rows.filter(row => row.long),
        false,
      )
    : []),
]
const cell = (text: string): string => text.replaceAll('|', '\\|').replaceAll('\n', ' ')

console.log('| id | section | where | sentence | result | evidence |\n| --- | --- | --- | --- | --- | --- |')
for (const { row, verdict, evidence } of results) {
  if (args.includes('--open') && (verdict === 'holds' || verdict === 'out of reach')) continue
  console.log(`| ${[row.id, row.section, row.at, row.says, verdict, evidence].map(cell).join(' | ')} |`)
}
const tally = Map.groupBy(results, ({ verdict }) => verdict)
console.log(`\n${results.length} rows: ${[...tally].map(([verdict, list]) => `${list.length} ${verdict}`).join(', ')}`)
process.exitCode = results.some(({ fault }) => fault !== undefined) ? 1 : 0
