import { Tiktoken } from 'js-tiktoken/lite'
import ranks from 'js-tiktoken/ranks/o200k_base'
import { ensureTokenizers } from './install.ts'

/** The tokenizers with which `bench:meter` compares ours. All use o200k_base, and treat special tokens as text. */
export interface Peer {
  name: string
  count(text: string): number
}

export async function peers(): Promise<Peer[]> {
  const oracle = new Tiktoken(ranks)
  const list: Peer[] = [{ name: 'js-tiktoken', count: text => oracle.encode(text, [], []).length }]
  const load = ensureTokenizers()
  if (load === undefined) return list
  {
    const { countTokens } = await load('gpt-tokenizer/encoding/o200k_base')
    const plain = { allowedSpecial: new Set<string>(), disallowedSpecial: new Set<string>() }
    list.push({ name: 'gpt-tokenizer', count: text => countTokens(text, plain) })
  }
  {
    const { get_encoding } = await load('tiktoken')
    const encoder = get_encoding('o200k_base')
    list.push({ name: 'tiktoken', count: text => encoder.encode_ordinary(text).length })
  }
  {
    const { Tokenizer } = await load('ai-tokenizer')
    const encoding = await load('ai-tokenizer/encoding/o200k_base')
    const encoder = new Tokenizer(encoding)
    list.push({ name: 'ai-tokenizer', count: text => encoder.encode(text, 'all').length })
  }
  return list
}
