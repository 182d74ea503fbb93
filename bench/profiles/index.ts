import type { Profile } from '../results.ts'
import { agents } from './agents.ts'
import { buffered } from './buffered.ts'
import { latency } from './latency.ts'
import { long } from './long.ts'
import { memory } from './memory.ts'
import { redis } from './redis.ts'
import { start } from './start.ts'
import { streamed } from './streamed.ts'
import { tlsBuffered, tlsStreamed } from './tls.ts'
import { translated } from './translated.ts'

/** The profiles in the order of their numbers in README.md, 1 to 11. */
export const profiles: Profile[] = [
  buffered,
  translated,
  streamed,
  latency,
  long,
  redis,
  memory,
  start,
  tlsBuffered,
  tlsStreamed,
  agents,
]
