/**
 * The thread of `Shipping`. It has its own connections to the store and to the target, so that shipping takes no time
 * of the event loop that serves. It reports by `ShipNews`, and ends after any message.
 */
import { parentPort, workerData } from 'node:worker_threads'
import type { Logger } from '../../core/plugin.ts'
import { systemClock } from '../../core/tools/clock.ts'
import { Follower, type FollowOptions, type ShipStatus } from './ship.ts'

export type ShipWork = Pick<FollowOptions, 'store' | 'to' | 'interval' | 'holder' | 'drain'>

export type ShipNews = { status: ShipStatus } | { level: keyof Logger; fields: object; message: string }

const tell = (news: ShipNews) => parentPort!.postMessage(news)
const at = (level: keyof Logger) => (fields: object, message: string) => tell({ level, fields, message })

const follower = new Follower({
  ...(workerData as ShipWork),
  clock: systemClock,
  log: { debug: at('debug'), info: at('info'), warn: at('warn'), error: at('error') },
  onStatus: status => tell({ status }),
})
parentPort!.once('message', async () => {
  await follower.stop()
  parentPort!.close()
})
