/**
 * THIRD_PARTY_NOTICES.md, of the gateway and of the console: every package that a production install holds, with its
 * licence and its copyright lines, then the text of each licence once. Packages come from package-lock.json, copyright
 * lines from the installed packages.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { installPackages } from '../../console/install.ts'

const ROOT = join(import.meta.dirname, '..', '..')

/** Copyright holders of packages whose licence file names none, or that have no such file. */
const HOLDERS: Readonly<Record<string, string>> = {
  '@uwsjs/linux-x64-22': 'Copyright (c) Alex Hultman and contributors (uWebSockets.js, µWebSockets)',
  '@opentelemetry/api': 'Copyright The OpenTelemetry Authors',
  'prom-client': 'Copyright 2015 Simon Nyberg',
  'pg-types': 'Copyright (c) Brian M. Carlson',
  pgpass: 'Copyright (c) Hannes Hörl',
  'reflect-metadata': 'Copyright (c) Microsoft Corporation',
}
/** Where the text of each licence is taken from: a package whose file has exactly that text. */
const TEXT_OF: Readonly<Record<string, string>> = {
  MIT: 'node_modules/ajv/LICENSE',
  ISC: 'node_modules/yaml/LICENSE',
  'BSD-3-Clause': 'node_modules/fast-uri/LICENSE',
}
/** Those of the console besides. */
const MORE_OF_CONSOLE: Readonly<Record<string, string>> = {
  'MIT-0': 'console/node_modules/nodemailer/LICENSE',
  '0BSD': 'console/node_modules/tslib/LICENSE.txt',
}
/** A line that names holders, not one that speaks of "the copyright notice" or has a blank to fill in. */
const COPYRIGHT = /^\s*Copyright\b(?! (?:\[|notice|license|owner|holder|statement)).*$/gm

interface Package {
  version: string
  license: string
  dev?: boolean
}

/** The whole file, of what a production install of the gateway holds. */
export function notices(): string {
  return `# Third-party notices

What a production install of Sluice holds beside Sluice itself, and the terms of each part. \`npm run generate\` makes
this file. [docs/dependencies.md](docs/dependencies.md) says what each direct dependency is for.

\`meter/o200k_base.bin\` is made from the vocabulary o200k_base of OpenAI's tiktoken (MIT, Copyright (c) 2022 OpenAI,
Shantanu Jain), as the npm package js-tiktoken (MIT) carries it.

${table(ROOT)}

The text of the Apache License 2.0 is in [LICENSE](LICENSE). Node.js itself contains further parts; their notices are in
the \`LICENSE\` file of its package, \`node_modules/node-linux-*/LICENSE\`.

${texts(TEXT_OF)}`
}

/** The same of the console, which has packages of its own. */
export function noticesOfConsole(): string {
  installPackages(false)
  return `# Third-party notices of the console

What an install of the console holds beside Sluice itself, and the terms of each part. \`npm run generate\` makes this
file. [docs/dependencies.md](../docs/dependencies.md#the-console) says what each direct dependency is for.

${table(join(ROOT, 'console'))}

The text of the Apache License 2.0 is in [LICENSE](../LICENSE).

${texts({ ...TEXT_OF, ...MORE_OF_CONSOLE })}`
}

function table(folder: string): string {
  const lock = JSON.parse(readFileSync(join(folder, 'package-lock.json'), 'utf8'))
  const rows = Object.entries(lock.packages as Record<string, Package>)
    .filter(([path, { dev }]) => path !== '' && !dev)
    .map(([path, { version, license }]) => {
      const name = path.slice(path.lastIndexOf('node_modules/') + 'node_modules/'.length)
      return `| ${name} | ${version} | ${license} | ${holders(name, join(folder, path))} |`
    })
  return `| package | version | licence | copyright |\n| --- | --- | --- | --- |\n${rows.join('\n')}`
}

const texts = (of: Readonly<Record<string, string>>): string =>
  Object.entries(of)
    .map(([license, file]) => `## ${license}\n\n\`\`\`text\n${textOf(file)}\n\`\`\`\n`)
    .join('\n')

function holders(name: string, folder: string): string {
  if (name.startsWith('node-linux-')) return 'Copyright Node.js contributors'
  const named = HOLDERS[name]
  if (named) return named
  const file = licenceFile(folder)
  const lines = file ? (readFileSync(file, 'utf8').match(COPYRIGHT) ?? []) : []
  if (lines.length === 0) throw new Error(`${name} has no licence file that names a holder: add it to HOLDERS`)
  return [...new Set(lines.map(line => line.trim()))].join('; ')
}

function licenceFile(folder: string): string | undefined {
  if (!existsSync(folder)) return undefined
  const file = readdirSync(folder).find(each => /^licen[cs]e(\.\w+)?$/i.test(each))
  return file && join(folder, file)
}

/** The text of a licence without the lines that name the copyright holders of one package. */
function textOf(file: string): string {
  return readFileSync(join(ROOT, file), 'utf8')
    .replaceAll(COPYRIGHT, '')
    .replaceAll(/\n{3,}/g, '\n\n')
    .trim()
}
