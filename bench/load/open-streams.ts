/**
 * Opens streams and keeps them open. The parent process sends `{ open: N }` over IPC. This program answers
 * `{ opened: N, failures }` when N streams in all have received content, or after 30 seconds. It takes a `Job` as JSON.
 */
import { openRequests, type RequestSpec } from '../requests.ts'
import { Connection } from './connection.ts'

export interface Job {
  port: number
  requests: RequestSpec
}

export interface Opened {
  opened: number
  failures: Record<string, number>
}

/** At most this many streams wait for their first content at once, because the backlog of a listener is limited. */
const AT_ONCE = 100

if (process.argv[1] === import.meta.filename) run(JSON.parse(process.argv[2]!) as Job)

function run(job: Job): void {
  const source = openRequests(job.requests)
  const failures: Opened['failures'] = {}
  const opening = new Set<Connection>()
  const open = new Set<Connection>()
  let wanted = 0
  let timer: NodeJS.Timeout | undefined
  const lose = (reason: string, connection: Connection) => {
    failures[reason] = (failures[reason] ?? 0) + 1
    opening.delete(connection)
    open.delete(connection)
  }
  const handler = {
    onPayload(_bytes: number, connection: Connection) {
      if (!opening.delete(connection)) return
      open.add(connection)
      more()
    },
    onAnswer: (answer: { status: number }, connection: Connection) =>
      lose(`ended with status ${answer.status}`, connection),
    onLost: lose,
  }
  const report = () => {
    clearTimeout(timer)
    process.send!({ opened: open.size, failures } satisfies Opened)
  }
  const more = () => {
    while (open.size + opening.size < wanted && opening.size < AT_ONCE) {
      const connection = new Connection(job.port, handler)
      opening.add(connection)
      connection.send(source.next())
    }
    if (open.size >= wanted) report()
  }
  process.on('message', (message: { open: number }) => {
    wanted = message.open
    timer = setTimeout(report, 30_000)
    more()
  })
  process.on('disconnect', () => process.exit(0))
}
