"""Make a tiny Llama that a real engine loads: random, deterministic, 1 MB, nothing downloaded.

It knows bytes (a vocabulary of 256 and three marks) and nothing else: what it writes is noise,
with real logprobs. Weights come from one seeded generator; the last norm is scaled so that the
distribution of the next token is peaked, not uniform, and differs from token to token.

    python tests/e2e/make_tiny_model.py FOLDER
"""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

HIDDEN = 128
LAYERS = 2
HEADS = 2
MLP = 256
CONTEXT_TOKENS = 512
MARKS = ("<|end|>", "<|im_start|>", "<|im_end|>")
VOCABULARY = 256 + len(MARKS)
SHARPNESS = 6.0  # of the last norm: entropies of 1 to 3 nats instead of ln(259)
SEED = 20_261_101
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_letters() -> list[str]:
    """Return the 256 letters that stand for bytes in byte-level tokenizers, in order of bytes.

    Printable bytes stand for themselves, the others for letters from U+0100 on.
    """
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def tokenizer() -> dict[str, object]:
    """Return `tokenizer.json`: byte-level, no merges, so a prompt's tokens are its bytes."""
    vocabulary = {letter: index for index, letter in enumerate(byte_letters())}
    marks = [
        {
            "id": 256 + index,
            "content": mark,
            "special": True,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
        }
        for index, mark in enumerate(MARKS)
    ]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": marks,
        "normalizer": None,
        "pre_tokenizer": {**level, "use_regex": False},
        "post_processor": None,
        "decoder": {**level, "use_regex": False},
        "model": {"type": "BPE", "vocab": vocabulary, "merges": [], "byte_fallback": False},
    }


def config() -> dict[str, object]:
    """Return `config.json` of the model."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": VOCABULARY,
        "hidden_size": HIDDEN,
        "intermediate_size": MLP,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "head_dim": HIDDEN // HEADS,
        "max_position_embeddings": CONTEXT_TOKENS,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 10_000.0,
        "tie_word_embeddings": True,
        "bos_token_id": 256,
        "eos_token_id": 256,
        "torch_dtype": "bfloat16",
    }


def weights() -> dict[str, NDArray[np.float32]]:
    """Return the tensors by name, drawn in one order from one seed."""
    rng = np.random.default_rng(SEED)

    def normal(*shape: int) -> NDArray[np.float32]:
        drawn = rng.standard_normal(shape, dtype=np.float32)
        return drawn / np.float32(np.sqrt(shape[-1]))

    ones = np.ones(HIDDEN, dtype=np.float32)
    tensors = {"model.embed_tokens.weight": normal(VOCABULARY, HIDDEN)}
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            tensors[f"{at}self_attn.{name}.weight"] = normal(HIDDEN, HIDDEN)
        tensors[f"{at}mlp.gate_proj.weight"] = normal(MLP, HIDDEN)
        tensors[f"{at}mlp.up_proj.weight"] = normal(MLP, HIDDEN)
        tensors[f"{at}mlp.down_proj.weight"] = normal(HIDDEN, MLP)
        tensors[f"{at}input_layernorm.weight"] = ones
        tensors[f"{at}post_attention_layernorm.weight"] = ones
    tensors["model.norm.weight"] = ones * SHARPNESS
    return tensors


def bfloat16(values: NDArray[np.float32]) -> bytes:
    """Return the values as little-endian bfloat16, rounded to nearest, ties to even."""
    bits = np.ascontiguousarray(values, dtype="<f4").view("<u4").astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return rounded.astype("<u2").tobytes()


def safetensors(tensors: dict[str, NDArray[np.float32]]) -> bytes:
    """Return a safetensors file: length of the header, header, data."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, values in sorted(tensors.items()):
        block = bfloat16(values)
        span = [len(data), len(data) + len(block)]
        header[name] = {"dtype": "BF16", "shape": list(values.shape), "data_offsets": span}
        data += block
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def make_tiny_model(folder: Path) -> None:
    """Write the model into `folder`, which is made if it is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": CONTEXT_TOKENS,
        "eos_token": MARKS[0],
        "bos_token": MARKS[0],
        "pad_token": MARKS[0],
        "clean_up_tokenization_spaces": False,
        "chat_template": TEMPLATE,
    }
    files = {
        "config.json": config(),
        "generation_config.json": {"bos_token_id": 256, "eos_token_id": [256, 258]},
        "tokenizer.json": tokenizer(),
        "tokenizer_config.json": settings,
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=1), encoding="utf-8")
    (folder / "model.safetensors").write_bytes(safetensors(weights()))


if __name__ == "__main__":
    make_tiny_model(Path(sys.argv[1]))
