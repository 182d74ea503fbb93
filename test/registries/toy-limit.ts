/** A limit of images per day. They can be counted from the request alone. */
import type { Counted } from '../../core/canon/limits.ts'

export const images: Counted = {
  kind: 'bucket',
  limits: [{ name: 'images_per_day', word: 'imgpd', windowMs: 86_400_000, description: 'Images per day.' }],
  words: 'images',
  reserve: (_input, _output, _cost, asked) =>
    asked?.turns.reduce((sum, { parts }) => sum + parts.filter(part => part.type === 'image').length, 0) ?? 0,
  settle: (_consumed, reserved) => reserved,
  counts: 'images of admitted requests',
  denied: 'Images per day.',
  cure: 'Wait as `Retry-After` says; send fewer images.',
}
