"""Writes one of transformers' models as GGUF, by the conventions of the public converter: tensor names from the `gguf`
package's own maps, interleaved rows of q and k, shifted norms, the keys that each architecture has."""

import math
import re

import gguf
import numpy as np

import experts
import vocabulary

ARCHS = {name: arch for arch, name in gguf.MODEL_ARCH_NAMES.items()}


def rope_of(config):
    """The RoPE of the layers that see everything, where there are two kinds."""
    return config.rope_parameters.get("full_attention", config.rope_parameters)


def head_dim_of(config):
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def write_sizes(writer, config, kv_heads=None):
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(kv_heads or config.num_key_value_heads)


def write_head_dim(writer, config):
    if "head_dim" in config.to_dict():
        writer.add_key_length(head_dim_of(config))
        writer.add_value_length(head_dim_of(config))


def write_rope(writer, config):
    rope = rope_of(config)
    writer.add_rope_freq_base(rope["rope_theta"])
    if rope["rope_type"] in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(rope["rope_type"]))
        writer.add_rope_scaling_factor(rope["factor"])
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    local = config.rope_parameters.get("sliding_attention")
    if local:
        writer.add_rope_freq_base_swa(local["rope_theta"])


def write_common(writer, config):
    """What the converter writes for every architecture that has no list of its own."""
    write_sizes(writer, config)
    write_head_dim(writer, config)
    write_rope(writer, config)
    if hasattr(config, "rms_norm_eps"):
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    if hasattr(config, "layer_norm_eps"):
        writer.add_layer_norm_eps(config.layer_norm_eps)


def write_llama(writer, config):
    write_common(writer, config)
    writer.add_vocab_size(config.vocab_size)
    writer.add_rope_dimension_count(head_dim_of(config))


def write_granite(writer, config):
    write_llama(writer, config)
    writer.add_attention_scale(config.attention_multiplier)
    writer.add_embedding_scale(config.embedding_multiplier)
    writer.add_residual_scale(config.residual_multiplier)
    writer.add_logit_scale(config.logits_scaling)


def write_mixtral(writer, config):
    write_llama(writer, config)
    experts.write_keys(writer, config)


def write_granitemoe(writer, config):
    write_granite(writer, config)
    experts.write_keys(writer, config)


def write_with_experts(writer, config):
    write_common(writer, config)
    experts.write_keys(writer, config)


def write_gpt_oss(writer, config):
    write_with_experts(writer, config)
    writer.add_sliding_window(config.sliding_window)
    writer.add_expert_feed_forward_length(config.intermediate_size)


def write_gemma(writer, config):
    write_sizes(writer, config)
    write_head_dim(writer, config)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)


def write_gemma2(writer, config):
    write_gemma(writer, config)
    writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
    writer.add_final_logit_softcapping(config.final_logit_softcapping)
    writer.add_sliding_window(config.sliding_window)


def write_gemma3(writer, config):
    write_common(writer, config)
    writer.add_sliding_window(config.sliding_window)


def write_phi3(writer, config):
    write_sizes(writer, config)
    rope = rope_of(config)
    writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    rotated = rope.get("partial_rotary_factor", 1.0)
    writer.add_rope_dimension_count(int(rotated * config.hidden_size) // config.num_attention_heads)
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_sliding_window(config.sliding_window or 0)
    stretched = config.max_position_embeddings / rope["original_max_position_embeddings"]
    magnitude = math.sqrt(1 + math.log(stretched) / math.log(rope["original_max_position_embeddings"]))
    writer.add_rope_scaling_attn_factors(magnitude)


def write_olmo2(writer, config):
    write_common(writer, config)
    if "sliding_window" in config.to_dict():
        writer.add_sliding_window(config.sliding_window)
        writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in config.layer_types])


def write_stablelm(writer, config):
    write_sizes(writer, config)
    head = config.hidden_size // config.num_attention_heads
    writer.add_rope_dimension_count(int(rope_of(config)["partial_rotary_factor"] * head))
    writer.add_parallel_residual(config.use_parallel_residual)
    writer.add_layer_norm_eps(config.layer_norm_eps)


def write_command_r(writer, config):
    write_common(writer, config)
    writer.add_logit_scale(config.logit_scale)
    writer.add_rope_scaling_type(gguf.RopeScalingType.NONE)


def write_cohere2(writer, config):
    write_command_r(writer, config)
    writer.add_sliding_window(config.sliding_window)
    writer.add_vocab_size(config.vocab_size)
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)


def write_latent(writer, config, kv_heads=None):
    """What DeepSeek's, MiniCPM3's and PLM's files have in common."""
    write_sizes(writer, config, kv_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    if config.q_lora_rank is not None:
        writer.add_q_lora_rank(config.q_lora_rank)
    writer.add_kv_lora_rank(config.kv_lora_rank)
    writer.add_rope_dimension_count(config.qk_rope_head_dim)
    writer.add_rope_freq_base(rope_of(config)["rope_theta"])


def write_deepseek_experts(writer, config):
    """Files of V2 do not say how the router scores."""
    experts.write_keys(writer, config)
    writer.add_expert_weights_scale(config.routed_scaling_factor)
    writer.add_expert_weights_norm(config.norm_topk_prob)
    if config.n_group is not None:
        writer.add_expert_group_count(config.n_group)
        writer.add_expert_group_used_count(config.topk_group)
    if config.model_type == "deepseek_v3":
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)


def write_deepseek2(writer, config, split):
    """Older files give the sizes of a head as such and say nothing of the cache row."""
    write_latent(writer, config, 1 if split else None)
    head = config.qk_nope_head_dim + config.qk_rope_head_dim
    if split:
        writer.add_key_length(config.kv_lora_rank + config.qk_rope_head_dim)
        writer.add_value_length(config.kv_lora_rank)
        writer.add_key_length_mla(head)
        writer.add_value_length_mla(config.v_head_dim)
    else:
        writer.add_key_length(head)
        writer.add_value_length(config.v_head_dim)
    writer.add_leading_dense_block_count(config.first_k_dense_replace)
    writer.add_expert_shared_count(config.n_shared_experts)
    if config.first_k_dense_replace < config.num_hidden_layers:
        write_deepseek_experts(writer, config)
    else:
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    rope = rope_of(config)
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        writer.add_rope_scaling_yarn_log_mul(0.1 * rope["mscale_all_dim"])


def write_minicpm3(writer, config):
    write_latent(writer, config)
    writer.add_key_length(config.qk_nope_head_dim + config.qk_rope_head_dim)
    if config.v_head_dim != config.hidden_size // config.num_attention_heads:
        writer.add_value_length(config.v_head_dim)


def write_plm(writer, config):
    write_latent(writer, config)
    writer.add_key_length(config.qk_nope_head_dim + config.qk_rope_head_dim)
    writer.add_value_length(config.v_head_dim)


KEYS = {"granitemoe": write_granitemoe, "qwen2moe": write_with_experts, "qwen3moe": write_with_experts,
        "olmoe": write_with_experts, "gpt-oss": write_gpt_oss,
        "llama": write_llama, "smollm3": write_llama, "granite": write_granite, "qwen2": write_common,
        "qwen3": write_common, "gemma": write_gemma, "gemma2": write_gemma2, "gemma3": write_gemma3, "phi3": write_phi3,
        "olmo2": write_olmo2, "stablelm": write_stablelm, "command-r": write_command_r, "cohere2": write_cohere2,
        "minicpm3": write_minicpm3, "plm": write_plm}


def llama3_factors(config):
    """The divisors of each pair's frequency by Llama 3.1's rule: long waves are slowed, short ones are not."""
    rope, dim = rope_of(config), head_dim_of(config)
    context, factor = rope["original_max_position_embeddings"], rope["factor"]
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    factors = []
    for pair in range(dim // 2):
        turns = context * rope["rope_theta"] ** (-2 * pair / dim) / (2 * math.pi)
        mix = min(max((turns - low) / (high - low), 0), 1)
        factors.append(1 / (mix + (1 - mix) / factor))
    return np.array(factors, dtype=np.float32)


def rope_tensors(config):
    rope = rope_of(config)
    if rope["rope_type"] == "llama3":
        yield "rope_freqs.weight", llama3_factors(config)
    if rope["rope_type"] == "longrope":
        yield "rope_factors_long.weight", np.array(rope["long_factor"], dtype=np.float32)
        yield "rope_factors_short.weight", np.array(rope["short_factor"], dtype=np.float32)


def pairs_from_halves(weight, heads):
    """[heads, 2, d/2] rows become [heads, d/2, 2]: the two values that are rotated together are neighbours."""
    split = weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:])
    return np.ascontiguousarray(split.swapaxes(1, 2)).reshape(weight.shape)


def split_kv_b(config, value):
    """The matrix out of the latent, head by head the rows of keys and of values: the keys' transposed, and the values'."""
    heads, plain = config.num_attention_heads, config.qk_nope_head_dim
    both = value.reshape(heads, plain + config.v_head_dim, config.kv_lora_rank)
    return both[:, :plain].swapaxes(1, 2), both[:, plain:]


def merged_norms(state):
    """StableLM's norms of single heads become one tensor per layer."""
    merged = {}
    for name, value in state.items():
        found = re.fullmatch(r"(.*_layernorm)\.norms\.(\d+)(\.weight)", name)
        if found is None:
            merged[name] = value
        else:
            merged.setdefault(found[1] + found[3], {})[int(found[2])] = value
    return {n: np.stack([v[i] for i in sorted(v)]) if isinstance(v, dict) else v for n, v in merged.items()}


def tensors(tiny, model):
    """(name, f32 values) of every tensor of the file, in the order of its layers."""
    config = tiny.config
    names = gguf.get_tensor_name_map(ARCHS[tiny.arch], config.num_hidden_layers)
    state = {name: value.detach().numpy() for name, value in model.state_dict().items()}
    yield from rope_tensors(config)
    for name, value in merged_norms(state).items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        parts = list(experts.renamed(tiny, name, value))
        for target, part in parts:
            yield target, np.ascontiguousarray(part, dtype=np.float32)
        if parts:
            continue
        if name.endswith("self_attn.sinks"):
            name += ".weight"
        target = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if target is None:
            raise ValueError(f"{tiny.name}: the gguf package has no name for {name}")
        part = name.split(".")[-2]
        if tiny.split_kv_b and part == "kv_b_proj":
            keys, values = split_kv_b(config, value)
            yield target.replace("attn_kv_b", "attn_k_b"), np.ascontiguousarray(keys, dtype=np.float32)
            yield target.replace("attn_kv_b", "attn_v_b"), np.ascontiguousarray(values, dtype=np.float32)
            continue
        if tiny.permuted and part in ("q_proj", "k_proj"):
            value = pairs_from_halves(value, config.num_attention_heads if part == "q_proj" else config.num_key_value_heads)
        if tiny.norm_offset and name.endswith("norm.weight"):
            value = value + np.float32(tiny.norm_offset)
        yield target, np.ascontiguousarray(value, dtype=np.float32)


def write(tiny, model, path):
    writer = gguf.GGUFWriter(path, tiny.arch)
    writer.add_name(tiny.name)
    mixtral = tiny.arch == "llama" and "num_local_experts" in tiny.config.to_dict()
    if tiny.arch == "deepseek2":
        write_deepseek2(writer, tiny.config, tiny.split_kv_b)
    else:
        (write_mixtral if mixtral else KEYS[tiny.arch])(writer, tiny.config)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    vocabulary.write(writer, tiny.pre)
    for name, value in tensors(tiny, model):
        writer.add_tensor(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
