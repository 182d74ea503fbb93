/** The value of a JSON body in UTF-8. Throws a SyntaxError. The same on the event loop and in a worker. */
export function parseJson(body: Uint8Array): unknown {
  return JSON.parse(jsonBytes(body).toString('utf8'))
}

/** The body without its byte order mark: that is no JSON, some clients send one all the same, and RFC 8259 8.1 lets a parser pass over it. */
export function jsonBytes(body: Uint8Array): Buffer {
  const mark = body[0] === 0xef && body[1] === 0xbb && body[2] === 0xbf ? 3 : 0
  return Buffer.from(body.buffer, body.byteOffset + mark, body.byteLength - mark)
}
