/** The request fixtures of every dialect. */
import { test } from 'node:test'
import type { Dialect } from '../../core/ports/dialect.ts'
import {
  type BackendInit,
  backendOf,
  type ConversationInit,
  contextOf,
  conversationOf,
  goldens,
} from './dialect-kit.ts'

/** Fixtures in `golden/<dialect>/requests`: conversation and backend, the HTTP request. */
export function testRequests(dialect: Dialect): void {
  for (const golden of goldens(`${dialect.name}/requests`)) {
    test(`${dialect.name} request ${golden.name.replace('.txt', '')}`, () => {
      const setup = JSON.parse(golden.sections[0]!) as {
        conversation: ConversationInit
        backend: BackendInit
        stream: boolean
      }
      const conversation = conversationOf(setup.conversation)
      const request = dialect.request(conversation, backendOf(dialect, setup.backend), contextOf(setup.stream))
      const headers = Object.entries(request.headers).map(([name, value]) => `${name}: ${value}`)
      golden.expect(
        [`${request.method} ${request.path}`, ...headers, '', JSON.stringify(JSON.parse(request.body), null, 1)].join(
          '\n',
        ),
      )
    })
  }
}
