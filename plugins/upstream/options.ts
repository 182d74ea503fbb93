import { type Arrives, count, duration, number, object, size } from '../../core/tools/vocabulary.ts'
import { unlimited } from '../shared/safeguards.ts'

export const schema = object({
  connect_timeout: duration('5s', 'Longest wait for a connection to a backend.'),
  first_byte_timeout: duration(
    '120s',
    "Longest wait for the first event of a backend's answer. The idle limit of `stream_limits` ends it earlier where it is shorter.",
  ),
  attempts: count(
    2,
    'Most attempts for one request, the first included; retries happen only before the head is out.',
    1,
  ),
  retry_budget: number(0.1, 'Share of requests that may be retried, per provider.', { minimum: 0, maximum: 1 }),
  max_reply: size(
    '16MiB',
    'Most bytes of one reply: of the text of a stream with 32 more for each event, and of a body up to 4 MiB, of vectors up to all of it. A reply beyond it is a fault of the upstream.',
  ),
  breaker: object(
    {
      failures: count(
        5,
        'Failures in a row, or within `window`, that open the breaker, where `error_rate` is met, too.',
        1,
      ),
      error_rate: number(0.5, 'Share of the attempts within `window` that must have failed for it.', {
        exclusiveMinimum: 0,
        maximum: 1,
      }),
      window: duration('30s', 'Window in which failures are counted.'),
      open_for: duration(
        '15s',
        'Longest time that an open breaker keeps the backend out before a trial request. It begins with `1s`, and doubles with each trial that fails. Where a request has no other backend, one a second is sent all the same, and what comes meanwhile waits for its answer.',
      ),
    },
    [],
    { default: {}, description: 'When a failing backend is left out.' },
  ),
  unlimited,
})

/** Times in milliseconds. */
export type UpstreamOptions = Arrives<typeof schema>
