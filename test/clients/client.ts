/** What `npm run clients` knows of a client: how it is installed, and how it is tried. */

import type { LedgerRow } from '../../core/ports/store.ts'

/** A client written in Python, JavaScript or Go: its program tries features on all models and prints a line of JSON for each. */
export interface ProgramClient {
  readonly name: string
  /** Files of this folder. The features of a program that says nothing are missing from the table. */
  readonly program: string
  /** The section of docs/clients.md with programs of this client, which are run too. */
  readonly recipe?: string
  /** Packages with their versions, as pip takes them, that of the client first. */
  readonly python?: readonly string[]
  /** The versions of Python that the packages need, as uv takes them. Absent: any. */
  readonly interpreter?: string
  /** Packages with their versions, as npm takes them, that of the client first. */
  readonly npm?: Readonly<Record<string, string>>
  /** The module of a client in Go, whose version is in go/go.mod. */
  readonly go?: string
}

/** An agent with a command line: it gets one task on each model, and does it by a tool of its own. */
export interface AgentClient {
  readonly name: string
  readonly npm?: Readonly<Record<string, string>>
  /** Packages of npm that it depends on and that are left out, since npm alone cannot install them. */
  readonly without?: readonly string[]
  readonly python?: readonly string[]
  /** The versions of Python that the packages need, as uv takes them. Absent: any. */
  readonly interpreter?: string
  /** The program that the packages install. */
  readonly command: string
  readonly runs: readonly AgentRun[]
  /** The run that is tried against errors of the gateway too. Its retries do not depend on the model. */
  readonly refused?: AgentRun
}

export interface AgentRun {
  readonly feature: string
  /** What the model shall do with the agent's tools, as a directive of the simulator, which may depend on the model. */
  readonly directive: string | ((model: string) => string)
  /** What shall be in the file instead of `CONTENT`. */
  readonly content?: string
  /** True: the gateway has `structured_output: translate`. */
  readonly structured?: boolean
  arguments(task: Task): readonly string[]
  /** The arguments of commands that are run before it, in the same home: the earlier turns of a session. */
  earlier?(task: Task): readonly (readonly string[])[]
  /**
   * Looks at what the agent left in its home, and at the rows of its requests.
   * @returns what is wrong with it
   */
  check?(home: string, rows: readonly LedgerRow[]): string | undefined
  /** True: what it cost is printed, by the agents of the session. */
  readonly bill?: boolean
  environment?(task: Task): Readonly<Record<string, string>>
  /** Files of settings, by their path below the home folder. */
  files?(task: Task): Readonly<Record<string, string>>
}

export interface Task {
  /** The gateway's address, without a slash at the end. */
  readonly url: string
  readonly key: string
  readonly model: string
  /** What to say to the agent. */
  readonly prompt: string
  /** The folder in which the agent works. */
  readonly folder: string
}

/** What came out of one feature on one model. */
export interface Result {
  readonly feature: string
  readonly model: string
  /** `ok`, the status of the client's error, or `failed`. */
  readonly outcome: string
  readonly detail: string
}

/** The file that an agent is told to make, and what shall be in it. */
export const MADE = 'made.txt'
export const CONTENT = 'sluice'
/** The command by which agents make it. */
export const MAKE = `echo ${CONTENT} > ${MADE}`
