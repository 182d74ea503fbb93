/** Sources of media, as surfaces read them and dialects write them. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type DataSource, dataUrlOf } from '../../core/canon/conversation.ts'
import { documentSource, imageSource } from '../../surfaces/media.ts'

const small = 'AAAA'
const large = 'AbCd'.repeat(40_000)

test('a data URL is written in one form, however the client wrote it and however long it is', () => {
  for (const data of [small, large])
    for (const type of ['image/png', 'IMAGE/PNG', ' image/png', 'image/png;a=b'])
      assert.equal(
        dataUrlOf(imageSource(`data:${type};base64,${data}`, 'url') as DataSource),
        `data:image/png;base64,${data}`,
      )
  for (const data of [small, large])
    for (const type of ['application/pdf', 'Application/pdf'])
      assert.equal(
        dataUrlOf(documentSource(`data:${type};base64,${data}`, 'url') as DataSource),
        `data:application/pdf;base64,${data}`,
      )
})

test('a source that was made of another one is written of what it has', () => {
  const source = imageSource(`data:image/png;base64,${large}`, 'url') as DataSource
  assert.equal(dataUrlOf({ ...source, mediaType: 'image/webp' }), `data:image/webp;base64,${large}`)
  assert.equal(dataUrlOf({ ...source, data: small }), `data:image/png;base64,${small}`)
})
