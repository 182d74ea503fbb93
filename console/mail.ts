/** Mail: by SMTP, or into the terminal where none is configured. */
import { createTransport } from 'nodemailer'

export interface Mail {
  to: string
  subject: string
  /** Plain text: nothing in it is fetched, and a link is seen as it is. */
  text: string
  /** The same for each attempt, so that readers show one that came twice once. */
  messageId?: string
}

export interface Mailer {
  /** Sends it some time after now. A page does not wait for it, so that it does not tell whether there was a mail. */
  send(mail: Mail): void
  /** Sends it now, once. Resolves when the mail server has taken it. @throws Error when it has not */
  deliver(mail: Mail): Promise<void>
  /** Waits for what is being sent. */
  close(): Promise<void>
}

/**
 * The longest that one attempt takes, from the look-up of the server's name to its last answer. The library bounds the
 * silence between two answers alone, and by ten minutes.
 */
export const ATTEMPT_MS = 90_000
const ATTEMPTS = 3
const PAUSE_MS = 5000

export function mailer(
  { smtp, from }: { smtp: string | undefined; from: string },
  tell: (line: string) => void,
): Mailer {
  if (smtp === undefined) {
    const print = ({ to, subject, text }: Mail) => tell(`mail to ${to}: ${subject}\n${text.replace(/^/gm, '  ')}`)
    return { send: print, deliver: async mail => print(mail), close: async () => {} }
  }
  const transport = createTransport(smtp, { from })
  const attemptOnce = async (mail: Mail): Promise<void> => {
    const signal = AbortSignal.timeout(ATTEMPT_MS)
    await transport.sendMail({ ...mail, signal }).catch(error => {
      throw signal.aborted ? new Error(`the mail server had not taken it after ${ATTEMPT_MS / 1000} s`) : error
    })
  }
  const running = new Set<Promise<void>>()
  let closed = false
  const send = async (mail: Mail): Promise<void> => {
    for (let attempt = 1; ; attempt++) {
      try {
        await attemptOnce(mail)
        return
      } catch (error) {
        tell(`mail "${mail.subject}" could not be sent (attempt ${attempt}): ${(error as Error).message}`)
        if (attempt === ATTEMPTS || closed) return
        await new Promise(resolve => setTimeout(resolve, PAUSE_MS * attempt))
      }
    }
  }
  return {
    send(mail) {
      const sent = send(mail).finally(() => running.delete(sent))
      running.add(sent)
    },
    deliver: attemptOnce,
    async close() {
      closed = true
      await Promise.all(running)
      transport.close()
    },
  }
}
