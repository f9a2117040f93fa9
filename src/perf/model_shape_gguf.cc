// Model shapes from GGUF headers of any architecture. Keys: ggml docs/gguf.md; tensor names: llama.cpp
// src/llama-arch.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <variant>

#include "models/model_config.h"
#include "perf/model_shape.h"

namespace kvasir {
namespace {

constexpr int64_t kMost = int64_t{1} << 24;

// The keys of one architecture.
class Keys {
 public:
  Keys(const GgufMetadata& metadata, std::string arch) : metadata_(metadata), arch_(std::move(arch)) {}

  const std::string& arch() const { return arch_; }
  std::string key(std::string_view name) const { return fmt::format("{}.{}", arch_, name); }
  const GgufMetadata& metadata() const { return metadata_; }
  bool has(std::string_view name) const { return metadata_.contains(key(name)); }

  // A number, or a list that has the same one for every layer.
  Result<uint32_t> count_or(std::string_view name, uint32_t otherwise) const {
    const std::string k = key(name);
    const GgufMetadata::Value* value = metadata_.find(k);
    const auto* list = value == nullptr ? nullptr : std::get_if<std::vector<int64_t>>(value);
    if (list == nullptr) {
      KVASIR_ASSIGN_OR_RETURN(const auto number, metadata_.get_int(k, 0, kMost));
      return static_cast<uint32_t>(number.value_or(otherwise));
    }
    if (list->empty() || list->front() < 0 || list->front() > kMost)
      return corrupt(fmt::format("metadata key '{}' lists no count", k));
    for (const int64_t n : *list)
      if (n != list->front())
        return unsupported(
            fmt::format("metadata key '{}' differs by layer ({} and {}): such models are not known", k,
                        list->front(), n));
    return static_cast<uint32_t>(list->front());
  }
  Result<uint32_t> need_count(std::string_view name) const {
    if (!has(name)) return corrupt(fmt::format("metadata key '{}' is missing", key(name)));
    return count_or(name, 0);
  }

 private:
  const GgufMetadata& metadata_;
  std::string arch_;
};

bool any_layer_has(const GgufFile& file, uint32_t layers, std::string_view tensor) {
  for (uint32_t l = 0; l < layers; ++l)
    if (file.find_tensor(fmt::format("blk.{}.{}", l, tensor)) != nullptr) return true;
  return false;
}

uint32_t elements_of(const GgufFile& file, std::string_view tensor) {
  const TensorInfo* found = file.find_tensor(tensor);
  return found == nullptr ? 0 : static_cast<uint32_t>(std::min<uint64_t>(found->view.elements(), kMost));
}

// A layer is windowed unless it is the last of every so many (llama.cpp src/llama-model.cpp), in
// architectures that the engine does not run; others that name a window attend to everything.
uint32_t default_pattern(std::string_view arch) {
  if (arch == "exaone4") return 4;
  if (arch == "gemma3n") return 5;
  return 0;
}

Status read_windows(const Keys& keys, ModelShape* s) {
  s->windows.assign(s->layers, 0);
  if (s->mla) return {};  // no such model has any
  if (find_architecture(keys.arch()).ok()) {
    KVASIR_ASSIGN_OR_RETURN(const ModelConfig config, read_model_config(keys.metadata()));
    s->windows = config.windows;
    return {};
  }
  KVASIR_ASSIGN_OR_RETURN(const uint32_t window, keys.count_or("attention.sliding_window", 0));
  if (window == 0) return {};
  const std::string name = keys.key("attention.sliding_window_pattern");
  const GgufMetadata::Value* value = keys.metadata().find(name);
  if (value != nullptr && std::holds_alternative<std::vector<bool>>(*value)) {
    const auto& listed = std::get<std::vector<bool>>(*value);
    if (listed.size() != s->layers)
      return corrupt(fmt::format("metadata key '{}' lists {} layers of {}", name, listed.size(), s->layers));
    for (uint32_t l = 0; l < s->layers; ++l)
      if (listed[l]) s->windows[l] = window;
    return {};
  }
  KVASIR_ASSIGN_OR_RETURN(const uint32_t pattern,
                          keys.count_or("attention.sliding_window_pattern", default_pattern(keys.arch())));
  for (uint32_t l = 0; l < s->layers && pattern > 0; ++l)
    if (l % pattern < pattern - 1) s->windows[l] = window;
  return {};
}

// DeepSeek's keys have two layouts: the present one gives the sizes of a head as *_mla, for key_length is
// that of the cache row; older files give them as key_length.
Status read_mla(const Keys& keys, ModelShape* s) {
  ModelShape::Mla mla;
  KVASIR_ASSIGN_OR_RETURN(mla.kv_lora_rank, keys.need_count("attention.kv_lora_rank"));
  KVASIR_ASSIGN_OR_RETURN(mla.q_lora_rank, keys.count_or("attention.q_lora_rank", 0));
  KVASIR_ASSIGN_OR_RETURN(mla.qk_rope_head_dim, keys.need_count("rope.dimension_count"));
  const bool present = keys.has("attention.key_length_mla");
  KVASIR_ASSIGN_OR_RETURN(s->head_dim,
                          keys.need_count(present ? "attention.key_length_mla" : "attention.key_length"));
  KVASIR_ASSIGN_OR_RETURN(mla.v_head_dim,
                          keys.count_or(present ? "attention.value_length_mla" : "attention.value_length",
                                        s->heads > 0 ? s->hidden / s->heads : 0));
  if (s->head_dim <= mla.qk_rope_head_dim)
    return corrupt(
        fmt::format("an MLA head has {} values, of which {} are rotated", s->head_dim, mla.qk_rope_head_dim));
  mla.qk_nope_head_dim = s->head_dim - mla.qk_rope_head_dim;
  s->kv_heads = s->heads;
  s->mla = mla;
  return {};
}

Status read_attention(const Keys& keys, ModelShape* s) {
  KVASIR_ASSIGN_OR_RETURN(s->heads, keys.need_count("attention.head_count"));
  KVASIR_ASSIGN_OR_RETURN(s->kv_heads, keys.count_or("attention.head_count_kv", s->heads));
  KVASIR_ASSIGN_OR_RETURN(const uint32_t rank, keys.count_or("attention.kv_lora_rank", 0));
  if (rank > 0) return read_mla(keys, s);
  const uint32_t divided = s->heads > 0 ? s->hidden / s->heads : 0;
  KVASIR_ASSIGN_OR_RETURN(s->head_dim, keys.count_or("attention.key_length", divided));
  KVASIR_ASSIGN_OR_RETURN(const uint32_t value, keys.count_or("attention.value_length", s->head_dim));
  if (value != s->head_dim)
    return unsupported(fmt::format("metadata keys '{}' and '{}' are {} and {}: such models are not known",
                                   keys.key("attention.key_length"), keys.key("attention.value_length"),
                                   s->head_dim, value));
  return {};
}

Status read_experts(const GgufFile& file, const Keys& keys, ModelShape* s) {
  ModelShape::Moe moe;
  KVASIR_ASSIGN_OR_RETURN(moe.experts, keys.count_or("expert_count", 0));
  if (moe.experts == 0) return {};
  KVASIR_ASSIGN_OR_RETURN(moe.experts_used, keys.need_count("expert_used_count"));
  KVASIR_ASSIGN_OR_RETURN(moe.expert_ffn_dim, keys.count_or("expert_feed_forward_length", s->ffn));
  KVASIR_ASSIGN_OR_RETURN(moe.leading_dense_layers, keys.count_or("leading_dense_block_count", 0));
  KVASIR_ASSIGN_OR_RETURN(moe.shared_experts, keys.count_or("expert_shared_count", 0));
  KVASIR_ASSIGN_OR_RETURN(moe.shared_ffn_dim, keys.count_or("expert_shared_feed_forward_length",
                                                            moe.shared_experts * moe.expert_ffn_dim));
  if (moe.shared_ffn_dim > 0) moe.shared_experts = std::max(moe.shared_experts, 1u);
  moe.selection_bias = any_layer_has(file, s->layers, "exp_probs_b.bias");
  moe.shared_gate = any_layer_has(file, s->layers, "ffn_gate_inp_shexp.weight");
  moe.biases = any_layer_has(file, s->layers, "ffn_down_exps.bias");
  if (moe.leading_dense_layers == 0) s->ffn = 0;
  s->moe = moe;
  return {};
}

// What only the tensors say.
Status read_directory(const GgufFile& file, ModelShape* s) {
  const TensorInfo* embedding = file.find_tensor("token_embd.weight");
  if (embedding == nullptr) return corrupt("there is no tensor 'token_embd.weight': not a language model");
  s->vocab = static_cast<uint32_t>(std::min<uint64_t>(embedding->view.shape[1], UINT32_MAX));
  s->tied_embeddings = file.find_tensor("output.weight") == nullptr;
  const TensorInfo* up = file.find_tensor("blk.0.ffn_up.weight");
  const bool fused = up != nullptr && s->ffn > 0 && up->view.shape[1] == uint64_t{2} * s->ffn;
  const bool gated = fused || any_layer_has(file, s->layers, "ffn_gate.weight") ||
                     any_layer_has(file, s->layers, "ffn_gate_exps.weight") ||
                     any_layer_has(file, s->layers, "ffn_gate.0.weight") ||
                     any_layer_has(file, s->layers, "ffn_gate_up_exps.weight");
  s->ffn_matrices = gated ? 3 : 2;
  s->qk_norm = elements_of(file, "blk.0.attn_q_norm.weight") + elements_of(file, "blk.0.attn_k_norm.weight");
  s->norm_bias = file.find_tensor("output_norm.bias") != nullptr;
  s->qkv_bias =
      any_layer_has(file, s->layers, "attn_q.bias") || any_layer_has(file, s->layers, "attn_qkv.bias");
  s->output_bias = any_layer_has(file, s->layers, "attn_output.bias");
  s->attention_sinks = any_layer_has(file, s->layers, "attn_sinks.weight");
  s->ffn_bias = any_layer_has(file, s->layers, "ffn_down.bias");
  s->norms_per_layer = 0;
  for (const char* norm :
       {"attn_norm.weight", "ffn_norm.weight", "post_attention_norm.weight", "post_ffw_norm.weight"})
    s->norms_per_layer += any_layer_has(file, s->layers, norm) ? 1 : 0;
  uint64_t parameters = 0, bytes = 0, experts = 0;
  for (const TensorInfo& tensor : file.tensors()) {
    parameters += tensor.view.elements();
    bytes += tensor.view.bytes();
    if (holds_routed_experts(tensor.name)) experts += tensor.view.bytes();
  }
  s->stored_parameters = parameters;
  s->stored_bytes = bytes;
  s->stored_expert_bytes = experts;
  s->stored_embedding_bytes = embedding->view.bytes();
  return {};
}

// The storage type of most of the bytes, with the average over all of them.
WeightFormat stored_format(const GgufFile& file, const ModelShape& s) {
  std::map<DType, uint64_t> bytes;
  for (const TensorInfo& tensor : file.tensors()) bytes[tensor.view.type] += tensor.view.bytes();
  const auto most = std::max_element(bytes.begin(), bytes.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  std::string name(dtype_info(most->first).name);
  if (bytes.size() > 1) name += " mostly";
  return {std::move(name),
          8.0 * static_cast<double>(*s.stored_bytes) / static_cast<double>(*s.stored_parameters)};
}

}  // namespace

bool holds_routed_experts(std::string_view tensor) {
  if (tensor.find("_exps.") != std::string_view::npos) return true;
  for (const std::string_view part : {"ffn_gate.", "ffn_up.", "ffn_down."}) {
    const size_t at = tensor.find(part);
    if (at == std::string_view::npos) continue;
    const size_t next = at + part.size();
    return next < tensor.size() && tensor[next] >= '0' && tensor[next] <= '9';
  }
  return false;
}

Result<ModelShape> shape_from_gguf(const GgufFile& file) {
  const GgufMetadata& metadata = file.metadata();
  KVASIR_ASSIGN_OR_RETURN(std::string arch, metadata.require_string("general.architecture"));
  const Keys keys(metadata, std::move(arch));
  ModelShape s;
  s.architecture = keys.arch();
  s.source = file.path();
  KVASIR_ASSIGN_OR_RETURN(const auto name, metadata.get_string("general.name"));
  s.name = name.value_or(std::filesystem::path(file.path()).stem().string());
  KVASIR_ASSIGN_OR_RETURN(s.hidden, keys.need_count("embedding_length"));
  KVASIR_ASSIGN_OR_RETURN(s.layers, keys.need_count("block_count"));
  if (s.layers > 4096)
    return corrupt(fmt::format("metadata key '{}' is {}", keys.key("block_count"), s.layers));
  KVASIR_ASSIGN_OR_RETURN(s.ffn, keys.count_or("feed_forward_length", 0));
  KVASIR_ASSIGN_OR_RETURN(s.max_context, keys.count_or("context_length", 0));
  KVASIR_RETURN_IF_ERROR(read_attention(keys, &s));
  KVASIR_RETURN_IF_ERROR(read_experts(file, keys, &s));
  KVASIR_RETURN_IF_ERROR(read_directory(file, &s));
  KVASIR_RETURN_IF_ERROR(read_windows(keys, &s));
  s.weights = stored_format(file, s);
  KVASIR_RETURN_IF_ERROR(check_shape(s));
  return s;
}

}  // namespace kvasir
