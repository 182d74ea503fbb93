/**
 * What the clients in JavaScript share: `feature` names what is tried and gets the name of a model; `run` tries all
 * features on all models and prints a line of JSON for each, with "ok", the status of the client's error, or "failed".
 */
import assert from 'node:assert/strict'

export { assert }
export const URL = process.env.SLUICE_URL
export const V1 = `${URL}/v1`
/** Of a gateway with `structured_output: translate`. */
export const OBJECTS_V1 = `${process.env.SLUICE_OBJECTS_URL}/v1`
export const KEY = process.env.SLUICE_KEY
export const SPENT_KEY = process.env.SLUICE_SPENT_KEY
const MODELS = process.env.SLUICE_MODELS.split(',')

/** A JSON schema of a city, which the libraries take as it is. */
export const CITY = {
  type: 'object',
  properties: { city: { type: 'string' } },
  required: ['city'],
  additionalProperties: false,
}
/** The model calls the tool at first; after its result it says the text of the result. */
export const CALL = 'Weather? [[sim: call get_weather {"city":"Oslo"}]]'

const features = []

/** @param {string} name @param {(model: string) => Promise<void>} action */
export const feature = (name, action) => features.push([name, action])

export async function run() {
  for (const [name, action] of features) {
    for (const model of MODELS) {
      let [outcome, detail] = ['ok', '']
      try {
        await action(model)
      } catch (error) {
        outcome = outcomeOf(error)
        detail = String(error?.stack ?? error).slice(-2000)
      }
      console.log(JSON.stringify({ feature: name, model, outcome, detail }))
    }
  }
  process.exit(0)
}

/** The status of an error of the client, also where a framework wrapped it. */
function outcomeOf(error) {
  for (let seen = error; seen; seen = seen.cause ?? seen.lastError) {
    const status = seen.statusCode ?? seen.details?.statusCode
    if (Number.isInteger(status)) return String(status)
  }
  return 'failed'
}
