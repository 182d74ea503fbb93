/** Reads the replies of the three APIs, whole and as streams. */
import assert from 'node:assert/strict'

/** What was said: a text, and calls as `name(arguments)`. */
export interface Said {
  text: string
  calls: string[]
}
/** A call as a text. */
export const called = (name: string, json: string) => `${name}(${JSON.stringify(JSON.parse(json))})`

export interface ReplyForm {
  /** A whole body. */
  read(body: any): Said
  /** The events of a stream. @throws AssertionError where it has no end */
  join(events: readonly any[]): Said
}

const chat: ReplyForm = {
  read({ choices: [{ message, finish_reason: finish }] }) {
    assert.ok(finish)
    const calls = (message.tool_calls ?? []).map(({ function: f }: any) => called(f.name, f.arguments))
    return { text: message.content ?? '', calls }
  },
  join(events) {
    const choices = events.flatMap(event => event.choices)
    assert.ok(
      choices.some(choice => choice.finish_reason),
      'the stream has no finish_reason',
    )
    const calls: { name: string; arguments: string }[] = []
    for (const { index, function: part } of choices.flatMap(choice => choice.delta.tool_calls ?? [])) {
      const call = (calls[index] ??= { name: part.name, arguments: '' })
      call.arguments += part.arguments ?? ''
    }
    return {
      text: choices.map(choice => choice.delta.content ?? '').join(''),
      calls: calls.map(call => called(call.name, call.arguments)),
    }
  },
}

const responses: ReplyForm = {
  read({ status, output }) {
    assert.match(status, /^(completed|incomplete)$/)
    const messages = output.filter((item: any) => item.type === 'message').flatMap((item: any) => item.content)
    const calls = output.filter((item: any) => item.type === 'function_call')
    return {
      text: messages.map((part: any) => part.text).join(''),
      calls: calls.map((call: any) => called(call.name, call.arguments)),
    }
  },
  join(events) {
    const last = events.at(-1)
    assert.match(last.type, /^response\.(completed|incomplete)$/)
    const said = responses.read(last.response)
    const texts = events.filter(({ type }) => type === 'response.output_text.delta').map(({ delta }) => delta)
    assert.equal(texts.join(''), said.text)
    return said
  },
}

const messages: ReplyForm = {
  read({ stop_reason: stop, content }) {
    assert.ok(stop)
    const calls = content.filter((block: any) => block.type === 'tool_use')
    return {
      text: content.map((block: any) => block.text ?? '').join(''),
      calls: calls.map((call: any) => called(call.name, JSON.stringify(call.input))),
    }
  },
  join(events) {
    assert.equal(events.at(-1).type, 'message_stop')
    const blocks: any[] = []
    for (const { type, index, content_block: block, delta } of events) {
      if (type === 'content_block_start') blocks[index] = { ...block, text: '', json: '' }
      if (type === 'content_block_delta') {
        blocks[index].text += delta.text ?? ''
        blocks[index].json += delta.partial_json ?? ''
      }
    }
    return {
      text: blocks.map(block => block.text).join(''),
      calls: blocks.filter(block => block.type === 'tool_use').map(block => called(block.name, block.json)),
    }
  },
}

export const REPLIES = { chat, responses, messages }

/** The events of a stream. */
export const eventsOf = (text: string): any[] =>
  [...text.matchAll(/^data: (\{.*)$/gm)].map(([, data]) => JSON.parse(data!))
