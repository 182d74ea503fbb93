/** receipt-keys: what is published, where keys are kept, and how they rotate. */
import assert from 'node:assert/strict'
import { createPublicKey, generateKeyPairSync } from 'node:crypto'
import fs from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import type { ReceiptsConfig } from '../../config/types.ts'
import { createSharedState } from '../../core/engine/shared-state.ts'
import { ManualClock } from '../../core/tools/clock.ts'
import { receiptKeysPlugin } from '../../plugins/receipt-keys.ts'
import { faultOf, keysOf, signed } from '../../plugins/shared/receipt.ts'
import { ReceiptKeys, receiptKeys, rotate } from '../../plugins/shared/receipt-keys.ts'
import { runPlugin } from '../../plugins/testing.ts'
import { silent } from '../chain/harness.ts'
import { temporary } from '../stores/kit.ts'

const inFolder = (folder: string): ReceiptsConfig => ({ folder, keys: [], fault: null })
const listed = (...keys: string[]): ReceiptsConfig => ({ folder: null, keys, fault: null })
const privateKey = () => generateKeyPairSync('ed25519').privateKey.export({ type: 'pkcs8', format: 'pem' }) as string
const publicOf = (pem: string) => createPublicKey(pem).export({ type: 'spki', format: 'pem' }) as string
const open = (config: ReceiptsConfig, clock = new ManualClock()) => new ReceiptKeys(config, clock)
const idsOf = (keys: ReceiptKeys) => keys.published.map(({ kid }) => kid)
/** Makes the files of a folder older. */
function age(folder: string, ms: number): void {
  for (const name of fs.readdirSync(folder)) {
    const file = join(folder, name)
    const time = (fs.statSync(file).mtimeMs - ms) / 1000
    fs.utimesSync(file, time, time)
  }
}

test('the keys are a JSON Web Key Set, for everybody, without a private member', async () => {
  const pem = privateKey()
  const { status, json, headers } = await runPlugin(receiptKeysPlugin, { gateway: { receipts: listed(pem) } })
  assert.equal(status, 200)
  assert.equal(headers.get('cache-control'), 'public, max-age=60')
  const [{ kid, x, ...rest }, ...others] = json.keys
  assert.deepEqual(rest, { kty: 'OKP', crv: 'Ed25519', use: 'sig', alg: 'EdDSA' })
  assert.deepEqual(others, [])
  assert.equal(createPublicKey(pem).export({ format: 'jwk' }).x, x)
  assert.match(kid, /^[\w-]{43}$/)
  const receipt = await signed({ object: 'x' }, open(listed(pem)).signing)
  assert.equal(receipt.signature.key, kid)
  assert.equal(await faultOf(receipt, keysOf(json)), null)
})

test('the first key of a folder is made when it is needed, by one of several processes, readable to its owner alone', () => {
  const folder = join(temporary(), 'keys')
  const all = Array.from({ length: 5 }, () => open(inFolder(folder)))
  assert.ok(!fs.existsSync(folder), 'nothing is written before')
  const ids = all.map(keys => keys.signing.id)
  assert.equal(new Set(ids).size, 1)
  assert.deepEqual(fs.readdirSync(folder), ['first.pem'])
  assert.equal(fs.statSync(folder).mode & 0o777, 0o700)
  assert.equal(fs.statSync(join(folder, 'first.pem')).mode & 0o777, 0o600)
  assert.equal(open(inFolder(folder)).signing.id, ids[0], 'a restart finds it')
})

test('a new key is published at once, signs five minutes later, and those before it become public', async () => {
  const folder = join(temporary(), 'keys')
  const clock = new ManualClock()
  const keys = open(inFolder(folder), clock)
  const first = keys.signing.id
  const made = await signed({ object: 'x' }, keys.signing)
  assert.deepEqual(rotate(folder).retired, [])
  const second = idsOf(open(inFolder(folder)))[0]!
  assert.deepEqual(idsOf(keys), [first], 'a process reads the folder once a minute')
  clock.advance(60_000)
  assert.deepEqual(idsOf(keys), [second, first])
  assert.equal(keys.signing.id, first)
  age(folder, 301_000)
  clock.advance(60_000)
  assert.equal(keys.signing.id, second)
  // The one that signs goes on until the third one does; the first is not needed any more.
  const third = rotate(folder)
  assert.deepEqual(third.retired, [first])
  clock.advance(60_000)
  assert.deepEqual(idsOf(keys), [third.added, second, first])
  assert.equal(keys.signing.id, second)
  assert.doesNotMatch(fs.readFileSync(join(folder, 'first.pem'), 'utf8'), /PRIVATE/)
  assert.equal(await faultOf(made, keysOf({ keys: keys.published })), null, 'what it signed stays verifiable')
  assert.deepEqual(rotate(folder).retired, [], 'two keys that are new: the one that signs stays private')
})

test('a folder of public keys alone gets a key that signs', () => {
  const folder = temporary()
  fs.writeFileSync(join(folder, 'old.pem'), publicOf(privateKey()))
  const keys = open(inFolder(folder))
  assert.equal(keys.published.length, 2)
  assert.ok(idsOf(keys).includes(keys.signing.id))
})

test('a private key that others may read is refused, with the cure', () => {
  const folder = temporary()
  const file = join(folder, 'a.pem')
  fs.writeFileSync(file, privateKey(), { mode: 0o644 })
  assert.throws(() => open(inFolder(folder)).signing, {
    message: `${file} is a private key that others may read; run: chmod 600 ${file}`,
  })
  fs.chmodSync(file, 0o640)
  assert.throws(() => open(inFolder(folder)).signing, /others may read/)
  fs.chmodSync(file, 0o600)
  assert.ok(open(inFolder(folder)).signing)
  fs.writeFileSync(join(folder, 'b.pem'), 'nonsense')
  assert.throws(() => open(inFolder(folder)).signing, /b\.pem is no Ed25519 key as PEM; make one: openssl genpkey/)
})

test('of a list the first key signs, and all are published', () => {
  const [now, before] = [privateKey(), privateKey()]
  const keys = open(listed(now, publicOf(before)))
  assert.deepEqual(idsOf(keys), [...idsOf(open(listed(now))), ...idsOf(open(listed(before)))])
  assert.equal(keys.signing.id, idsOf(keys)[0])
  assert.throws(() => open(listed(publicOf(now))), /receipts\.keys\[0\] is a public key; the first one signs/)
  assert.throws(() => open(listed(now, 'x')), /receipts\.keys\[1\] is no Ed25519 key/)
  const rsa = generateKeyPairSync('rsa', { modulusLength: 2048 }).privateKey.export({ type: 'pkcs8', format: 'pem' })
  assert.throws(() => open(listed(rsa as string)), /receipts\.keys\[0\] is no Ed25519 key/)
})

test('keys in memory outlive a reload, and other settings have others', () => {
  const [shared, clock] = [createSharedState(), new ManualClock()]
  const first = receiptKeys(listed(), shared, clock, silent).signing.id
  assert.equal(receiptKeys(listed(), shared, clock, silent).signing.id, first)
  assert.notEqual(receiptKeys(listed(privateKey()), shared, clock, silent).signing.id, first)
  assert.notEqual(receiptKeys(listed(), createSharedState(), clock, silent).signing.id, first)
})

test('gateways that would each have keys of their own do not load', () => {
  const check = (receipts: ReceiptsConfig) => receiptKeysPlugin.check!({}, { receipts } as never)
  assert.deepEqual(check(inFolder('/x')), [])
  assert.deepEqual(check({ ...listed(), fault: 'say why' }), ['say why'])
})

test('a folder that cannot be used fails closed, is told to the log, and is looked at again', async () => {
  const folder = temporary()
  fs.writeFileSync(join(folder, 'a.pem'), 'nonsense')
  const [shared, clock] = [createSharedState(), new ManualClock()]
  const ask = () => runPlugin(receiptKeysPlugin, { gateway: { receipts: inFolder(folder) }, shared, clock })
  const { status, json, log } = await ask()
  assert.deepEqual([status, json.error.code], [500, 'internal_error'])
  const told = log.find(({ message }) => message === 'the keys of receipts cannot be used')!
  assert.match(told.fields.fault, /a\.pem is no Ed25519 key/)
  fs.rmSync(join(folder, 'a.pem'))
  assert.equal((await ask()).status, 500)
  clock.advance(5000)
  assert.equal((await ask()).status, 200)
})
