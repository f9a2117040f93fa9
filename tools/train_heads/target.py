"""What heads need of the model that they draft for, from its GGUF file."""

import gguf
import numpy
import torch


class Target:
    """embedding and head [vocabulary, width] as float32 tensors, and the numbers of the configuration."""

    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        tensors = {tensor.name: tensor for tensor in reader.tensors}
        arch = reader.fields["general.architecture"].contents()

        def number(key, otherwise=None):
            field = reader.fields.get(f"{arch}.{key}")
            return field.contents() if field else otherwise

        def values(name):
            tensor = tensors[name]
            return torch.from_numpy(gguf.dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32))

        self.embedding = values("token_embd.weight")
        self.head = values("output.weight") if "output.weight" in tensors else self.embedding
        self.output_norm = values("output_norm.weight")
        self.values = values
        self.width = number("embedding_length")
        self.layers = number("block_count")
        self.heads = number("attention.head_count")
        self.kv_heads = number("attention.head_count_kv", self.heads)
        self.ffn = number("feed_forward_length")
        self.rope_base = number("rope.freq_base", 10000.0)
        self.eps = number("attention.layer_norm_rms_epsilon", 1e-5)
        self.head_dim = number("attention.key_length", self.width // self.heads)

    def last_layer(self):
        """Matrices [outputs, inputs] and norms of the last layer, under short names."""
        names = {"q": "attn_q", "k": "attn_k", "v": "attn_v", "o": "attn_output", "gate": "ffn_gate", "up": "ffn_up",
                 "down": "ffn_down", "attn_norm": "attn_norm", "ffn_norm": "ffn_norm"}
        return {short: self.values(f"blk.{self.layers - 1}.{name}.weight") for short, name in names.items()}
