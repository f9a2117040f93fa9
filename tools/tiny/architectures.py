"""The small models: for each architecture the real topology, with sizes at which its features show within 64
positions (windows, original contexts and rotary bases are short)."""

import dataclasses
import math

import torch
import transformers as t

import vocabulary

POSITIONS = 64
WINDOW = 20


@dataclasses.dataclass
class Tiny:
    """`features`: for each feature, what to change in the configuration (or, with a key of several parts, inside
    it) so that the feature is gone; the logits must then be others."""

    name: str
    arch: str  # general.architecture
    model: type
    config: object
    pre: str  # tokenizer.ggml.pre
    features: dict = dataclasses.field(default_factory=dict)
    permuted: bool = False  # rows of q and k are interleaved for rotation in neighbouring pairs
    norm_offset: float = 0.0  # what the converter adds to norm weights
    embedding_scale: float = 1.0
    split_kv_b: bool = False  # the keys' and the values' matrix out of the latent are tensors of their own

    def build(self, config=None):
        return self.model(config or self.config).float().eval()


def sizes(layers=2, hidden=64, ffn=96, heads=4, kv=2, context=128, **more):
    return {
        "vocab_size": vocabulary.SIZE,
        "hidden_size": hidden,
        "intermediate_size": ffn,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "max_position_embeddings": context,
        "attn_implementation": "eager",
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    } | more


def rope(kind="default", theta=10000.0, **more):
    return {"rope_type": kind, "rope_theta": theta} | more


def kinds(layers, period):
    return ["full_attention" if i % period == period - 1 else "sliding_attention" for i in range(layers)]


NO_ROPE_SCALING = {"rope_parameters": rope()}


def llamas():
    llama3 = rope("llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)
    yield Tiny(
        "llama-3", "llama", t.LlamaForCausalLM,
        t.LlamaConfig(**sizes(ffn=256), rope_parameters=llama3, tie_word_embeddings=False), "llama-bpe",
        {"scaled rope": NO_ROPE_SCALING}, permuted=True)
    yield Tiny(
        "llama-biased", "llama", t.LlamaForCausalLM,
        t.LlamaConfig(**sizes(), rope_parameters=rope("linear", factor=4.0), attention_bias=True, mlp_bias=True,
                      tie_word_embeddings=True), "smollm", {"scaled rope": NO_ROPE_SCALING}, permuted=True)
    yield Tiny(
        "mistral", "llama", t.MistralForCausalLM,
        t.MistralConfig(**sizes(kv=1, head_dim=32), rope_parameters=rope(), sliding_window=None,
                        tie_word_embeddings=False), "tekken", {}, permuted=True)
    yield Tiny(
        "smollm3", "smollm3", t.SmolLM3ForCausalLM,
        t.SmolLM3Config(**sizes(layers=5), rope_parameters=rope(), tie_word_embeddings=True), "smaug-bpe",
        {"layers without rope": {"no_rope_layers": [1] * 5}}, permuted=True)
    yield Tiny(
        "granite", "granite", t.GraniteForCausalLM,
        t.GraniteConfig(**sizes(), rope_parameters=rope(), tie_word_embeddings=True, embedding_multiplier=6.0,
                        residual_multiplier=0.4, attention_multiplier=0.2, logits_scaling=4.0), "refact",
        {"embedding scale": {"embedding_multiplier": 1.0}, "residual scale": {"residual_multiplier": 1.0},
         "attention scale": {"attention_multiplier": 0.25}}, permuted=True, embedding_scale=6.0)


def qwens():
    yarn = rope("yarn", factor=4.0, original_max_position_embeddings=32)
    yield Tiny("qwen2", "qwen2", t.Qwen2ForCausalLM,
               t.Qwen2Config(**sizes(), rope_parameters=yarn, tie_word_embeddings=True), "qwen2",
               {"yarn": NO_ROPE_SCALING})
    yield Tiny("qwen3", "qwen3", t.Qwen3ForCausalLM,
               t.Qwen3Config(**sizes(head_dim=32), rope_parameters=rope(), tie_word_embeddings=False), "qwen2")


def experts(count, used, name="num_experts"):
    return {name: count, "num_experts_per_tok": used, "tie_word_embeddings": False}


def mixtures():
    plain, normalised = {"norm_topk_prob": False}, {"norm_topk_prob": True}
    yield Tiny(
        "mixtral", "llama", t.MixtralForCausalLM,
        t.MixtralConfig(**sizes(ffn=64), **experts(4, 2, "num_local_experts"), rope_parameters=rope(),
                        sliding_window=None), "llama-bpe", {"second expert": {"num_experts_per_tok": 1}}, permuted=True)
    yield Tiny(
        "qwen2moe", "qwen2moe", t.Qwen2MoeForCausalLM,
        t.Qwen2MoeConfig(**sizes(), **experts(6, 2), rope_parameters=rope(), moe_intermediate_size=32,
                         shared_expert_intermediate_size=96, **plain), "qwen2", {"weights as they are": normalised})
    yield Tiny(
        "qwen3moe", "qwen3moe", t.Qwen3MoeForCausalLM,
        t.Qwen3MoeConfig(**sizes(head_dim=32), **experts(8, 3), rope_parameters=rope(),
                         moe_intermediate_size=32, **normalised), "qwen2", {"normalised weights": plain})
    yield Tiny(
        "olmoe", "olmoe", t.OlmoeForCausalLM,
        t.OlmoeConfig(**sizes(ffn=32), **experts(8, 3), rope_parameters=rope(), **plain), "dbrx",
        {"weights as they are": normalised})
    factors = {"embedding_multiplier": 6.0, "residual_multiplier": 0.4, "attention_multiplier": 0.2,
               "logits_scaling": 4.0}
    yield Tiny(
        "granitemoe", "granitemoe", t.GraniteMoeForCausalLM,
        t.GraniteMoeConfig(**sizes(ffn=64), **experts(4, 2, "num_local_experts"), rope_parameters=rope(), **factors),
        "refact", {"residual scale": {"residual_multiplier": 1.0}}, permuted=True, embedding_scale=6.0)
    yield Tiny(
        "granitemoe-shared", "granitemoe", t.GraniteMoeSharedForCausalLM,
        t.GraniteMoeSharedConfig(**sizes(ffn=64), **experts(4, 2, "num_local_experts"), shared_intermediate_size=96,
                                 rope_parameters=rope(), **factors), "refact", {}, permuted=True, embedding_scale=6.0)
    yarn = rope("yarn", 150000.0, factor=4.0, beta_fast=32.0, beta_slow=1.0, truncate=False,
                original_max_position_embeddings=32)
    yield Tiny(
        "gpt-oss", "gpt-oss", t.GptOssForCausalLM,
        t.GptOssConfig(**sizes(layers=4, ffn=64, head_dim=16), **experts(4, 2, "num_local_experts"),
                       rope_parameters=yarn, sliding_window=WINDOW, layer_types=kinds(4, 2)), "gpt-4o",
        {"window": {"sliding_window": 64}, "yarn": {"rope_parameters": rope(theta=150000.0)},
         "ramp between pairs": {"rope_parameters": yarn | {"truncate": True}},
         "limits of the activation": {"swiglu_limit": 1000.0}})


def gemmas():
    gelu = {"hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True}
    common = {"norm_offset": 1.0, "embedding_scale": math.sqrt(64)}
    yield Tiny("gemma", "gemma", t.GemmaForCausalLM,
               t.GemmaConfig(**sizes(kv=1, head_dim=32), hidden_act="gelu_pytorch_tanh", rope_parameters=rope(),
                             tie_word_embeddings=True), "gpt-2", **common)
    yield Tiny(
        "gemma2", "gemma2", t.Gemma2ForCausalLM,
        t.Gemma2Config(**sizes(layers=4, head_dim=32), **gelu, rope_parameters=rope(), sliding_window=WINDOW,
                       query_pre_attn_scalar=32, attn_logit_softcapping=4.0, final_logit_softcapping=6.0), "gpt-2",
        {"window": {"sliding_window": 64}, "cap of scores": {"attn_logit_softcapping": None},
         "cap of logits": {"final_logit_softcapping": None}}, **common)
    yield Tiny(
        "gemma3", "gemma3", t.Gemma3ForCausalLM,
        t.Gemma3TextConfig(**sizes(layers=7, ffn=64), **gelu, head_dim=16, sliding_window=WINDOW,
                           query_pre_attn_scalar=16, layer_types=kinds(7, 6),
                           rope_parameters={"full_attention": rope("linear", 1e6, factor=8.0),
                                            "sliding_attention": rope()}), "gpt-2",
        {"window": {"sliding_window": 64}, "local base": {"rope_parameters.sliding_attention": rope(theta=1e6)},
         "scaled rope": {"rope_parameters.full_attention": rope(theta=1e6)}}, **common)


def phis():
    def factors(pairs, first, step):
        return [round(first + step * i, 2) for i in range(pairs)]

    def longrope(pairs, original, rotated=1.0):
        return rope("longrope", short_factor=factors(pairs, 1.0, 0.15), long_factor=factors(pairs, 1.2, 0.7),
                    original_max_position_embeddings=original, partial_rotary_factor=rotated)

    plain = {"rope_parameters": rope(partial_rotary_factor=1.0)}
    yield Tiny("phi3-long", "phi3", t.Phi3ForCausalLM,
               t.Phi3Config(**sizes(), rope_parameters=longrope(8, 32), original_max_position_embeddings=32,
                            sliding_window=WINDOW, tie_word_embeddings=False), "dbrx",
               {"window": {"sliding_window": None}, "longrope": plain})
    yield Tiny("phi4-mini", "phi3", t.Phi3ForCausalLM,
               t.Phi3Config(**sizes(heads=2, kv=1), rope_parameters=longrope(12, 64, 0.75),
                            original_max_position_embeddings=64, sliding_window=None, tie_word_embeddings=True),
               "gpt-4o", {"partial rotary": plain})


def olmos():
    yield Tiny("olmo2", "olmo2", t.Olmo2ForCausalLM,
               t.Olmo2Config(**sizes(), rope_parameters=rope(), tie_word_embeddings=False), "dbrx")
    yarn = rope("yarn", factor=4.0, original_max_position_embeddings=32)
    yield Tiny("olmo3", "olmo2", t.Olmo3ForCausalLM,
               t.Olmo3Config(**sizes(layers=4), rope_parameters={"full_attention": yarn, "sliding_attention": rope()},
                             sliding_window=WINDOW, layer_types=kinds(4, 4), tie_word_embeddings=False), "dbrx",
               {"window": {"sliding_window": 64}, "yarn": {"rope_parameters.full_attention": rope()},
                "rope of windows unscaled": {"rope_parameters.sliding_attention": yarn}})


def layer_norms():
    yield Tiny("stablelm", "stablelm", t.StableLmForCausalLM,
               t.StableLmConfig(**sizes(hidden=96, heads=2, kv=2), rope_parameters=rope(partial_rotary_factor=0.25),
                                use_qkv_bias=True, tie_word_embeddings=False), "stablelm2",
               {"partial rotary": {"rope_parameters": rope(partial_rotary_factor=1.0)}})
    yield Tiny("stablelm-parallel", "stablelm", t.StableLmForCausalLM,
               t.StableLmConfig(**sizes(), rope_parameters=rope(partial_rotary_factor=0.5), qk_layernorm=True,
                                use_parallel_residual=True, tie_word_embeddings=False), "stablelm2")
    yield Tiny("command-r", "command-r", t.CohereForCausalLM,
               t.CohereConfig(**sizes(), rope_parameters=rope(), logit_scale=0.25), "command-r")
    yield Tiny("command-r-plus", "command-r", t.CohereForCausalLM,
               t.CohereConfig(**sizes(), rope_parameters=rope(), logit_scale=0.5, use_qk_norm=True), "command-r")
    yield Tiny("cohere2", "cohere2", t.Cohere2ForCausalLM,
               t.Cohere2Config(**sizes(layers=4, head_dim=16), rope_parameters=rope(), logit_scale=0.25,
                               sliding_window=WINDOW, layer_types=kinds(4, 4)), "command-r",
               {"window": {"sliding_window": 64}})


class PlmConfig(t.DeepseekV3Config):
    model_type = "plm"


class PlmFeedForward(torch.nn.Module):
    """down(relu(up(x))^2)"""

    def __init__(self, config):
        super().__init__()
        self.up_proj = torch.nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = torch.nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x):
        return self.down_proj(torch.relu(self.up_proj(x)) ** 2)


class PlmForCausalLM(t.DeepseekV3ForCausalLM):
    """PLM (arXiv 2503.12167), which transformers lacks: DeepSeek's attention, and its own feed-forward part."""

    config_class = PlmConfig

    def __init__(self, config):
        super().__init__(config)
        for layer in self.model.layers:
            layer.mlp = PlmFeedForward(config)


def latents():
    """Multi-head latent attention, without experts and with them."""

    def latent(layers=2, query=None, value=32, heads=4, **more):
        return sizes(layers=layers, heads=heads, kv=heads, rms_norm_eps=1e-6, kv_lora_rank=32, q_lora_rank=query,
                     qk_nope_head_dim=32, qk_rope_head_dim=16, v_head_dim=value) | more

    def mixture(dense, shared, **more):
        return {"first_k_dense_replace": dense, "n_shared_experts": shared, "moe_intermediate_size": 32} | more

    yarn = rope("yarn", factor=4.0, original_max_position_embeddings=32, mscale=1.0, mscale_all_dim=1.0, beta_fast=32.0,
                beta_slow=1.0)
    scaled = {"yarn": NO_ROPE_SCALING, "scale of scores": {"rope_parameters.mscale_all_dim": 0.0,
                                                           "rope_parameters.attention_factor": 1.0}}
    untied = {"tie_word_embeddings": False}
    yield Tiny("youtu-llm", "deepseek2", t.DeepseekV3ForCausalLM,
               t.DeepseekV3Config(**latent(query=64) | mixture(2, 0) | untied, rope_parameters=yarn), "llama-bpe", scaled)
    yield Tiny(
        "deepseek-v2-lite", "deepseek2", t.DeepseekV2ForCausalLM,
        t.DeepseekV2Config(**latent(ffn=256, value=16) | mixture(1, 2, n_routed_experts=6, num_experts_per_tok=2) | untied,
                           rope_parameters=rope()), "deepseek-llm",
        {"second expert": {"num_experts_per_tok": 1}}, split_kv_b=True)
    groups = {"n_routed_experts": 8, "num_experts_per_tok": 3, "n_group": 4, "topk_group": 2}
    yield Tiny(
        "deepseek-v2", "deepseek2", t.DeepseekV2ForCausalLM,
        t.DeepseekV2Config(**latent(query=64) | mixture(1, 1, topk_method="group_limited_greedy", **groups) | untied,
                           routed_scaling_factor=4.0, rope_parameters=yarn), "deepseek-llm",
        scaled | {"groups": {"topk_method": "greedy"}, "scale of weights": {"routed_scaling_factor": 1.0}})
    yield Tiny(
        "deepseek-v3", "deepseek2", t.DeepseekV3ForCausalLM,
        t.DeepseekV3Config(**latent(layers=3, query=32, heads=9, kv_lora_rank=64) | mixture(1, 1, **groups) | untied,
                           routed_scaling_factor=2.5, norm_topk_prob=True, rope_parameters=yarn), "deepseek-v3",
        scaled | {"groups": {"topk_group": 4}, "scale of weights": {"routed_scaling_factor": 1.0},
                  "normalised weights": {"norm_topk_prob": False}}, split_kv_b=True)
    longrope = rope("longrope", short_factor=[1.0 + 0.15 * i for i in range(8)],
                    long_factor=[1.2 + 0.7 * i for i in range(8)], original_max_position_embeddings=128)
    yield Tiny("minicpm3", "minicpm3", t.MiniCPM3ForCausalLM,
               t.MiniCPM3Config(**latent(layers=4, query=32), rope_parameters=longrope, scale_depth=1.4, dim_model_base=256,
                                tie_word_embeddings=True), "smollm",
               {"longrope": NO_ROPE_SCALING, "embedding scale": {"scale_emb": 1.0},
                "residual scale": {"scale_depth": 2.0}}, embedding_scale=12.0)
    yield Tiny("plm", "plm", PlmForCausalLM,
               PlmConfig(**latent() | {"first_k_dense_replace": 2}, rope_parameters=rope(), tie_word_embeddings=True),
               "qwen2")


def all_models():
    return [*llamas(), *qwens(), *mixtures(), *gemmas(), *phis(), *olmos(), *layer_norms(), *latents()]
