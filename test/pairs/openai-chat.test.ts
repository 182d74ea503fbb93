import { openaiChat } from '../../providers/openai-chat/index.ts'
import { goldens } from '../providers/dialect-kit.ts'
import { type PairFixture, testPairs } from './pair-kit.ts'

/** First lines `tools: […]` and `stop: […]` say what the request declared; the rest is the stream. */
function fixture(name: string, text: string): PairFixture {
  const conversation: Record<string, any> = {}
  let stream = text
  for (let found = first(stream); found; found = first(stream)) {
    const value = JSON.parse(found[2]!)
    if (found[1] === 'tools') conversation['tools'] = value
    else conversation['sampling'] = { stop: value }
    stream = stream.slice(found[0].length)
  }
  return { name: name.replace('.txt', ''), setup: { conversation }, stream }
}
const first = (text: string) => /^(tools|stop): (.*)\n/.exec(text)

testPairs(
  openaiChat,
  goldens('openai-chat/decode').map(({ name, sections }) => fixture(name, sections[0]!)),
)
