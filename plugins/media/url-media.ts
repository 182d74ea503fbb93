/** Finds the media that a conversation names by URL, and puts fetched bytes in their place. */
import type { Conversation, DocumentPart, ImagePart, Part, Turn } from '../../core/canon/conversation.ts'
import { type FetchedMedia, mediaKey, type WantedMedia } from './fetch-media.ts'

export type MediaKind = WantedMedia['kind']

/** Every image and document whose source is a URL. */
export function urlMedia(conversation: Conversation): WantedMedia[] {
  const found: WantedMedia[] = []
  for (const turn of conversation.turns) {
    for (const part of turn.parts) {
      for (const media of part.type === 'result' ? part.content : [part]) {
        if ((media.type === 'image' || media.type === 'document') && media.source.kind === 'url')
          found.push({ kind: media.type, url: media.source.url, path: media.path })
      }
    }
  }
  return found
}

/** @param files by `mediaKey`; media that are not in it keep their URL */
export function withMedia(conversation: Conversation, files: ReadonlyMap<string, FetchedMedia>): Conversation {
  return { ...conversation, turns: conversation.turns.map(turn => turnWith(turn, files)) }
}

/** The conversation as it would be with all media of these kinds fetched, to check whether a backend could serve it. */
export function withPlaceholders(conversation: Conversation, kinds: ReadonlySet<MediaKind>): Conversation {
  const files = new Map<string, FetchedMedia>()
  for (const media of urlMedia(conversation)) {
    if (!kinds.has(media.kind)) continue
    const mediaType = media.kind === 'image' ? 'image/png' : 'application/pdf'
    files.set(mediaKey(media), { kind: 'data', mediaType, data: '' })
  }
  return withMedia(conversation, files)
}

function turnWith(turn: Turn, files: ReadonlyMap<string, FetchedMedia>): Turn {
  return { role: turn.role, parts: turn.parts.map(part => partWith(part, files)) }
}

function partWith(part: Part, files: ReadonlyMap<string, FetchedMedia>): Part {
  if (part.type === 'image' || part.type === 'document') return mediaWith(part, files)
  if (part.type !== 'result') return part
  return { ...part, content: part.content.map(inner => (inner.type === 'text' ? inner : mediaWith(inner, files))) }
}

function mediaWith<T extends ImagePart | DocumentPart>(part: T, files: ReadonlyMap<string, FetchedMedia>): T {
  if (part.source.kind !== 'url') return part
  const source = files.get(mediaKey({ kind: part.type, url: part.source.url }))
  return source ? { ...part, source } : part
}
