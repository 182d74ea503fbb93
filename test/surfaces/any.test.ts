/** Which API a request is of, on a path that takes each of them. Through a gateway: test/plugins/quote.test.ts. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { any } from '../../surfaces/any/index.ts'

const told = (members: string[], headers: Record<string, string> = {}) => {
  for (const member of members) assert.ok(any.told!.members.includes(member), member)
  return any
    .told!.by(new Map(Object.entries(headers)), new Set(members))
    .map(({ name }) => name)
    .join()
}

test('headers of Messages say so, then the body does', () => {
  for (const name of ['anthropic-version', 'x-api-key']) {
    assert.equal(told(['messages'], { [name]: 'x' }), 'messages')
    assert.equal(told(['input'], { [name]: 'x' }), 'messages')
    assert.equal(told([], { [name]: 'x' }), 'messages')
  }
  assert.equal(told(['messages'], { authorization: 'Bearer x' }), 'chat,messages')
  assert.equal(told(['messages', 'input']), 'chat,messages')
  for (const own of ['stop_sequences', 'thinking', 'top_k', 'mcp_servers'])
    assert.equal(told(['messages', own]), 'messages', own)
  assert.equal(told(['input']), 'responses')
  assert.equal(told([]), 'chat')
  // Chat Completions takes it, too, and so it does not tell.
  for (const both of ['system', 'max_tokens', 'tools', 'model']) assert.ok(!any.told!.members.includes(both), both)
})

test('nothing is read of a request before it is told', () => {
  assert.throws(() => any.validate({}, 'reject'), /has to tell/)
  assert.throws(() => any.parse({}), /has to tell/)
  assert.throws(() => any.encoder({} as never), /has to tell/)
})
