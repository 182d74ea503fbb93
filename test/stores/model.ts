/**
 * The limit rules once more, as plainly as they can be said: exact fractions in BigInt, no shortcuts. The engines are
 * compared with it.
 */
import type { Cell } from '../../core/ports/store.ts'

const DAY = 86_400_000n

interface ModelCell {
  /** Buckets: windowMs-ths of a unit. */
  used: bigint
  at: bigint
}

export class Model {
  #cells = new Map<string, ModelCell>()
  #held = new Map<string, { cells: readonly Cell[]; amounts: readonly number[]; at: bigint }>()

  admit(id: string, cells: readonly Cell[], amounts: readonly number[], now: number): boolean {
    if (this.#held.has(id)) return true
    for (const cell of cells) this.#advance(cell, now)
    const room = cells.every(
      (cell, i) =>
        amounts[i] === 0 ||
        this.#of(cell).used + BigInt(amounts[i]!) * scale(cell) <= BigInt(cell.capacity) * scale(cell),
    )
    if (!room) return false
    cells.forEach((cell, i) => {
      this.#of(cell).used += BigInt(amounts[i]!) * scale(cell)
    })
    this.#held.set(id, { cells, amounts, at: BigInt(now) })
    return true
  }

  settle(id: string, finals: readonly number[], now: number): void {
    const held = this.#held.get(id)
    if (!held) return
    this.#held.delete(id)
    held.cells.forEach((cell, i) => {
      this.#advance(cell, now)
      const state = this.#of(cell)
      if (cell.kind === 'spend' && state.at !== period(cell, held.at)) return
      const final = cell.kind === 'slots' ? 0 : finals[i]!
      state.used += BigInt(final - held.amounts[i]!) * scale(cell)
      if (state.used < 0n) state.used = 0n
    })
  }

  remaining(cell: Cell, now: number): number {
    this.#advance(cell, now)
    const left = (BigInt(cell.capacity) * scale(cell) - this.#of(cell).used) / scale(cell)
    return left > 0n ? Number(left) : 0
  }

  #of(cell: Cell): ModelCell {
    let state = this.#cells.get(cell.id)
    if (!state) this.#cells.set(cell.id, (state = { used: 0n, at: 0n }))
    return state
  }

  #advance(cell: Cell, now: number): void {
    const state = this.#of(cell)
    if (cell.kind === 'bucket') {
      const elapsed = BigInt(now) - state.at
      if (elapsed <= 0n) return
      state.used -= elapsed * BigInt(cell.capacity)
      if (state.used < 0n) state.used = 0n
      state.at = BigInt(now)
    } else if (cell.kind === 'spend') {
      const index = period(cell, BigInt(now))
      if (index <= state.at) return
      state.used = 0n
      state.at = index
    }
  }
}

function period(cell: Cell, now: bigint): bigint {
  if (cell.period === 'day') return now / DAY
  const date = new Date(Number(now))
  return BigInt(date.getUTCFullYear() * 12 + date.getUTCMonth())
}

function scale(cell: Cell): bigint {
  return cell.kind === 'bucket' ? BigInt(cell.windowMs!) : 1n
}
