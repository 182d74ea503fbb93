/** Traffic for the dashboard's tests: every route, several models, a share of refusals and failures. */
import type { TestGateway } from '../e2e/harness.ts'
import { timersOf } from '../eventually.ts'

const MODELS = ['eb1-preview', 'eb1-efficient-preview', 'eb1-fast-preview', 'eb1-frontier-preview']

/** The i-th request; a tenth are refused or fail. */
export async function request(g: TestGateway, i: number): Promise<void> {
  const model = MODELS[i % 4]
  const say = (content: string) => [{ role: 'user', content }]
  const answer =
    i % 10 === 4
      ? g.post('/v1/chat/completions', { model: 'gpt-9', messages: say('x') })
      : i % 20 === 7
        ? g.post('/v1/chat/completions', { model, messages: say('[[sim: status 500]] x') })
        : i % 3 === 0
          ? g.post('/v1/chat/completions', {
              model,
              stream: true,
              messages: say(`[[sim: tokens ${20 + (i % 40)}; pace 4ms]] x`),
            })
          : i % 3 === 1
            ? g.post('/v1/messages', { model, max_tokens: 200, messages: say(`hello ${'word '.repeat(i % 120)}`) })
            : g.post('/v1/responses', { model, stream: i % 2 === 0, input: `[[sim: tokens 30; delay ${i % 50}ms]] x` })
  await (await answer).text()
}

/** Requests one after the other in `lanes` lanes until stopped. */
export function traffic(g: TestGateway, lanes: number, pauseMs: number): { stop(): Promise<void> } {
  let on = true
  let next = 0
  const lane = async () => {
    while (on) {
      await request(g, next++)
      await timersOf(pauseMs)
    }
  }
  const running = Array.from({ length: lanes }, lane)
  return {
    async stop() {
      on = false
      await Promise.all(running)
    },
  }
}

export const LIMITS = `    limits: { requests_per_minute: 6000, tokens_per_minute: 200000, tokens_per_day: 5000000, concurrent_requests: 40, daily_spend_usd: 2.00, monthly_spend_usd: 30.00 }
    model_limits: { eb1-preview: { tokens_per_minute: 60000 } }`
