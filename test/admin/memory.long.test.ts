/**
 * A page that stays open holds what it needs and no more: hours of snapshots, pushed as fast as the page takes them.
 */
import assert from 'node:assert/strict'
import { createServer, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { after, before, test } from 'node:test'
import type { Browser } from 'playwright-core'
import { dashboardPages } from '../../admin/pages.ts'
import { startGateway } from '../e2e/harness.ts'
import { launch, open, skip } from './browser.ts'
import { LIMITS, request } from './load.ts'

let browser: Browser
let server: Server
let feed: ServerResponse | undefined
let sample: any

before(async () => {
  if (skip) return
  // A real snapshot to begin with.
  const g = await startGateway({ organization: LIMITS })
  for (let i = 0; i < 12; i++) await request(g, i)
  const reply = await fetch(`${g.gateway.adminAddress}/feed`)
  const reader = reply.body!.pipeThrough(new TextDecoderStream()).getReader()
  let text = ''
  while (!text.includes('\n\n')) text += (await reader.read()).value
  await reader.cancel()
  sample = JSON.parse(text.slice('data: '.length, text.indexOf('\n\n')))
  await g.close()

  const pages = dashboardPages()
  server = createServer((request, response) => {
    const page = pages.get(request.url!)
    if (page) return void response.writeHead(200, { 'content-type': page.type }).end(page.body)
    if (request.url!.startsWith('/history')) return void response.writeHead(200, { 'x-series': '' }).end()
    if (request.url !== '/feed') return void response.writeHead(404).end()
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    response.flushHeaders()
    feed = response
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  browser = await launch()
})
after(async () => {
  await browser?.close()
  server?.closeAllConnections()
  server?.close()
})

let second = 0
let seq = 1000
/**
 * So many seconds of a busy gateway: new exchanges in each, with timelines, changing figures, and reloads now and then.
 */
async function push(seconds: number): Promise<void> {
  for (let i = 0; i < seconds; i++) {
    second++
    const recent = sample.recent.map((exchange: any) => ({
      ...exchange,
      seq: ++seq,
      id: `req_${seq}`,
      at: sample.at + second * 1000,
    }))
    const live = {
      ...sample.live,
      ok: second % 700,
      input: (second * 37) % 9000,
      ttfb: { p50: second % 30, p99: second % 300 },
    }
    const snapshot = {
      ...sample,
      at: sample.at + second * 1000,
      live,
      recent,
      config: { ...sample.config, generation: Math.floor(second / 600) },
    }
    if (!feed!.write(`data: ${JSON.stringify(snapshot)}\n\n`))
      await new Promise(resolve => feed!.once('drain', resolve))
  }
}

test('hours of the feed grow neither the heap nor the document', { skip }, async () => {
  const address = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`
  const { page, complaints, close } = await open(browser, address)
  const devtools = await page.context().newCDPSession(page)
  await devtools.send('Performance.enable')
  const measure = async () => {
    // The page has drawn the last snapshot when its newest exchange stands in the first row; then what nobody holds is
    // dropped.
    await page.locator('#connection', { hasText: 'live' }).waitFor()
    await page.waitForFunction(
      `document.querySelector('#configuration')?.textContent.includes('generation${Math.floor(second / 600)}')`,
    )
    await devtools.send('HeapProfiler.enable')
    await devtools.send('HeapProfiler.collectGarbage')
    const { metrics } = await devtools.send('Performance.getMetrics')
    const of = (name: string) => metrics.find(metric => metric.name === name)!.value
    return { heap: of('JSHeapUsedSize'), nodes: of('Nodes'), listeners: of('JSEventListeners') }
  }
  await page.locator('#connection', { hasText: 'live' }).waitFor()
  await push(600)
  const tenMinutes = await measure()
  await push(3600)
  const hour = await measure()
  await push(3600)
  const hours = await measure()
  assert.equal(await page.locator('#exchanges-table tbody tr').count(), 100)
  const grown = `${JSON.stringify([tenMinutes, hour, hours])}`
  assert.ok(hour.heap - tenMinutes.heap < 1.5e6, grown)
  assert.ok(hours.heap - hour.heap < 1e6, grown)
  assert.ok(hours.nodes - tenMinutes.nodes < 1000, grown)
  assert.ok(hours.listeners - tenMinutes.listeners < 200, grown)
  assert.deepEqual(complaints, [])
  await close()
})
