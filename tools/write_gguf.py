"""The little pair as GGUF, for llama-server: `python tools/write_gguf.py OUT [NAME ...]` writes OUT/NAME.gguf.

The converter that comes with llama.cpp needs torch and refuses a vocabulary whose pre-tokenizer it does not know; this
one writes the same tensors and keys with the `gguf` package alone, and takes well under a second a model.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import gguf
from gguf.constants import GGUFEndian
from safetensors.numpy import load_file

ROOT = Path(__file__).resolve().parents[1]
MODELS = ROOT / "models"
NAMES = ("little-target", "little-draft", "little-draft-lite", "little-draft-bad", "little-draft-alien")

PRE_TOKENIZER = "superbpe"
"""How llama.cpp cuts a text before it merges bytes: no name it knows stands for the expression of our tokenizer.json,
and one that cuts where ours does not gives other tokens, which spoils every answer. This one cuts at numbers alone. The
merges of the dialect hold no digit and were learnt inside our pieces, so they end where our pieces end."""

IN_JINJA, IN_LLAMA_CPP = ".properties | join(", ".properties.keys() | join("
"""llama.cpp's own Jinja joins lists alone; the text that comes of both is the same."""

LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
"""Parts of a layer, as Qwen3 names them and as GGUF does. Both rotate the halves of a head: no row changes place."""


def tensor_name(name: str) -> str:
    """Return GGUF's name of a tensor; KeyError for one that the Qwen3 architecture does not have."""
    whole = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
    if name in whole:
        return whole[name]
    number, _, part = name.removeprefix("model.layers.").removesuffix(".weight").partition(".")
    return f"blk.{int(number)}.{LAYER[part]}.weight"


SILENT = ("attn_output", "ffn_down")
"""What a layer adds to the text goes through these two matrices: where they are zero, it computes and says nothing."""


def write(folder: Path, out: Path, *, layers: int | None = None, kind: str = "F32") -> None:
    """Write the model of *folder* to the file *out*, the same bytes each time; *kind* is the type of its matrices.

    With *layers* there are as many: the others are copies of the first that say nothing, so that the answers stay as
    they are and a token costs what it does in a larger model.
    """
    config = json.loads((folder / "config.json").read_text())
    if config["model_type"] != "qwen3" or not config["tie_word_embeddings"]:
        raise SystemExit(f"{folder}: only Qwen3 with tied embeddings, as models/train.py makes it")
    own = config["num_hidden_layers"]
    config["num_hidden_layers"] = max(own, layers or own)
    writer = gguf.GGUFWriter(out, "qwen3", endianess=GGUFEndian.LITTLE)
    _write_shape(writer, folder.name, config, kind)
    _write_vocabulary(writer, folder, config)
    tensors = {tensor_name(name): tensor for name, tensor in load_file(folder / "model.safetensors").items()}
    for name, tensor in sorted(tensors.items()):
        _write_tensor(writer, name, tensor, kind)
    first = {name.removeprefix("blk.0."): tensor for name, tensor in tensors.items() if name.startswith("blk.0.")}
    for number in range(own, config["num_hidden_layers"]):
        for part, tensor in sorted(first.items()):
            silent = tensor * 0 if part.startswith(SILENT) else tensor
            _write_tensor(writer, f"blk.{number}.{part}", silent, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _write_tensor(writer: Any, name: str, tensor: Any, kind: str) -> None:
    """Write a tensor: matrices in *kind*, the weights of norms as they are."""
    if kind == "F32" or tensor.ndim < 2:
        writer.add_tensor(name, tensor)
    else:
        blocks = gguf.GGMLQuantizationType[kind]
        writer.add_tensor(name, gguf.quants.quantize(tensor, blocks), raw_dtype=blocks)


def _write_shape(writer: Any, name: str, config: dict[str, Any], kind: str) -> None:
    writer.add_name(name)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32 if kind == "F32" else gguf.LlamaFileType[f"MOSTLY_{kind}"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_vocab_size(config["vocab_size"])


def _write_vocabulary(writer: Any, folder: Path, config: dict[str, Any]) -> None:
    document = json.loads((folder / "tokenizer.json").read_text())
    special = json.loads((folder / "tokenizer_config.json").read_text())
    kinds = dict.fromkeys(document["model"]["vocab"], gguf.TokenType.NORMAL)
    ids = dict(document["model"]["vocab"])
    for added in document["added_tokens"]:
        ids[added["content"]] = added["id"]
        kinds[added["content"]] = gguf.TokenType.CONTROL if added["special"] else gguf.TokenType.USER_DEFINED
    tokens = sorted(ids, key=lambda token: ids[token])
    if [ids[token] for token in tokens] != list(range(config["vocab_size"])):
        raise SystemExit(f"{folder}: the ids of the vocabulary have holes")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(PRE_TOKENIZER)
    writer.add_token_list(tokens)
    writer.add_token_types([kinds[token] for token in tokens])
    writer.add_token_merges([" ".join(pair) for pair in document["model"]["merges"]])
    writer.add_eos_token_id(ids[special["eos_token"]])
    writer.add_pad_token_id(ids[special["pad_token"]])
    writer.add_add_bos_token(False)
    template = (folder / "chat_template.jinja").read_text()
    writer.add_chat_template(template.replace(IN_JINJA, IN_LLAMA_CPP))


def main(arguments: list[str]) -> None:
    """Write the models asked for, all of them by default."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path, help="folder for the files; made where it is missing")
    parser.add_argument("--layers", type=int, help="as many, the added ones without effect: a dearer token")
    parser.add_argument("--kind", default="F32", choices=("F32", "F16", "Q8_0", "Q4_0"), help="type of the matrices")
    parser.add_argument("names", nargs="*", default=NAMES, metavar="NAME", help=f"of {', '.join(NAMES)}")
    chosen = parser.parse_intermixed_args(arguments)
    chosen.out.mkdir(parents=True, exist_ok=True)
    for name in chosen.names:
        write(MODELS / name, chosen.out / f"{name}.gguf", layers=chosen.layers, kind=chosen.kind)
        print(chosen.out / f"{name}.gguf")


if __name__ == "__main__":
    main(sys.argv[1:])
