/**
 * THIRD_PARTY_NOTICES.md: every package that a production install holds, with its licence and its copyright lines, then
 * the text of each licence once. Packages come from package-lock.json, copyright lines from the installed packages.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

const ROOT = join(import.meta.dirname, '..', '..')

/** Copyright holders of packages whose licence file names none, or that have no such file. */
const HOLDERS: Readonly<Record<string, string>> = {
  '@uwsjs/linux-x64-22': 'Copyright (c) Alex Hultman and contributors (uWebSockets.js, µWebSockets)',
  '@opentelemetry/api': 'Copyright The OpenTelemetry Authors',
  'prom-client': 'Copyright 2015 Simon Nyberg',
}
/** Where the text of each licence is taken from: a package whose file has exactly that text. */
const TEXT_OF: Readonly<Record<string, string>> = {
  MIT: 'node_modules/ajv/LICENSE',
  ISC: 'node_modules/yaml/LICENSE',
  'BSD-3-Clause': 'node_modules/fast-uri/LICENSE',
}
/** A line that names holders, not one that speaks of "the copyright notice" or has a blank to fill in. */
const COPYRIGHT = /^\s*Copyright\b(?! (?:\[|notice|license|owner|holder|statement)).*$/gm

interface Package {
  version: string
  license: string
  dev?: boolean
}

/** The whole file. */
export function notices(): string {
  const lock = JSON.parse(readFileSync(join(ROOT, 'package-lock.json'), 'utf8'))
  const packages = Object.entries(lock.packages as Record<string, Package>)
    .filter(([path, { dev }]) => path !== '' && !dev)
    .map(([path, { version, license }]) => ({ name: path.slice('node_modules/'.length), version, license }))
  const rows = packages.map(({ name, version, license }) => `| ${name} | ${version} | ${license} | ${holders(name)} |`)
  const texts = Object.keys(TEXT_OF).map(license => `## ${license}\n\n\`\`\`text\n${textOf(license)}\n\`\`\`\n`)
  return `# Third-party notices

What a production install of Sluice holds beside Sluice itself, and the terms of each part. \`npm run generate\` makes
this file. [docs/dependencies.md](docs/dependencies.md) says what each direct dependency is for.

\`meter/o200k_base.bin\` is made from the vocabulary o200k_base of OpenAI's tiktoken (MIT, Copyright (c) 2022 OpenAI,
Shantanu Jain), as the npm package js-tiktoken (MIT) carries it.

| package | version | licence | copyright |
| --- | --- | --- | --- |
${rows.join('\n')}

The text of the Apache License 2.0 is in [LICENSE](LICENSE). Node.js itself contains further parts; their notices are in
the \`LICENSE\` file of its package, \`node_modules/node-linux-*/LICENSE\`.

${texts.join('\n')}`
}

function holders(name: string): string {
  if (name.startsWith('node-linux-')) return 'Copyright Node.js contributors'
  const named = HOLDERS[name]
  if (named) return named
  const file = licenceFile(name)
  const lines = file ? (readFileSync(file, 'utf8').match(COPYRIGHT) ?? []) : []
  if (lines.length === 0) throw new Error(`${name} has no licence file that names a holder: add it to HOLDERS`)
  return [...new Set(lines.map(line => line.trim()))].join('; ')
}

function licenceFile(name: string): string | undefined {
  const folder = join(ROOT, 'node_modules', name)
  if (!existsSync(folder)) return undefined
  const file = readdirSync(folder).find(each => /^licen[cs]e(\.\w+)?$/i.test(each))
  return file && join(folder, file)
}

/** The text of a licence without the lines that name the copyright holders of one package. */
function textOf(license: string): string {
  return readFileSync(join(ROOT, TEXT_OF[license]!), 'utf8')
    .replaceAll(COPYRIGHT, '')
    .replaceAll(/\n{3,}/g, '\n\n')
    .trim()
}
