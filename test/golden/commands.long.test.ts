/** The command lines of `recorded/`: golden.test.ts for processes, in a file of its own because each takes its time. */
import { test } from 'node:test'
import { runCommands } from './kit/commands.ts'
import { settle, shelf, title } from './kit/settle.ts'

for (const book of shelf('commands')) test(title(book), async () => settle(book, await runCommands(book)))
