"""Runs draft heads in vLLM: its reading of config.json, its loaders, which refuse a file that lacks a weight, and its
modules, in f32 on the CPU. Only attention is put in the place of vLLM's, whose kernels want a cache of their engine.
"""

import tempfile

import torch
from vllm.config import set_current_vllm_config
from vllm.distributed import init_distributed_environment, initialize_model_parallel
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.layers.attention import Attention
from vllm.model_executor.model_loader import get_model
from vllm.model_executor.models.medusa import Medusa
from vllm.v1.spec_decode.eagle import EagleProposer

GUESSES = 4


class CausalAttention:
    """softmax(q k^T / sqrt(d)) v over the rows that a layer was given since forget(): all up to each, or those of a
    window that ends with it."""

    seen = {}

    @classmethod
    def forget(cls):
        cls.seen.clear()

    def forward(self, query, key, value, output_shape=None, output_dtype=None):
        rows = query.shape[0]
        q = query.view(rows, self.num_heads, self.head_size)
        k, v = key.view(rows, self.num_kv_heads, self.head_size), value.view(rows, self.num_kv_heads, self.head_size)
        if self.layer_name in CausalAttention.seen:
            before = CausalAttention.seen[self.layer_name]
            k, v = torch.cat([before[0], k]), torch.cat([before[1], v])
        CausalAttention.seen[self.layer_name] = (k, v)
        group = self.num_heads // self.num_kv_heads
        scores = torch.einsum("qhd,khd->hqk", q, k.repeat_interleave(group, 1)) * self.head_size**-0.5
        behind = torch.arange(len(k) - rows, len(k))[:, None] - torch.arange(len(k))[None]
        seen = (behind >= 0) & (behind < (self.sliding_window or len(k)))
        weights = scores.masked_fill(~seen, float("-inf")).softmax(-1)
        return torch.einsum("hqk,khd->qhd", weights, v.repeat_interleave(group, 1)).reshape(rows, -1)


Attention.forward = CausalAttention.forward
torch.accelerator.empty_cache = lambda: None  # the loader's, which a machine without one has not
# vLLM 0.32 makes token_map a parameter when it reads one, and then misses it among those that were read.
read_medusa = Medusa.load_weights
Medusa.load_weights = lambda self, weights: read_medusa(self, weights) | {"token_map"}


def start():
    """One process that is all ranks there are. Call once."""
    init_distributed_environment(1, 0, f"file://{tempfile.mktemp()}", 0, "gloo")
    initialize_model_parallel()


class VllmHead:
    """A head's folder beside its target's, both as vLLM loads them."""

    def __init__(self, target, folder, kind, guesses=GUESSES, dtype="float32", length=128):
        self.kind = kind
        config = EngineArgs(
            model=str(target), skip_tokenizer_init=True, dtype=dtype, enforce_eager=True, max_model_len=length,
            speculative_config={"method": kind, "model": str(folder), "num_speculative_tokens": guesses},
        ).create_engine_config()
        self.config = config
        with set_current_vllm_config(config):
            if not torch.distributed.is_initialized():
                start()
            self.target = get_model(vllm_config=config)
            if kind == "medusa":
                self.model = get_model(vllm_config=config, model_config=config.speculative_config.draft_model_config)
                return
            proposer = EagleProposer(config, torch.device("cpu"))
            proposer.load_model(self.target)  # shares what the head has not with the target, as vLLM does
            self.model = proposer.model

    def points(self):
        """Layers in front of which vLLM takes the features of EAGLE-3."""
        head = self.config.speculative_config.draft_model_config.hf_config
        nested = getattr(head, "eagle_config", None) or {}
        ids = getattr(head, "eagle_aux_hidden_state_layer_ids", None) or nested.get("eagle_aux_hidden_state_layer_ids")
        return list(ids or self.target.get_eagle3_default_aux_hidden_state_layers())

    @torch.inference_mode()
    def features(self, tokens):
        """What the target gives of each token: (rows, inputs of the head)."""
        CausalAttention.forget()
        positions = torch.arange(len(tokens))
        with set_current_vllm_config(self.config):
            if self.kind != "eagle3":
                return self.target.model(tokens, positions, None)
            self.target.set_aux_hidden_state_layers(tuple(self.points()))
            return torch.cat(self.target.model(tokens, positions, None)[1], -1)

    @torch.inference_mode()
    def draft(self, tokens, features, guesses=GUESSES):
        """Logits (guesses, vocabulary) behind `tokens`, of which all but the last have features; the likeliest token
        of each is the next row's."""
        CausalAttention.forget()
        with set_current_vllm_config(self.config):
            if self.kind == "medusa":
                return torch.cat(self.model.compute_logits(self.model(features[-1:])))
            hidden = self.model.combine_hidden_states(features) if self.kind == "eagle3" else features
            ids, positions, rows = tokens[1:], torch.arange(len(tokens) - 1), []
            for _ in range(guesses):
                last, hidden = self.model(ids, positions, hidden)
                rows.append(self.model.compute_logits(last[-1:]))
                ids, positions, hidden = rows[-1].argmax(-1), positions[-1:] + 1, hidden[-1:]
            return torch.cat(rows)
