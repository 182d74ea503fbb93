/** The budget of a store call: what is not answered in time counts as down (decisions 27). */
import { StoreUnavailable } from '../core/store.ts'

/** The promise's own result, or StoreUnavailable after `budget` ms. The work itself goes on. */
export function withinBudget<T>(promise: Promise<T>, budget: number): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new StoreUnavailable(`the store did not answer within ${budget} ms`)), budget)
    promise.then(
      value => {
        clearTimeout(timer)
        resolve(value)
      },
      error => {
        clearTimeout(timer)
        reject(error)
      },
    )
  })
}
