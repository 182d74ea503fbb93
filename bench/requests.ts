/**
 * The requests of a load, as raw bytes. Prompts are English sentences in a seeded random order, with a counter, so that
 * no two requests of a run have the same text. Load programs read them from files, so that making them takes no time
 * during a measurement.
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { generator } from '../test/random.ts'
import { AgentRequests } from './agents.ts'
import { corpora } from './meter-corpora.ts'

export type SurfaceName = 'chat' | 'responses' | 'messages'

/** Where a request goes: a surface, and a model, which selects the backend. */
export interface Route {
  /** `messages → openai-chat`, or the surface's name when nothing is translated. */
  name: string
  surface: SurfaceName
  model: string
  /**
   * Turns of agents' conversations instead of single prompts (agents.ts). `continued`: each names the response before
   * it, instead of repeating the history.
   */
  agents?: 'whole' | 'continued'
}

export const PATHS: Record<SurfaceName, string> = {
  chat: '/v1/chat/completions',
  messages: '/v1/messages',
  responses: '/v1/responses',
}

export const chat: Route = { name: 'chat', surface: 'chat', model: 'bench-chat' }
export const messages: Route = { name: 'messages', surface: 'messages', model: 'bench-messages' }
export const responses: Route = { name: 'responses', surface: 'responses', model: 'bench-responses' }
export const chatOnResponses: Route = { name: 'chat → openai-responses', surface: 'chat', model: 'bench-responses' }
export const messagesOnChat: Route = { name: 'messages → openai-chat', surface: 'messages', model: 'bench-chat' }
export const responsesOnMessages: Route = {
  name: 'responses → anthropic-messages',
  surface: 'responses',
  model: 'bench-messages',
}

/** The routes of agents' conversations. The model selects the length of the streams. */
const agentRoute = (route: Route): Route => ({
  ...route,
  name: `agents: ${route.name}`,
  model: route.model.replace('bench', 'agents'),
  agents: 'whole',
})
export const agentRoutes: Record<string, Route> = {
  'agents-chat': agentRoute(chat),
  'agents-messages-chat': agentRoute(messagesOnChat),
  'agents-messages': agentRoute(messages),
  'agents-responses': agentRoute(responses),
  'agents-continued': {
    ...agentRoute(responses),
    name: 'agents: responses, previous_response_id',
    agents: 'continued',
  },
}

/** The routes, by names that need no quotes in a shell. */
export const routes: Record<string, Route> = {
  chat,
  messages,
  responses,
  'chat-responses': chatOnResponses,
  'messages-chat': messagesOnChat,
  'responses-messages': responsesOnMessages,
}

const PLACE = '@@@@@@@@'
const DIGITS = PLACE.length

/**
 * The body of a request with the text `prompt`. Its cap on output tokens is so low that a provider ends its reply
 * before the idle timeout of any proxy. So the gateway can send a buffered request upstream as a buffered one.
 */
function bodyOf(route: Route, stream: boolean, prompt: string): object {
  const streaming = stream ? { stream: true } : {}
  const turns = [{ role: 'user', content: prompt }]
  switch (route.surface) {
    case 'chat':
      return {
        model: route.model,
        ...streaming,
        ...(stream && { stream_options: { include_usage: true } }),
        max_tokens: 512,
        messages: turns,
      }
    case 'messages':
      return { model: route.model, ...streaming, max_tokens: 512, messages: turns }
    case 'responses':
      return { model: route.model, ...streaming, max_output_tokens: 512, store: false, input: prompt }
  }
}

export function headOf(route: Route, length: number, headers: Record<string, string>): string {
  const all = {
    host: '127.0.0.1',
    authorization: `Bearer ${KEY}`,
    'content-type': 'application/json',
    ...(route.surface === 'messages' && { 'anthropic-version': '2023-06-01' }),
    ...headers,
    'content-length': String(length),
  }
  const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`)
  return `POST ${PATHS[route.surface]} HTTP/1.1\r\n${lines.join('')}\r\n`
}

export const KEY = 'sk-bench-0001'

let kept: string[] | undefined
/** Sentences of plain ASCII, so that bytes are characters. */
export function sentences(): string[] {
  if (kept) return kept
  const [english] = corpora()
  kept = []
  try {
    for (;;) kept.push(english!.next(60))
  } catch {
    // The corpus has no more text.
  }
  return (kept = kept.filter(text => !/[^\n\x20-\x7e]/.test(text)))
}

/** A file has this many different requests. The counter makes each use of one different. */
const REQUESTS = 4096
/** The length of a short prompt. */
const PROMPT_BYTES = 1024

/** What differs between the requests of one file. */
export interface Variant {
  route: Route
  stream?: boolean
  headers?: Record<string, string>
  /** Further members of the body. */
  members?: object
}

/** Writes a file of short requests that differ only in their prompts. */
export function writeRequests(file: string, route: Route, stream: boolean, headers: Record<string, string> = {}): void {
  const variant = { route, stream, headers }
  writeVariants(file, REQUESTS, () => variant)
}

/**
 * Writes a file of short requests. Each has a line `LENGTH LENGTH`, then the bytes before and after the counter.
 * `load/wrk.lua` reads this file too.
 * @param of what the request with this number is like
 */
export function writeVariants(file: string, count: number, of: (i: number) => Variant): void {
  const random = generator(1)
  const all = sentences()
  const parts: string[] = []
  for (let i = 0; i < count; i++) {
    const { route, stream = false, headers = {}, members } = of(i)
    let text = ''
    while (text.length < PROMPT_BYTES) text += all[random(all.length)]!
    const prompt = `${PLACE} ${text.slice(0, PROMPT_BYTES - DIGITS - 1)}`
    const body = JSON.stringify({ ...bodyOf(route, stream, prompt), ...members })
    const [before, after] = body.split(PLACE) as [string, string]
    const pre = headOf(route, body.length, headers) + before
    parts.push(`${pre.length} ${after.length}\n`, pre, after)
  }
  writeFileSync(file, parts.join(''), 'latin1')
}

/** Writes a file of prose, as the content of a JSON string. `LongRequests` makes prompts of it. */
export function writeLongText(file: string, bytes: number): void {
  const random = generator(2)
  const all = sentences().map(text => JSON.stringify(text).slice(1, -1))
  const parts: string[] = []
  for (let size = 0; size < bytes; ) {
    const text = all[random(all.length)]!
    parts.push(text)
    size += text.length
  }
  writeFileSync(file, parts.join(''), 'latin1')
}

export interface RequestSource {
  /** The next request, as pieces that must be written one after the other. */
  next(): Buffer[]
  /** Gets the content of answers, for a source of one connection. The buffer is valid only during the call. */
  hear?(content: Buffer): void
}

/** What a load program sends, as a part of its job. */
export type RequestSpec =
  | { kind: 'short'; file: string }
  | { kind: 'long'; file: string; bytes: number; route: Route; headers: Record<string, string>; seed: number }
  /** Each connection has a source of its own. */
  | { kind: 'agents'; route: Route; headers: Record<string, string> }

export function openRequests(spec: RequestSpec): RequestSource {
  switch (spec.kind) {
    case 'short':
      return new ShortRequests(spec.file)
    case 'long':
      return new LongRequests(spec)
    case 'agents':
      return new AgentRequests(spec.route, spec.headers)
  }
}

/** The first counter. It differs between programs and rounds, so that two of them do not send the same text. */
const firstCounter = () => (process.pid * 7919 + Math.floor(Math.random() * 1e6)) % 10 ** DIGITS

class ShortRequests implements RequestSource {
  readonly #requests: { bytes: Buffer; counter: number }[] = []
  #next = 0
  #counter = firstCounter()

  constructor(file: string) {
    const data = readFileSync(file)
    for (let at = 0; at < data.length; ) {
      const line = data.indexOf(10, at)
      const [pre, post] = data.toString('latin1', at, line).split(' ').map(Number) as [number, number]
      const bytes = Buffer.alloc(pre + DIGITS + post)
      data.copy(bytes, 0, line + 1, line + 1 + pre)
      data.copy(bytes, pre + DIGITS, line + 1 + pre, line + 1 + pre + post)
      this.#requests.push({ bytes, counter: pre })
      at = line + 1 + pre + post
    }
  }

  next(): Buffer[] {
    const { bytes, counter } = this.#requests[this.#next]!
    this.#next = (this.#next + 1) % this.#requests.length
    this.#counter = (this.#counter + 1) % 10 ** DIGITS
    // The bytes are copied, because the socket may not have sent the last request with these bytes yet.
    const request = Buffer.from(bytes)
    request.write(String(this.#counter).padStart(DIGITS, '0'), counter, 'latin1')
    return [request]
  }
}

/** Prompts of about `bytes` bytes: parts of a long text from random places, cut between words. */
class LongRequests implements RequestSource {
  readonly #text: Buffer
  readonly #spec: Extract<RequestSpec, { kind: 'long' }>
  readonly #random: (below: number) => number
  readonly #before: string
  readonly #after: Buffer
  #counter = firstCounter()

  constructor(spec: Extract<RequestSpec, { kind: 'long' }>) {
    this.#spec = spec
    this.#text = readFileSync(spec.file)
    this.#random = generator(spec.seed)
    const [before, after] = JSON.stringify(bodyOf(spec.route, false, PLACE)).split(PLACE) as [string, string]
    this.#before = before
    this.#after = Buffer.from(after)
  }

  next(): Buffer[] {
    const { bytes, route, headers } = this.#spec
    // The cut is at a space, which is never inside an escape sequence of JSON.
    const from = this.#text.indexOf(32, this.#random(this.#text.length - bytes - 1000))
    const to = this.#text.indexOf(32, from + bytes)
    this.#counter = (this.#counter + 1) % 10 ** DIGITS
    const before = this.#before + String(this.#counter).padStart(DIGITS, '0')
    const head = headOf(route, before.length + to - from + this.#after.length, headers) + before
    return [Buffer.from(head, 'latin1'), this.#text.subarray(from, to), this.#after]
  }
}
