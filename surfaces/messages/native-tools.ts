/**
 * Tools that the client executes, with a fixed name and a published input shape (MSG-4, wire.md B.4). A backend that
 * knows the version gets the tool natively; any other backend gets a plain function of this shape. The client runs
 * the same call in both cases. The shapes are from the provider's tool documentation. The text that a text editor
 * inserts is `new_str` up to 20250429 and `insert_text` from 20250728 on, because the models use these names.
 */
import { integer } from '../schema.ts'

/** Members of a declaration, apart from those that every tool has. */
export const NATIVE_OPTIONS = { max_characters: integer(1) }
type NativeOption = keyof typeof NATIVE_OPTIONS

/** A native tool as a plain function. */
export interface NativeToolShape {
  /** The only name a declaration of this version may carry. */
  name: string
  description: string
  /** JSON Schema of the call's input. */
  parameters: Record<string, unknown>
  options: readonly NativeOption[]
}

const text = (description: string) => ({ type: 'string', description })
const line = (description: string) => ({ type: 'integer', description })

const BASH: NativeToolShape = {
  name: 'bash',
  description: 'Runs a command in a persistent bash session. Working directory and variables stay between calls.',
  parameters: {
    type: 'object',
    properties: {
      command: text('The command to run. Required unless the session is being restarted.'),
      restart: { type: 'boolean', description: 'True restarts the session.' },
    },
  },
  options: [],
}

const MEMORY: NativeToolShape = {
  name: 'memory',
  description: 'Reads and writes files under /memories, which stay from one conversation to the next.',
  parameters: {
    type: 'object',
    properties: {
      command: {
        type: 'string',
        enum: ['view', 'create', 'str_replace', 'insert', 'delete', 'rename'],
        description: 'What to do.',
      },
      path: text('File or directory. Required by every command but rename.'),
      view_range: {
        type: 'array',
        items: { type: 'integer' },
        description: 'view: first and last line, from 1; -1 as the last means the end of the file.',
      },
      file_text: text('create: the content of the file.'),
      old_str: text('str_replace: the text to replace; it must occur exactly once.'),
      new_str: text('str_replace: the text to put in its place.'),
      insert_line: line('insert: the line after which to insert; 0 is the beginning of the file.'),
      insert_text: text('insert: the text to insert.'),
      old_path: text('rename: the present path.'),
      new_path: text('rename: the new path.'),
    },
    required: ['command'],
  },
  options: [],
}

function textEditor(
  name: string,
  form: { undo: boolean; inserted: 'new_str' | 'insert_text'; options?: NativeOption[] },
): NativeToolShape {
  const commands = ['view', 'create', 'str_replace', 'insert']
  if (form.undo) commands.push('undo_edit')
  const properties: Record<string, unknown> = {
    command: { type: 'string', enum: commands, description: 'What to do.' },
    path: text('Absolute path of a file or directory.'),
    view_range: {
      type: 'array',
      items: { type: 'integer' },
      description: 'view of a file: first and last line, from 1; -1 as the last means the end of the file.',
    },
    file_text: text('create: the content of the file.'),
    old_str: text('str_replace: the text to replace; it must occur exactly once.'),
    new_str: text(
      form.inserted === 'new_str'
        ? 'str_replace: the text to put in its place. insert: the text to insert.'
        : 'str_replace: the text to put in its place.',
    ),
    insert_line: line('insert: the line after which to insert; 0 is the beginning of the file.'),
  }
  if (form.inserted === 'insert_text') properties['insert_text'] = text('insert: the text to insert.')
  return {
    name,
    description: 'Views, creates and edits text files.',
    parameters: { type: 'object', properties, required: ['command', 'path'] },
    options: form.options ?? [],
  }
}

/** The known versions of native tools, by their `type`. */
export const NATIVE_TOOLS: ReadonlyMap<string, NativeToolShape> = new Map([
  ['bash_20250124', BASH],
  ['text_editor_20250124', textEditor('str_replace_editor', { undo: true, inserted: 'new_str' })],
  ['text_editor_20250429', textEditor('str_replace_based_edit_tool', { undo: false, inserted: 'new_str' })],
  [
    'text_editor_20250728',
    textEditor('str_replace_based_edit_tool', {
      undo: false,
      inserted: 'insert_text',
      options: ['max_characters'],
    }),
  ],
  ['memory_20250818', MEMORY],
])

/**
 * Input shapes for versions of the text editor with an unknown date. They are declared as plain functions
 * (decision 32).
 */
const NEWER_EDITOR = textEditor('str_replace_based_edit_tool', { undo: false, inserted: 'insert_text' })
const OLDER_EDITOR = textEditor('str_replace_editor', { undo: true, inserted: 'new_str' })

const EDITOR = 'text_editor_'
/** Matches the `type` of a text editor; source of a regular expression. */
export const DATED_EDITOR = `^${EDITOR}[0-9]{8}$`
const IS_DATED_EDITOR = new RegExp(DATED_EDITOR)

/** The shape for a dated text editor that is not in NATIVE_TOOLS; undefined when `type` is no dated text editor. */
export function otherTextEditor(type: string): NativeToolShape | undefined {
  if (!IS_DATED_EDITOR.test(type)) return undefined
  return type.slice(EDITOR.length) < '20250429' ? OLDER_EDITOR : NEWER_EDITOR
}

/** The `type` values that declare hosted web search (MSG-3). */
export const WEB_SEARCH_TYPES: readonly string[] = ['web_search_20250305', 'web_search_20260209']
