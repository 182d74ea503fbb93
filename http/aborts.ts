/**
 * Combines abort listeners: `onAborted` may be called several times, and each listener must be called when the client
 * disconnects.
 */
export function withListener(former: (() => void) | undefined, listener: () => void): () => void {
  if (former === undefined) return listener
  return () => {
    former()
    listener()
  }
}
