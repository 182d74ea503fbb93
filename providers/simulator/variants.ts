/** The forms in which other services speak the dialects. Each is as strict about its form as the service. */
import { crc32 } from 'node:zlib'
import { anthropicSimulator } from './anthropic-messages.ts'
import { type Body, bodyOf, listOf, type SimDialect, type SimEvent } from './dialect.ts'
import { geminiSimulator } from './gemini.ts'
import { SimRefusal } from './model.ts'
import { chatSimulator } from './openai-chat.ts'

/** A request in the form of a variant: its dialect, and the request as that dialect reads it. */
export interface SimVariant {
  dialect: SimDialect
  /** @throws SimRefusal when the service would refuse the form */
  read(body: Body): { body: Body; path: string }
}

const refuse = (message: string): never => {
  throw new SimRefusal(400, 'invalid', message)
}

/** @param path decoded, without the query */
export function variantOf(path: string, query: URLSearchParams): SimVariant | undefined {
  const bedrock = /^\/model\/([^/]+)\/(invoke|invoke-with-response-stream)$/.exec(path)
  if (bedrock) {
    const stream = bedrock[2] !== 'invoke'
    return {
      dialect: stream ? bedrockStream : bedrockWhole,
      read(body) {
        if (body['anthropic_version'] !== 'bedrock-2023-05-31') refuse('anthropic_version: Field required')
        for (const name of ['model', 'stream']) if (name in body) refuse(`${name}: Extra inputs are not permitted`)
        return { body: { ...body, model: bedrock[1], stream }, path: '/messages' }
      },
    }
  }
  const vertex = /\/publishers\/(google|anthropic)(\/models\/([^/:]+):(\w+))$/.exec(path)
  if (vertex?.[1] === 'anthropic' && /^(rawPredict|streamRawPredict)$/.test(vertex[4]!))
    return {
      dialect: anthropicSimulator,
      read(body) {
        if (body['anthropic_version'] !== 'vertex-2023-10-16') refuse('anthropic_version: Field required')
        if ('model' in body) refuse('model: Extra inputs are not permitted')
        const stream = vertex[4] === 'streamRawPredict'
        if ((body['stream'] === true) !== stream) refuse('stream: does not fit the method')
        return { body: { ...body, model: vertex[3] }, path: '/messages' }
      },
    }
  if (vertex?.[1] === 'google')
    return {
      dialect: geminiSimulator,
      read(body) {
        for (const content of listOf(body['contents']))
          for (const part of listOf(content['parts']))
            for (const member of ['functionCall', 'functionResponse'])
              if ('id' in bodyOf(part[member])) refuse(`Unknown name "id" at '${member}': Cannot find field.`)
        return { body, path: vertex[2]! }
      },
    }
  const deployment = /^\/openai\/deployments\/([^/]+)\/chat\/completions$/.exec(path)
  if (deployment)
    return {
      dialect: chatSimulator,
      read(body) {
        if (!query.get('api-version')) throw new SimRefusal(404, 'invalid', 'Resource not found')
        if ('prompt_cache_key' in body) refuse('Unrecognized request argument supplied: prompt_cache_key')
        return { body: { ...body, model: deployment[1] }, path: '/chat/completions' }
      },
    }
  return undefined
}

const bedrockWhole: SimDialect = {
  ...anthropicSimulator,
  error: (_, __, message) => ({ message }),
}
const bedrockStream: SimDialect = {
  ...bedrockWhole,
  contentType: 'application/vnd.amazon.eventstream',
  frame({ event, data }: SimEvent): Buffer {
    if (event === 'error')
      return message(
        { ':message-type': 'exception', ':exception-type': 'throttlingException', ':content-type': 'application/json' },
        JSON.stringify({ message: 'Too many requests, please wait before trying again.' }),
      )
    return message(
      { ':event-type': 'chunk', ':content-type': 'application/json', ':message-type': 'event' },
      JSON.stringify({ bytes: Buffer.from(data).toString('base64'), p: 'abcdefgh' }),
    )
  },
}

/**
 * One message of AWS's event-stream encoding: lengths and checksum of the two, headers (name, type 7 for a string,
 * value), the body, and the checksum of all.
 */
function message(headers: Record<string, string>, body: string): Buffer {
  const fields = Object.entries(headers).map(([name, value]) => {
    const head = Buffer.from([name.length, ...Buffer.from(name), 7, 0, 0])
    head.writeUInt16BE(Buffer.byteLength(value), head.length - 2)
    return Buffer.concat([head, Buffer.from(value)])
  })
  const length = fields.reduce((sum, field) => sum + field.length, 0)
  const prelude = Buffer.alloc(12)
  prelude.writeUInt32BE(16 + length + Buffer.byteLength(body), 0)
  prelude.writeUInt32BE(length, 4)
  prelude.writeUInt32BE(crc32(prelude.subarray(0, 8)), 8)
  const whole = Buffer.concat([prelude, ...fields, Buffer.from(body)])
  const end = Buffer.alloc(4)
  end.writeUInt32BE(crc32(whole), 0)
  return Buffer.concat([whole, end])
}
