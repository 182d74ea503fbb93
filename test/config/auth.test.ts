/** `auth` of a provider: what it becomes, and what is refused with which words. */
import assert from 'node:assert/strict'
import { resolve } from 'node:path'
import { test } from 'node:test'
import { installCommand, isInstalled } from '../../config/modules.ts'
import { lines, loadText, small } from './load-text.ts'

const load = (provider: string, files: Record<string, string> = {}) =>
  loadText(small({ providers: `providers:\n  local: { dialect: openai-chat, base_url: "http://h", ${provider} }` }), {
    files,
  })

async function loaded(provider: string, files?: Record<string, string>) {
  const { config, errors } = await load(provider, files)
  assert.deepEqual(lines(errors), [])
  return config!.providers['local']!
}

test('a key in a header', async () => {
  assert.deepEqual((await loaded('api_key: k')).key_header, undefined)
  assert.deepEqual((await loaded('api_key: k, auth: bearer')).key_header, { name: 'authorization', prefix: 'Bearer ' })
  assert.deepEqual((await loaded('api_key: k, auth: { header: X-Key }')).key_header, { name: 'x-key', prefix: '' })
  const azure = await loaded('api_key: k, auth: azure')
  assert.deepEqual([azure.key_header, azure.auth], [{ name: 'api-key', prefix: '' }, null])
})

test('a word alone has the defaults of its mapping, and files are beside the configuration', async () => {
  const scopes = ['https://www.googleapis.com/auth/cloud-platform']
  assert.deepEqual((await loaded('auth: google')).auth, { kind: 'google', scopes })
  assert.deepEqual(
    (await loaded('auth: { google: { credentials: ./account.json } }', { './account.json': '{}' })).auth,
    {
      kind: 'google',
      scopes,
      credentials: resolve('account.json'),
    },
  )
  assert.deepEqual((await loaded('auth: azure')).auth, {
    kind: 'azure',
    scope: 'https://cognitiveservices.azure.com/.default',
    authority: 'https://login.microsoftonline.com',
  })
  assert.deepEqual((await loaded('auth: { aws: { region: us-east-1, profile: p } }')).auth, {
    kind: 'aws',
    region: 'us-east-1',
    service: 'bedrock',
    profile: 'p',
  })
})

test('what is refused names the place and the cure', async () => {
  const cases: [string, RegExp][] = [
    ['auth: basic', /auth must be written like bearer or aws or google/],
    ['auth: {}', /takes one of bearer/],
    ['auth: { google: {}, azure: {} }', /takes one of bearer/],
    ['api_key: k, auth: google', /auth: google has credentials of its own; remove api_key/],
    ['auth: aws', /needs a region/],
    ['auth: { aws: { region: r, access_key_id: a } }', /belong together/],
    ['auth: { aws: { region: r, access_key_id: a, secret_access_key: b, profile: p } }', /two credentials/],
    ['auth: { azure: { tenant_id: t, client_id: c } }', /either client_secret or token_file/],
    ['auth: { azure: { client_secret: c } }', /needs tenant_id/],
    ['auth: google, headers: { Authorization: x }', /auth sets Authorization as well/],
    ['api_key: k, auth: { header: host }', /set by the gateway/],
    ['auth: { google: { credentials: ./missing.json } }', /cannot read .*missing\.json \(ENOENT\)/],
  ]
  for (const [provider, message] of cases) {
    const { errors } = await load(provider)
    assert.match(lines(errors).join('\n'), message, provider)
    assert.match(lines(errors)[0] ?? '', /^gateway\.yaml:\d+:\d+/)
  }
})

test('a header without a key is a warning: the variable may be set only where the gateway runs', async () => {
  for (const provider of ['auth: bearer', 'auth: azure, api_key: ""']) {
    const { warnings, errors } = await load(provider)
    assert.equal(errors, undefined)
    assert.match(lines(warnings).join(), /there is no api_key; requests go without/)
  }
})

test('no message holds a secret', async () => {
  const { errors } = await load('auth: { aws: { region: [], secret_access_key: hunter2 } }')
  assert.ok(errors && errors.length > 0 && !lines(errors).join().includes('hunter2'))
})

test('a package that is not installed is named with the command that installs it', () => {
  assert.ok(isInstalled('google-auth-library') && !isInstalled('@sluice/no-such-package'))
  const command = installCommand(['google-auth-library'])
  assert.match(command, /^npm install --omit=dev --save-prod --no-save google-auth-library@\d+\.\d+\.\d+$/)
})
