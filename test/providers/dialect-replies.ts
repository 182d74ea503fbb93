/** The tests that every dialect's reply fixtures go through. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import type { Dialect } from '../../core/ports/dialect.ts'
import {
  assertGrammar,
  backendOf,
  conversationOf,
  decodeBody,
  decodeFrames,
  decoderFor,
  framesOf,
  gist,
  goldens,
  printed,
  type ReplySetup,
  sequenced,
} from './dialect-kit.ts'

/** Fixtures in `golden/<dialect>/replies`: setup, stream, buffered body or `-`, events of the stream. */
export function testReplies(dialect: Dialect): void {
  const fixtures = goldens(`${dialect.name}/replies`).map(golden => {
    const [setup, stream, body] = golden.sections as [string, string, string]
    return { golden, setup: JSON.parse(setup) as ReplySetup, frames: framesOf(stream), body }
  })

  for (const { golden, setup, frames, body } of fixtures) {
    const title = `${dialect.name} reply ${golden.name.replace('.txt', '')}`

    test(`${title}: stream to events`, () => {
      const events = decodeFrames(dialect, setup, frames)
      golden.expect(printed(events))
      assertGrammar(sequenced(events))
    })

    test(`[STR-6] ${title}: a stream cut before its end is an error`, () => {
      const whole = decodeFrames(dialect, setup, frames)
      const stopped = whole.findIndex(event => event.type === 'finish' && event.reason === 'stop_sequence')
      for (let count = 0; count < frames.length; count++) {
        const events = sequenced(decodeFrames(dialect, setup, frames.slice(0, count)))
        assertGrammar(events)
        const ended = events.at(-1)!
        // A stop string that the gateway itself matched ends the reply before the provider does.
        if (ended.type === 'finish') assert.ok(stopped !== -1 && ended.reason === 'stop_sequence', `cut after ${count}`)
        else assert.equal(ended.type, 'error', `cut after ${count} frames`)
      }
    })

    if (body.trim() !== '-') {
      test(`${title}: the buffered body says the same`, () => {
        const events = decodeBody(dialect, setup, body)
        assertGrammar(sequenced(events))
        assert.deepEqual(gist(events), gist(decodeFrames(dialect, setup, frames)))
      })
    }
  }

  test(`${dialect.name}: a decoder is not done before the last frame`, () => {
    for (const { golden, setup, frames } of fixtures) {
      const decoder = decoderFor(dialect, conversationOf(setup.conversation), backendOf(dialect, setup.backend))
      for (const [index, frame] of frames.entries()) {
        let stopped = false
        decoder.frame(frame.event, frame.data, event => {
          stopped ||= event.type === 'finish'
        })
        if (stopped) break
        if (index < frames.length - 1) assert.notEqual(decoder.done, true, `${golden.name}, frame ${index}`)
      }
    }
  })

  test(`${dialect.name}: frames lost, doubled, swapped or broken never throw, and the events stay well-formed`, () => {
    const index = fc.integer({ min: 0, max: fixtures.length - 1 })
    const faults = fc.array(
      fc.record({ at: fc.nat(200), kind: fc.integer({ min: 0, max: 4 }), with: fc.jsonValue() }),
      {
        maxLength: 4,
      },
    )
    fc.assert(
      fc.property(index, faults, (which, list) => {
        const { setup, frames } = fixtures[which]!
        const broken = frames.map(frame => ({ ...frame }))
        for (const fault of list) damage(broken, fault.at, fault.kind, fault.with)
        assertGrammar(sequenced(decodeFrames(dialect, setup, broken)))
      }),
      { numRuns: 600, seed: 20_261_121 },
    )
  })

  test(`${dialect.name}: no body throws`, () => {
    fc.assert(
      fc.property(fc.oneof(fc.string(), fc.json()), text => {
        const events = decodeBody(dialect, {}, text)
        assert.equal(events.at(-1)?.type, 'error')
        assertGrammar(sequenced(events))
      }),
      { numRuns: 300, seed: 20_261_121 },
    )
  })
}

function damage(frames: { event: string; data: string }[], at: number, kind: number, value: unknown): void {
  if (frames.length === 0) return
  const index = at % frames.length
  const frame = frames[index]!
  switch (kind) {
    case 0:
      frames.splice(index, 1)
      return
    case 1:
      frames.splice(index, 0, { ...frame })
      return
    case 2:
      frames.push(...frames.splice(index, 1))
      return
    case 3:
      frame.data = frame.data.slice(0, frame.data.length / 2)
      return
    default:
      // Some member deep inside has another type than it should.
      frame.data = frame.data.replace(
        /"(delta|item|content_block|parts|candidates|usage|text|index)":\s*("[^"]*"|\[|\{|\d+)/,
        (whole, key) =>
          whole.endsWith('[') || whole.endsWith('{')
            ? `"x_${key}":${whole.at(-1)}`
            : `"${key}":${JSON.stringify(value)}`,
      )
  }
}
