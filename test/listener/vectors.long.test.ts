import { suite, test } from 'node:test'
import { kinds, serving } from './harness.ts'
import { check, handler } from './vector-check.ts'
import { vectors } from './vectors.ts'

// uWebSockets.js closes by its own idle clock, which takes 8 to 12 s.
suite('bad requests without an answer are closed by the listener’s own clock', { concurrency: true }, () => {
  for (const kind of kinds) {
    for (const vector of vectors.filter(each => each[kind].kind === 'late')) {
      test(`${kind}: ${vector.name}`, { timeout: 120_000 }, async () => {
        const runs: string[] = []
        await serving(kind, handler(runs), h => check(kind, h.port, vector, runs, h.refused))
      })
    }
  }
})
