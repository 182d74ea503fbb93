let last = Promise.resolve()

/**
 * Waits for an event-loop turn of its own. Exchanges that cut large work into slices all wait here, one behind the
 * other, so that a turn holds one slice, and any other exchange waits for at most one of them.
 */
export function nextLoopTurn(): Promise<void> {
  last = last.then(() => new Promise(resolve => setImmediate(resolve)))
  return last
}
