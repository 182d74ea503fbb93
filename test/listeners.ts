/** The listeners that tests run with. `SLUICE_TEST_LISTENER=node`: that one alone, as on a Node for which `uws` has no binary. */
type Kind = 'uws' | 'node'

export const LISTENERS: readonly [Kind, ...Kind[]] =
  process.env['SLUICE_TEST_LISTENER'] === 'node' ? ['node'] : ['uws', 'node']
