/**
 * Profile 2: buffered requests whose backend speaks another dialect than the client. Compared with profile 1 of the
 * same gateway.
 */
import { startSluice } from '../contenders/sluice.ts'
import { lane, startUpstream } from '../lanes.ts'
import { measureBuffered } from '../load/buffered.ts'
import { chat, messagesOnChat, responsesOnMessages } from '../requests.ts'
import { goals, medians, type Profile, ratio, ratios } from '../results.ts'

export const translated: Profile = {
  name: 'translated',
  title: 'buffered and translated: messages → openai-chat, responses → anthropic-messages, beside chat',
  async run({ rounds, seconds = 2 }) {
    const upstream = await startUpstream()
    const sluice = await startSluice({ upstream: upstream.port })
    const routes = [chat, messagesOnChat, responsesOnMessages]
    const lanes = routes.map(route => lane(route.name, sluice, route, false))
    const samples = await measureBuffered(lanes, upstream, rounds, seconds)
    await sluice.stop()
    await upstream.stop()
    const translations = [messagesOnChat.name, responsesOnMessages.name]
    return {
      profile: 'translated',
      lanes: medians(samples),
      ratios: ratios(
        samples,
        'requests/s',
        translations.map(name => [name, chat.name]),
      ),
      goals: goals(
        ...translations.map(name => ({
          text: `${name}, of chat`,
          value: ratio(samples, 'requests/s', name, chat.name),
          least: 0.85,
        })),
      ),
    }
  },
}
