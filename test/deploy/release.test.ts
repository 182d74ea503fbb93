/** How a release is made: the bill of materials, what has to be filled in before, the script and its workflow. */
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { chmodSync, cpSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { parse } from 'yaml'
import { lack, PACKAGES } from '../ensure-deps.ts'
import { folder, ROOT, read } from './kit.ts'

const { scripts, version } = JSON.parse(read('package.json'))
const run = (script: string, args: string[] = []) =>
  spawnSync(process.execPath, [...process.execArgv, join(ROOT, script), ...args], { encoding: 'utf8' })

for (const [of, folder] of [
  ['the gateway', ''],
  ['the console', 'console'],
] as const)
  test(`the bill of materials of ${of} has every package of a production install, with the digest that npm checks, and nothing else`, () =>
    checkBill(folder))

function checkBill(folder: string): void {
  const args = folder === '' ? [] : [folder]
  const bom = JSON.parse(run('bin/sbom.ts', args).stdout)
  const { packages } = JSON.parse(read(join(folder, 'package-lock.json')))
  const expected = Object.entries<any>(packages).filter(([path, { dev }]) => path !== '' && !dev)
  assert.ok(expected.length > 20)
  assert.equal(bom.components.length, expected.length)
  for (const [path, { version, integrity, license }] of expected) {
    const name = path.slice(path.lastIndexOf('node_modules/') + 'node_modules/'.length)
    const found = bom.components.find(
      (each: any) => [each.group, each.name].filter(Boolean).join('/') === name && each.version === version,
    )
    assert.ok(found, name)
    const digest = Buffer.from(found.hashes[0].content, 'hex').toString('base64')
    assert.deepEqual([found.hashes[0].alg, `sha512-${digest}`], ['SHA-512', integrity], name)
    assert.equal(found.licenses[0].license?.id ?? found.licenses[0].expression, license, name)
    // What is installed is what is listed; the other processor's Node is not installed here.
    const installed = join(ROOT, folder, path, 'package.json')
    if (existsSync(installed)) assert.equal(JSON.parse(readFileSync(installed, 'utf8')).version, found.version, name)
  }
  // Everything is needed by something, down from Sluice itself.
  const needed = new Set<string>()
  const visit = (ref: string): void => {
    if (needed.has(ref)) return
    needed.add(ref)
    for (const next of bom.dependencies.find((each: any) => each.ref === ref).dependsOn) visit(next)
  }
  visit(bom.metadata.component['bom-ref'])
  assert.equal(needed.size, bom.components.length + 1)
  assert.match(bom.serialNumber, /^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-8[0-9a-f]{3}-[0-9a-f]{12}$/)
  assert.deepEqual(JSON.parse(run('bin/sbom.ts', args).stdout), bom, 'the same sources make the same bill')
}

/** A copy of what the check reads, filled in. */
function filledIn(t: TestContext): { root: string; write(file: string, from: RegExp, to: string): void } {
  const root = folder(t)
  const write = (file: string, from: RegExp, to: string) => {
    const text = readFileSync(join(root, file), 'utf8')
    assert.match(text, from)
    writeFileSync(join(root, file), text.replace(from, to))
  }
  for (const file of [
    'SECURITY.md',
    'package.json',
    'console/package.json',
    'CHANGELOG.md',
    'deploy/helm/sluice/Chart.yaml',
    'docs/comparison.md',
  ]) {
    mkdirSync(dirname(join(root, file)), { recursive: true })
    cpSync(join(ROOT, file), join(root, file))
  }
  write('SECURITY.md', /^Write to .*$/m, 'Write to `security@sluice-proxy.org`.')
  write(
    'package.json',
    /"license"/,
    '"repository": { "type": "git", "url": "git+https://example.org/x.git" }, "license"',
  )
  // What is not released yet is what this version brings.
  if (/^## Unreleased$/m.test(read('CHANGELOG.md'))) write('CHANGELOG.md', /^## Unreleased$/m, `## ${version}`)
  return { root, write }
}

test('release:check names each thing that is not filled in, and takes a repository where all is', t => {
  // A day of its own, so that nothing here becomes red by the calendar.
  const check = (root: string, ...args: string[]) =>
    run('bin/release-check.ts', ['--in', root, '--on', '2026-11-27', ...args])
  const said = ({ stdout, stderr }: { stdout: string; stderr: string }) => stdout + stderr
  // As this repository is until its operator has read SECURITY.md.
  assert.equal(
    /^Write to .*example\.invalid/m.test(read('SECURITY.md')),
    /SECURITY\.md:\d+ .*write yours/.test(said(check(ROOT))),
  )

  const good = check(filledIn(t).root, `v${version}`)
  assert.equal(good.status, 0, said(good))
  const slips: [RegExp, (copy: ReturnType<typeof filledIn>) => void][] = [
    [/SECURITY\.md:3 .*write yours/, ({ write }) => write('SECURITY.md', /sluice-proxy\.org/, 'example.invalid')],
    [/SECURITY\.md:0 .*write yours/, ({ write }) => write('SECURITY.md', /^Write to /m, 'Mail ')],
    [/`repository` is missing/, ({ write }) => write('package.json', /"repository": \{.*?\}, /, '')],
    [/no section "## 9\.9\.9"/, ({ write }) => write('package.json', /"version": ".*?"/, '"version": "9.9.9"')],
    [
      /console\/package\.json {2}version is 9/,
      ({ write }) => write('console/package.json', /"version": ".*?"/, '"version": "9"'),
    ],
    [/comparison\.md:0 .*does not say/, ({ write }) => write('docs/comparison.md', /\*\*After /, '**From ')],
    [/under "Unreleased"/, ({ write }) => write('CHANGELOG.md', /^## /m, '## Unreleased\n\n- New.\n\n## ')],
    [
      /Chart\.yaml:\d+ {2}appVersion is not/,
      ({ write }) => write('deploy/helm/sluice/Chart.yaml', /^appVersion: .*/m, 'appVersion: 9'),
    ],
  ]
  for (const [fault, slip] of slips) {
    const copy = filledIn(t)
    slip(copy)
    const checked = check(copy.root)
    assert.equal(checked.status, 1)
    assert.match(said(checked), fault)
  }
  const old = filledIn(t)
  old.write('docs/comparison.md', /\*\*After .* this page/, '**After 28 February 2027 this page')
  assert.equal(check(old.root, '--on', '2027-02-28').status, 0)
  assert.match(said(check(old.root, '--on', '2027-03-01')), /comparison\.md:\d+ .*read again by 28 February 2027/)
  assert.match(said(check(filledIn(t).root, 'v9.9.9')), /the tag is v9\.9\.9/)
})

/** Runs release.sh with programs that only write down how they were called. */
function release(
  t: TestContext,
  args: string[],
  checks: number,
): { status: number | null; calls: string[]; dir: string } {
  const dir = folder(t)
  const log = join(dir, 'calls')
  const digest = (digit: string) => `sha256:${digit.repeat(64)}`
  const programs: Record<string, string> = {
    npm: `case "$*" in *release:check*) exit ${checks};; *sbom*) echo '{}';; pack*) echo x > "$4/sluice-${version}.tgz";; esac`,
    helm: `case "$1" in package) echo x > "$4/sluice-${version}.tgz";; push) echo 'Digest: ${digest('c')}';; esac`,
    docker: `while [ $# -gt 0 ]; do if [ "$1" = --metadata-file ]; then echo '{ "containerimage.digest": "${digest('1')}" }' > "$2"; fi; shift; done`,
    cosign: ':',
  }
  for (const [name, body] of Object.entries(programs)) {
    writeFileSync(join(dir, name), `#!/bin/sh\necho "${name} $*" >> '${log}'\n${body}\n`)
    chmodSync(join(dir, name), 0o755)
  }
  const { status, stderr } = spawnSync(
    'sh',
    [join(ROOT, 'deploy/release.sh'), ...args.map(arg => arg.replace('DIR', dir))],
    {
      env: { PATH: `${dir}:${process.env['PATH']}` },
      encoding: 'utf8',
    },
  )
  if (status !== 0 && checks === 0) assert.fail(stderr)
  const calls = existsSync(log) ? readFileSync(log, 'utf8').trim().split('\n') : []
  return { status, dir, calls: calls.map(call => call.replaceAll(dir, 'DIR')) }
}

test('release.sh build makes package, bill and chart, and writes down their digests', t => {
  const { dir } = release(t, ['build', 'DIR/out'], 0)
  const sums = readFileSync(join(dir, 'out/SHA256SUMS'), 'utf8')
  assert.deepEqual(
    Array.from(sums.matchAll(/^[0-9a-f]{64} {2}(.*)$/gm), ([, name]) => name),
    [
      `sluice-${version}.tgz`,
      `./sluice-${version}.cdx.json`,
      `./sluice-console-${version}.cdx.json`,
      `chart/sluice-${version}.tgz`,
    ],
  )
})

test('release.sh publish signs image and chart by their digests, and publishes on npm last; nothing before the check', t => {
  const { calls } = release(t, ['publish', 'DIR', 'registry.example/acme/sluice'], 0)
  const kinds = calls.map(call => call.split(' ').slice(0, 2).join(' '))
  assert.deepEqual(kinds, [
    'npm run',
    'cosign sign-blob',
    'docker buildx',
    'cosign sign',
    'cosign attest',
    'docker buildx',
    'cosign sign',
    'cosign attest',
    'helm push',
    'cosign sign',
    'npm publish',
  ])
  const digest = `sha256:${'1'.repeat(64)}`
  for (const [at, name] of [
    [2, 'sluice'],
    [5, 'sluice-console'],
  ] as const) {
    const image = `registry.example/acme/${name}`
    assert.ok(calls[at]!.includes(` --tag ${image}:${version} `))
    assert.equal(/ --target (\S+)/.exec(calls[at]!)?.[1], name === 'sluice' ? undefined : 'console')
    assert.equal(calls[at + 1], `cosign sign --yes ${image}@${digest}`)
    const bill = `DIR/${name}-${version}.cdx.json`
    assert.equal(calls[at + 2], `cosign attest --yes --type cyclonedx --predicate ${bill} ${image}@${digest}`)
  }
  assert.equal(calls[9], `cosign sign --yes registry.example/acme/charts/sluice@sha256:${'c'.repeat(64)}`)

  const refused = release(t, ['publish', 'DIR', 'registry.example/acme/sluice'], 1)
  assert.notEqual(refused.status, 0)
  assert.deepEqual(refused.calls, [`npm run --silent release:check -- v${version}`])
})

test('the workflow: shell that parses, scripts that are there, no foreign code with its rights, no text of others in a shell', t => {
  const { permissions, jobs } = parse(read('.github/workflows/release.yml'))
  assert.deepEqual(permissions, {}, 'each job names what it needs')
  const file = join(folder(t), 'step.sh')
  const whole: string[] = []
  for (const [name, job] of Object.entries<any>(jobs)) {
    assert.ok(job['timeout-minutes'], name)
    assert.equal(job.permissions['id-token'], name === 'publish' ? 'write' : undefined, 'only what publishes can sign')
    for (const { uses, run: script } of job.steps) {
      if (uses !== undefined) assert.match(uses, /@[0-9a-f]{40}$/, 'an action is pinned by its commit')
      // What GitHub puts into a script is not quoted: it stands in env.
      assert.ok(!script.includes('${' + '{'), script)
      writeFileSync(file, script)
      const parsed = spawnSync('bash', ['-n', file], { encoding: 'utf8' })
      assert.equal(parsed.status, 0, parsed.stderr)
      whole.push(script)
    }
  }
  const text = whole.join('\n')
  for (const [, script] of text.matchAll(/npm run (?:--silent )?([\w:-]+)/g)) assert.ok(scripts[script!], script)
  for (const [path] of text.matchAll(/\b(?:deploy\/[\w.-]+\.sh|\.ci\/run)\b/g))
    assert.ok(existsSync(join(ROOT, path)), path)
  assert.equal(jobs.publish.needs, 'test')
  assert.match(text, /release\.sh publish .*"\$IMAGE"/)
})

/** A release was tested without Redis, proxies and promtool: tests that need them were skipped, and nothing said so. */
test('the workflow tests with all packages, and fails where one is missing', () => {
  const { steps, env } = parse(read('.github/workflows/release.yml')).jobs.test
  const scripts: string[] = steps.map(({ run }: { run: string }) => run)
  const at = scripts.findIndex(script => script.includes('apt-get install'))
  assert.ok(at >= 0 && at < scripts.indexOf('.ci/run'), 'they are installed before the tests')
  const words = scripts[at]!.split(/\s+/)
  // The machines of GitHub have Google's build of it.
  assert.deepEqual(
    Object.keys(PACKAGES).filter(name => !words.includes(name)),
    ['chromium-headless-shell'],
  )
  assert.equal(env['SLUICE_REQUIRE_PACKAGES'], '1')
  assert.throws(() => lack('promtool missing', true), /promtool missing.*SLUICE_REQUIRE_PACKAGES/)
})
