/** Finds in a Lua script what Redis would tell only when the line runs, or not at all. */
import luaparse, { type Node } from 'luaparse'

export interface Fault {
  /** The line in the text, from 1. */
  line: number
  message: string
}
/** What Lua 5.1 has in Redis, and scripts use. */
const GLOBALS = new Set(
  'ARGV KEYS cjson ipairs math next pairs pcall redis string struct table tonumber tostring type unpack'.split(' '),
)

interface Local {
  name: string
  line: number
  isRead: boolean
}
type Any = Node & Record<string, any>
const lineOf = (node: Any): number => node.loc!.start.line

/**
 * Faults of the syntax (then only the first), globals that do not exist, assignments to globals, locals that stand for
 * another of the same block, and locals that nothing reads. A name that begins with `_` need not be read. Nor need one
 * with a read one behind it in the same list, because values come in an order.
 */
export function lint(text: string): Fault[] {
  let body: Any[]
  try {
    body = luaparse.parse(text, { luaVersion: '5.1', locations: true }).body
  } catch (error) {
    const { line, message } = error as { line: number; message: string }
    return [{ line, message }]
  }
  const faults: Fault[] = []
  const scopes: Map<string, Local>[] = []
  const lists: Local[][] = []
  const fault = (node: Any, message: string) => faults.push({ line: lineOf(node), message })
  const found = (name: string) => scopes.findLast(scope => scope.has(name))?.get(name)

  function declare(identifiers: Any[]): void {
    const scope = scopes.at(-1)!
    const list = identifiers
      .filter(({ type }) => type === 'Identifier')
      .map(node => {
        if (scope.has(node.name) && node.name !== '_') fault(node, `'${node.name}' is declared twice in one block`)
        const local = { name: node.name as string, line: lineOf(node), isRead: false }
        scope.set(node.name, local)
        return local
      })
    lists.push(list)
  }
  function block(statements: Any[], locals: Any[] = [], last?: Any): void {
    scopes.push(new Map())
    declare(locals)
    for (const statement of statements) visit(statement)
    if (last) visit(last)
    scopes.pop()
  }
  function assign(target: Any): void {
    if (target.type !== 'Identifier') visit(target)
    else if (!found(target.name)) fault(target, `'${target.name}' is no local: a script may not set a global`)
  }
  function visit(node: Any): void {
    switch (node.type) {
      case 'Identifier': {
        const local = found(node.name)
        if (local) local.isRead = true
        else if (!GLOBALS.has(node.name)) fault(node, `nothing is called '${node.name}'`)
        return
      }
      case 'LocalStatement':
        for (const value of node.init) visit(value)
        return declare(node.variables)
      case 'AssignmentStatement':
        for (const value of node.init) visit(value)
        return node.variables.forEach(assign)
      case 'FunctionDeclaration':
        if (node.identifier && node.isLocal) declare([node.identifier])
        else if (node.identifier) assign(node.identifier)
        return block(node.body, node.parameters)
      case 'ForNumericStatement':
        for (const bound of [node.start, node.end, node.step]) if (bound) visit(bound)
        return block(node.body, [node.variable])
      case 'ForGenericStatement':
        for (const iterator of node.iterators) visit(iterator)
        return block(node.body, node.variables)
      case 'RepeatStatement':
        return block(node.body, [], node.condition)
      case 'MemberExpression':
        return visit(node.base)
      case 'TableKeyString':
        return visit(node.value)
    }
    if (node.condition) visit(node.condition)
    if (Array.isArray(node.body)) return block(node.body)
    for (const [key, value] of Object.entries(node)) {
      if (key === 'condition' || key === 'loc') continue
      for (const child of Array.isArray(value) ? value : [value])
        if (child !== null && typeof child === 'object' && 'type' in child) visit(child)
    }
  }
  block(body)
  for (const list of lists)
    for (const { name, line } of list.slice(list.findLastIndex(({ isRead }) => isRead) + 1))
      if (!name.startsWith('_')) faults.push({ line, message: `nothing reads '${name}'` })
  return faults
}
