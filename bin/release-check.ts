/**
 * Says what the operator of this repository has to do before a release, and ends with 1 while there is something:
 *
 *   npm run release:check            before a tag is made
 *   npm run release:check -- v0.2.0  for this tag
 *   --in FOLDER                      of the checkout in this folder
 *   --on YYYY-MM-DD                  as on this day, and not today
 */
import { readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { parseArgs } from 'node:util'

const { values, positionals } = parseArgs({
  options: { in: { type: 'string' }, on: { type: 'string' } },
  allowPositionals: true,
})
const [tag] = positionals
const root = values.in ?? dirname(import.meta.dirname)
const read = (path: string) => readFileSync(join(root, path), 'utf8')
const line = (path: string, pattern: RegExp) => {
  const at = read(path)
    .split('\n')
    .findIndex(text => pattern.test(text))
  return `${path}:${at + 1}`
}

const { version, repository } = JSON.parse(read('package.json')) as { version: string; repository?: unknown }
const open: string[] = []

if (/@example\.|\.(?:invalid|example|test)\b/.test(/^Write to (.*)$/m.exec(read('SECURITY.md'))?.[1] ?? '.invalid'))
  open.push(`${line('SECURITY.md', /^Write to /)}  the address for reports is not filled in: write yours`)
if (repository === undefined)
  open.push(
    'package.json  `repository` is missing: npm signs only for the repository that it names; add { "type": "git", "url": "…" }',
  )
if (/^## Unreleased\n+(?!## )/m.test(read('CHANGELOG.md')))
  open.push(`${line('CHANGELOG.md', /^## Unreleased/)}  changes stand under "Unreleased": make it "## ${version}"`)
if (!new RegExp(`^## ${version.replaceAll('.', '\\.')}$`, 'm').test(read('CHANGELOG.md')))
  open.push(`CHANGELOG.md  there is no section "## ${version}", the version of package.json`)
for (const name of ['version', 'appVersion'])
  if (!new RegExp(`^${name}: ${version}$`, 'm').test(read('deploy/helm/sluice/Chart.yaml')))
    open.push(
      `${line('deploy/helm/sluice/Chart.yaml', new RegExp(`^${name}:`))}  ${name} is not ${version}, the version of package.json`,
    )
const { version: ofConsole } = JSON.parse(read('console/package.json')) as { version: string }
if (ofConsole !== version)
  open.push(`console/package.json  version is ${ofConsole}, and that of package.json ${version}`)
if (tag !== undefined && tag !== `v${version}`)
  open.push(`the tag is ${tag}, and package.json has the version ${version}: tag v${version}, or change the version`)

const lastDay = /^.*\*\*After (\d{1,2} \w+ \d{4}) this page/m.exec(read('docs/comparison.md'))?.[1]
const today = values.on ?? new Date().toISOString().slice(0, 10)
// Without a day it is old, too.
if (Number.isNaN(Date.parse(`${lastDay} UTC`)) || Date.parse(`${lastDay} UTC`) < Date.parse(today))
  open.push(
    `${line('docs/comparison.md', /\*\*After .* this page/)}  the comparison was to be read again by ${lastDay ?? 'a day that it does not say'}: read its sources again, and name another day`,
  )

for (const text of open) console.error(text)
if (open.length > 0) process.exitCode = 1
else console.log(`${version} can be released.`)
