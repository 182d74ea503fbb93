/** The items that are made again from the turns of a Responses input. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { responses } from '../../surfaces/responses/index.ts'
import { type InputItem, inputItems } from '../../surfaces/responses/input-items.ts'

const EVERY_INCLUDE = new Set([
  'message.input_image.image_url',
  'web_search_call.action.sources',
  'reasoning.encrypted_content',
])
const parsed = (input: unknown) => responses.parse({ model: 'm', input })
const itemsOf = (input: unknown, include: ReadonlySet<string> = EVERY_INCLUDE): InputItem[] => {
  const { system, turns } = parsed(input)
  return inputItems('resp_1', system, turns, include)
}
/** Paths tell where in a body a part stood, so they differ. */
const plain = (input: unknown) => {
  const { system, turns } = parsed(input)
  return JSON.parse(JSON.stringify({ system, turns }, (name, value) => (name === 'path' ? undefined : value)))
}

const GREETING = Buffer.from('grüße').toString('base64')
const INPUTS: [what: string, input: unknown][] = [
  ['a text', 'hello'],
  [
    'messages of every role',
    [
      { role: 'system', content: 'a' },
      { role: 'developer', content: 'b' },
      { role: 'user', content: 'c' },
      { role: 'developer', content: 'd' },
      { role: 'user', content: [{ type: 'input_text', text: 'e' }] },
      {
        role: 'assistant',
        content: [
          { type: 'output_text', text: 'f' },
          { type: 'refusal', refusal: 'g' },
        ],
      },
      { role: 'user', content: 'h' },
    ],
  ],
  [
    'images and files',
    [
      {
        role: 'user',
        content: [
          { type: 'input_image', image_url: 'https://e.x/a.png', detail: 'auto' },
          { type: 'input_image', image_url: 'data:image/png;base64,iVBORw0KGgo=', detail: 'high' },
          { type: 'input_file', file_url: 'https://e.x/a.pdf' },
          { type: 'input_file', file_data: 'data:application/pdf;base64,JVBERi0=', filename: 'a.pdf' },
          { type: 'input_file', file_data: `data:text/plain;base64,${GREETING}`, filename: 'a.txt' },
        ],
      },
    ],
  ],
  [
    'reasoning, calls, results and searches between texts',
    [
      { role: 'user', content: 'a' },
      { type: 'reasoning', id: 'item_eba1_r', summary: [{ type: 'summary_text', text: 's' }] },
      { role: 'assistant', content: 'b' },
      { type: 'function_call', call_id: 'c1', name: 'f', arguments: '{"a":1}', namespace: 'n' },
      { type: 'custom_tool_call', call_id: 'c2', name: 'g', input: 'raw' },
      { type: 'function_call_output', call_id: 'c1', output: 'done' },
      {
        type: 'custom_tool_call_output',
        call_id: 'c2',
        output: [
          { type: 'input_text', text: 'x' },
          { type: 'input_image', image_url: 'https://e.x/a.png', detail: 'auto' },
        ],
      },
      {
        type: 'web_search_call',
        id: 'item_eba1_s',
        action: { type: 'search', query: 'q', sources: [{ type: 'url', url: 'https://e.x/' }] },
      },
      { role: 'assistant', content: 'c' },
    ],
  ],
]
for (const [what, input] of INPUTS) {
  test(`[RESP-7] ${what}: its items, sent as input, are the same conversation`, () => {
    const items = itemsOf(input)
    responses.validate({ model: 'm', input: items }, 'reject')
    assert.deepEqual(plain(items), plain(input))
    assert.equal(new Set(items.map(({ id }) => id)).size, items.length)
    assert.deepEqual(itemsOf(input), items, 'the same ids each time')
  })
}

test('[RESP-7] what include does not name is left out', () => {
  const items = itemsOf(INPUTS.at(-1)![1], new Set())
  const text = JSON.stringify(items)
  for (const member of ['encrypted_content', 'sources', 'e.x/a.png']) assert.ok(!text.includes(member), member)
})

test('[RESP-7] an id that a client sent twice stands once, so that pages end', () => {
  const reasoning = { type: 'reasoning', id: 'rs_1', summary: [{ type: 'summary_text', text: 's' }] }
  const ids = itemsOf([reasoning, { role: 'user', content: 'a' }, reasoning]).map(({ id }) => id)
  assert.equal(ids[0], 'rs_1')
  assert.equal(new Set(ids).size, 3)
})
