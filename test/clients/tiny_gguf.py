"""Writes a llama of one layer with random weights, some kilobytes, that says lower-case letters. Argument: the file."""

import sys

import gguf
import numpy

WIDTH, HEADS, INNER, WINDOW = 32, 4, 64, 2048
TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"

random = numpy.random.default_rng(7)
tokens = [b"<unk>", b"<s>", b"</s>"] + [f"<0x{i:02X}>".encode() for i in range(256)]
kinds = [gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL] + [gguf.TokenType.BYTE] * 256


def weights(*shape):
    return random.normal(0, 0.3, shape).astype(numpy.float32)


writer = gguf.GGUFWriter(sys.argv[1], "llama")
writer.add_name("tiny")
writer.add_context_length(WINDOW)
writer.add_embedding_length(WIDTH)
writer.add_block_count(1)
writer.add_feed_forward_length(INNER)
writer.add_head_count(HEADS)
writer.add_head_count_kv(HEADS)
writer.add_rope_dimension_count(WIDTH // HEADS)
writer.add_layer_norm_rms_eps(1e-5)
writer.add_vocab_size(len(tokens))
writer.add_tokenizer_model("llama")
writer.add_token_list(tokens)
writer.add_token_scores([0.0] * len(tokens))
writer.add_token_types(kinds)
writer.add_unk_token_id(0)
writer.add_bos_token_id(1)
writer.add_eos_token_id(2)
writer.add_chat_template(TEMPLATE)

# All but the letters have no weight, so that what it says is text.
output = numpy.zeros((len(tokens), WIDTH), numpy.float32)
letters = [3 + ord(letter) for letter in "abcdefghijklmnopqrstuvwxyz"]
output[letters] = weights(len(letters), WIDTH)
writer.add_tensor("token_embd.weight", weights(len(tokens), WIDTH))
writer.add_tensor("output_norm.weight", numpy.ones(WIDTH, numpy.float32))
writer.add_tensor("output.weight", output)
writer.add_tensor("blk.0.attn_norm.weight", numpy.ones(WIDTH, numpy.float32))
for name in ("q", "k", "v", "output"):
    writer.add_tensor(f"blk.0.attn_{name}.weight", weights(WIDTH, WIDTH))
writer.add_tensor("blk.0.ffn_norm.weight", numpy.ones(WIDTH, numpy.float32))
writer.add_tensor("blk.0.ffn_gate.weight", weights(INNER, WIDTH))
writer.add_tensor("blk.0.ffn_up.weight", weights(INNER, WIDTH))
writer.add_tensor("blk.0.ffn_down.weight", weights(WIDTH, INNER))
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
