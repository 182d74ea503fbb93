/** The tokenizers that `bench:meter` runs beside ours; all with o200k_base and special tokens taken as text. */
export interface Peer {
  name: string
  count(text: string): number
}

export async function peers(): Promise<Peer[]> {
  const list: Peer[] = []
  {
    const { Tiktoken } = await import('js-tiktoken/lite')
    const { default: ranks } = await import('js-tiktoken/ranks/o200k_base')
    const encoder = new Tiktoken(ranks)
    list.push({ name: 'js-tiktoken', count: text => encoder.encode(text, [], []).length })
  }
  {
    const { countTokens } = await import('gpt-tokenizer/encoding/o200k_base')
    const plain = { allowedSpecial: new Set<string>(), disallowedSpecial: new Set<string>() }
    list.push({ name: 'gpt-tokenizer', count: text => countTokens(text, plain) })
  }
  {
    const { get_encoding } = await import('tiktoken')
    const encoder = get_encoding('o200k_base')
    list.push({ name: 'tiktoken', count: text => encoder.encode_ordinary(text).length })
  }
  {
    const { Tokenizer } = await import('ai-tokenizer')
    const encoding = await import('ai-tokenizer/encoding/o200k_base')
    const encoder = new Tokenizer(encoding)
    list.push({ name: 'ai-tokenizer', count: text => encoder.encode(text, 'all').length })
  }
  return list
}
