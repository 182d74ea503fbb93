import type { Dialect } from '../../core/ports/dialect.ts'
import { requirementsOf } from '../requirements.ts'

/** A dialect whose provider takes images and documents as bytes alone, and no URLs. */
export function bytesOnly(base: Dialect): Pick<Dialect, 'bytesOnly' | 'unfit'> {
  return {
    bytesOnly: new Set(['image', 'document'] as const),
    unfit(conversation, backend) {
      const lacking = base.unfit(conversation, backend)
      if (lacking) return lacking
      const { imageUrl, documentUrl } = requirementsOf(conversation)
      if (imageUrl !== undefined) return { param: imageUrl, requirement: 'an image by URL' }
      if (documentUrl !== undefined) return { param: documentUrl, requirement: 'a document by URL' }
      return null
    },
  }
}
