/** `onAborted` may be called by several, each of whom is to hear that the client left: the listener of all, with one more. */
export function withListener(former: (() => void) | undefined, listener: () => void): () => void {
  if (former === undefined) return listener
  return () => {
    former()
    listener()
  }
}
