/** What `sluice plugin new` writes. */

export function pluginTemplate(name: string): string {
  return `/**
 * Refuses requests without a header, and counts the text that goes out. Replace it with what you need: docs/plugins.md
 * says more.
 */
import { definePlugin, deny, slot } from 'sluice'

interface Options {
  require_header: string
}

/** A typed fact about one exchange. Export a slot for other plugins to read it. */
const characters = slot<number>('${name}.characters')

export default definePlugin<Options>({
  name: '${name}',
  summary: 'Refuses requests without a header, and counts the text that goes out.',
  // One schema gives the check, the defaults and the docs; unknown keys are errors.
  config: {
    type: 'object',
    additionalProperties: false,
    properties: {
      require_header: {
        type: 'string',
        default: '',
        description: 'Refuse requests without this header; empty: none is needed.',
      },
    },
  },
  // Every slot that it sets, the private ones too.
  mayProvide: [characters],
  // \`sluice route\` may run its onRequest, since that sends nothing.
  dryRun: 'safe',
  create({ require_header }, { log }) {
    return {
      // On the way down, once for each request. Return nothing to go on, or a Reply to answer; may wait. To change what is
      // asked, declare \`rewrites: [conversation]\` and set a new one: x.set(conversation, { ...x.get(conversation), turns }).
      onRequest(x) {
        if (require_header === '' || x.incoming.headers.has(require_header)) return undefined
        return deny('bad_request', { message: \`Send the header \${require_header}.\` })
      },
      // For each event of the reply. May not wait: a slow plugin takes x.hold().
      onEvent(x, event) {
        if (event.type === 'text') x.set(characters, (x.peek(characters) ?? 0) + event.text.length)
        return undefined
      },
      // Always, exactly once, however the exchange ended.
      onSettle(x, settlement) {
        log.info({ request_id: x.id, outcome: settlement.outcome, characters: x.peek(characters) ?? 0 }, '${name}')
        return undefined
      },
    }
  },
})
`
}

export function testTemplate(name: string): string {
  return `import assert from 'node:assert/strict'
import { test } from 'node:test'
import { runPlugin } from 'sluice/testing'
import plugin from './${name}.ts'

test('${name} refuses a request without the header', async () => {
  const run = await runPlugin(plugin, { config: { require_header: 'x-team' } })
  assert.equal(run.status, 400)
})

test('${name} lets a request with the header through, and counts its text', async () => {
  const run = await runPlugin(plugin, {
    config: { require_header: 'x-team' },
    request: { headers: { 'x-team': 'blue' } },
    events: [{ type: 'text', text: 'Hello' }],
  })
  assert.equal(run.status, 200)
  assert.equal(run.log.find(line => line.message === '${name}')?.fields.characters, 5)
})
`
}

/**
 * @param root path of the checkout or the package, relative to the plugin's folder, with forward slashes
 * @param types the extension of the modules that have the types there
 */
export function tsconfigTemplate(root: string, types: 'ts' | 'd.ts'): string {
  return `${JSON.stringify(
    {
      extends: `${root}/tsconfig.json`,
      compilerOptions: {
        paths: {
          sluice: [`${root}/core/plugin.${types}`],
          'sluice/dialect': [`${root}/providers/dialect.${types}`],
          'sluice/testing': [`${root}/plugins/testing.${types}`],
        },
        // As a package, the gateway has no types of Node; those of the project that has the plugin are found.
        ...(types === 'ts' && { typeRoots: [`${root}/node_modules/@types`] }),
      },
      include: ['*.ts'],
    },
    null,
    2,
  )}\n`
}

export function packageTemplate(): string {
  return `${JSON.stringify({ private: true, type: 'module' }, null, 2)}\n`
}
