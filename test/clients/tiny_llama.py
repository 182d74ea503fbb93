"""Writes a llama as tiny_gguf.py does, in the form of Hugging Face, some kilobytes. Argument: the folder, a new one."""

import json
import pathlib
import sys

import numpy
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

# vLLM computes no head of fewer than 32 numbers.
WIDTH, HEADS, INNER, WINDOW = 32, 1, 64, 2048
TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"
END = "</s>"

folder = pathlib.Path(sys.argv[1])
folder.mkdir()
random = numpy.random.default_rng(7)


def weights(*shape):
    return random.normal(0, 0.3, shape).astype(numpy.float32)


vocabulary = {END: 0} | {letter: i + 1 for i, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
tokenizer = Tokenizer(models.BPE(vocabulary, merges=[]))
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
tokenizer.add_special_tokens([END])
tokenizer.save(str(folder / "tokenizer.json"))

# All but the letters have no weight, so that what it says is text.
output = numpy.zeros((len(vocabulary), WIDTH), numpy.float32)
letters = [vocabulary[letter] for letter in "abcdefghijklmnopqrstuvwxyz"]
output[letters] = weights(len(letters), WIDTH)
layer = "model.layers.0."
tensors = {
    "model.embed_tokens.weight": weights(len(vocabulary), WIDTH),
    "model.norm.weight": numpy.ones(WIDTH, numpy.float32),
    "lm_head.weight": output,
    layer + "input_layernorm.weight": numpy.ones(WIDTH, numpy.float32),
    layer + "post_attention_layernorm.weight": numpy.ones(WIDTH, numpy.float32),
    layer + "mlp.gate_proj.weight": weights(INNER, WIDTH),
    layer + "mlp.up_proj.weight": weights(INNER, WIDTH),
    layer + "mlp.down_proj.weight": weights(WIDTH, INNER),
}
for name in "qkvo":
    tensors[f"{layer}self_attn.{name}_proj.weight"] = weights(WIDTH, WIDTH)
save_file(tensors, str(folder / "model.safetensors"), {"format": "pt"})

config = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": WIDTH,
    "intermediate_size": INNER,
    "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS,
    "num_hidden_layers": 1,
    "max_position_embeddings": WINDOW,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "vocab_size": len(vocabulary),
    "tie_word_embeddings": False,
    "eos_token_id": 0,
    "bos_token_id": 0,
    "torch_dtype": "float32",
}
tokens = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "eos_token": END,
    "chat_template": TEMPLATE,
    "model_max_length": WINDOW,
    "clean_up_tokenization_spaces": False,
}
generation = {"eos_token_id": 0, "bos_token_id": 0, "do_sample": False}
for file, content in (("config", config), ("tokenizer_config", tokens), ("generation_config", generation)):
    (folder / f"{file}.json").write_text(json.dumps(content))
