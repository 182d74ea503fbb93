/**
 * Three surfaces × four dialects, buffered and streamed, from the official clients: a conversation of two turns with an
 * image, reasoning, parallel calls and several rounds. The Vercel AI SDK does the same in ai-sdk.test.ts.
 */
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { bodyOf, DIALECTS, type DialectName, PATHS, PNG, SURFACES } from './conversations.ts'
import { startGateway, type TestGateway } from './harness.ts'

let t: TestGateway
before(async () => {
  t = await startGateway()
})
after(() => t.close())

/** Two calls at once, then a third, then an answer; with reasoning. */
const ASK =
  '[[sim: reason 2; call get_weather {"city":"Oslo"}; call get_weather {"city":"Lima"}; next call get_weather {"city":"Rome"}]] Is it cold, and what is this?'
const AGAIN = '[[sim: call get_weather {"city":"Bergen"}]] and Bergen?'
const schema = {
  type: 'object' as const,
  properties: { city: { type: 'string' } },
  required: ['city'],
  additionalProperties: false,
}

/** One reply, in no surface's words. */
interface Said {
  calls: { id: string; city: string }[]
  text: string
  /** Summary of the reasoning; null where the surface has no member for it. */
  reasoning: string | null
  reasoningTokens: number | undefined
}
/** A conversation by an official client, as its users hold it. */
interface Talk {
  user(text: string, image?: string): Promise<Said>
  results(outputs: { id: string; output: string }[]): Promise<Said>
}
type Talker = (model: string, stream: boolean) => Talk

const chat: Talker = (model, stream) => {
  const messages: any[] = []
  const tools = [{ type: 'function' as const, function: { name: 'get_weather', parameters: schema } }]
  const send = async (): Promise<Said> => {
    const body = { model, messages, tools, reasoning_effort: 'high' as const }
    const { completions } = t.openai().chat
    const reply = stream
      ? await completions.stream({ ...body, stream_options: { include_usage: true } }).finalChatCompletion()
      : await completions.create(body)
    const { message, finish_reason } = reply.choices[0]!
    const calls = (message.tool_calls ?? []) as any[]
    assert.equal(finish_reason, calls.length > 0 ? 'tool_calls' : 'stop')
    messages.push(message)
    return {
      calls: calls.map(call => ({ id: call.id, city: JSON.parse(call.function.arguments).city })),
      text: message.content ?? '',
      reasoning: null,
      reasoningTokens: reply.usage!.completion_tokens_details!.reasoning_tokens,
    }
  }
  return {
    user(text, image) {
      const url = `data:image/png;base64,${image}`
      const parts = [{ type: 'text', text }, ...(image ? [{ type: 'image_url', image_url: { url } }] : [])]
      messages.push({ role: 'user', content: parts })
      return send()
    },
    results(outputs) {
      for (const { id, output } of outputs) messages.push({ role: 'tool', tool_call_id: id, content: output })
      return send()
    },
  }
}

/** @param store true: goes on by `previous_response_id`; false: replays what came, with the handles of its reasoning */
const responses =
  (store: boolean): Talker =>
  (model, stream) => {
    const history: any[] = []
    let previous: string | undefined
    const tools = [{ type: 'function' as const, name: 'get_weather', parameters: schema, strict: true }]
    const send = async (items: any[]): Promise<Said> => {
      history.push(...items)
      const body: any = {
        model,
        tools,
        store,
        reasoning: { effort: 'high', summary: 'auto' },
        ...(store
          ? { input: items, ...(previous !== undefined && { previous_response_id: previous }) }
          : { input: history, include: ['reasoning.encrypted_content'] }),
      }
      const client = t.openai().responses
      const reply: any = stream ? await client.stream(body).finalResponse() : await client.parse(body)
      assert.equal(reply.status, 'completed')
      assert.equal(reply.previous_response_id, store ? (previous ?? null) : null)
      previous = reply.id
      history.push(...reply.output)
      const of = (type: string): any[] => reply.output.filter((item: any) => item.type === type)
      assert.ok(reply.output.every((item: any) => item.id.startsWith('item_eba1_')))
      return {
        calls: of('function_call').map(({ call_id, arguments: args, parsed_arguments }) => {
          assert.deepEqual(parsed_arguments, JSON.parse(args), 'the client parses strict calls')
          return { id: call_id, city: parsed_arguments.city }
        }),
        text: reply.output_text,
        reasoning: of('reasoning')
          .flatMap(item => item.summary.map((part: any) => part.text))
          .join(''),
        reasoningTokens: reply.usage.output_tokens_details.reasoning_tokens,
      }
    }
    return {
      user(text, image) {
        const url = `data:image/png;base64,${image}`
        const parts = image ? [{ type: 'input_image', image_url: url, detail: 'auto' }] : []
        return send([{ role: 'user', content: [{ type: 'input_text', text }, ...parts] }])
      },
      results: outputs =>
        send(outputs.map(({ id, output }) => ({ type: 'function_call_output', call_id: id, output }))),
    }
  }

const messages: Talker = (model, stream) => {
  const turns: any[] = []
  const tools = [{ name: 'get_weather', input_schema: schema }]
  const send = async (): Promise<Said> => {
    const body: any = { model, max_tokens: 9000, messages: turns, tools, thinking: { type: 'adaptive' } }
    body.output_config = { effort: 'high' }
    const client = t.anthropic().messages
    const reply: any = stream ? await client.stream(body).finalMessage() : await client.create(body)
    const of = (type: string): any[] => reply.content.filter((block: any) => block.type === type)
    const uses = of('tool_use')
    assert.equal(reply.stop_reason, uses.length > 0 ? 'tool_use' : 'end_turn')
    assert.ok(of('thinking').every(block => block.signature === ''))
    turns.push({ role: 'assistant', content: reply.content })
    return {
      calls: uses.map(use => ({ id: use.id, city: use.input.city })),
      text: of('text')
        .map(block => block.text)
        .join(''),
      reasoning: of('thinking')
        .map(block => block.thinking)
        .join(''),
      reasoningTokens: reply.usage.output_tokens_details.thinking_tokens,
    }
  }
  return {
    user(text, image) {
      const source = { type: 'base64', media_type: 'image/png', data: image }
      turns.push({ role: 'user', content: [{ type: 'text', text }, ...(image ? [{ type: 'image', source }] : [])] })
      return send()
    },
    results(outputs) {
      const content = outputs.map(({ id, output }) => ({ type: 'tool_result', tool_use_id: id, content: output }))
      turns.push({ role: 'user', content })
      return send()
    },
  }
}

const TALKERS: [title: string, Talker][] = [
  ['[CHAT-1] chat', chat],
  ['[RESP-1] [RESP-2] responses, by previous_response_id', responses(true)],
  ['[RESP-1] [RESP-3] responses, replayed', responses(false)],
  ['[MSG-1] [MSG-6] messages', messages],
]

for (const [dialect, model] of Object.entries(DIALECTS) as [DialectName, string][]) {
  for (const stream of [false, true]) {
    describe(`${dialect} ${stream ? 'streamed' : 'buffered'}`, () => {
      for (const [title, talker] of TALKERS) {
        test(`[GEN-1] [TOOL-1] [TOOL-6] [METER-4] ${title}: an image, reasoning, parallel calls, rounds, a second turn`, async () => {
          const started = t.simulator.requests.length
          const talk = talker(model, stream)
          const answer = ({ calls }: Said): Promise<Said> =>
            talk.results(calls.map(({ id, city }) => ({ id, output: `cold in ${city}` })))
          const first = await talk.user(ASK, PNG)
          const second = await answer(first)
          const third = await answer(second)
          const fourth = await talk.user(AGAIN)
          const last = await answer(fourth)
          assert.deepEqual(
            [first, second, third, fourth, last].map(said => said.calls.map(call => call.city)),
            [['Oslo', 'Lima'], ['Rome'], [], ['Bergen'], []],
          )
          const ids = [first, second, fourth].flatMap(said => said.calls.map(call => call.id))
          assert.ok(ids.every(id => /^call_eba1_/.test(id)))
          assert.equal(new Set(ids).size, 4)
          assert.match(third.text, /cold in Rome/)
          assert.match(third.text, /1 image \(image\/png\)/)
          assert.match(last.text, /cold in Bergen/)
          if (first.reasoning !== null) assert.match(first.reasoning, /weighing what it asks/)
          assert.ok(first.reasoningTokens! > 0)

          // The upstream got its own ids, and what it signed.
          const sent = t.simulator.requests.slice(started)
          assert.equal(sent.length, 5)
          assert.ok(sent.every(request => request.dialect === dialect && !request.body.includes('_eba1_')))
          const back = sent[1]!.body
          if (dialect === 'openai-responses') assert.match(back, /"encrypted_content":"gAAAAA/)
          if (dialect === 'anthropic-messages') assert.match(back, /"type":"thinking".*"signature":"[^"]+"/)
          if (dialect === 'gemini') assert.doesNotMatch(back, /skip_thought_signature_validator/)
        })
      }
    })
  }

  test(`[CHAT-3] [METER-1] [METER-3] ${dialect}: one prompt count for one image on every surface`, async () => {
    const counts = []
    for (const surface of SURFACES) {
      const reply: any = await (
        await t.post(PATHS[surface], bodyOf(surface, model, [{ user: 'what is this?', image: true }]))
      ).json()
      assert.match(JSON.stringify(reply), /1 image/)
      const { usage } = reply
      counts.push(
        usage.prompt_tokens ??
          usage.input_tokens + (usage.cache_read_input_tokens ?? 0) + (usage.cache_creation_input_tokens ?? 0),
      )
    }
    assert.equal(new Set(counts).size, 1, `${counts}`)
    assert.ok(counts[0] >= 85)
  })
}
