#include "perf/model_shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/text_file.h"
#include "perf/names.h"

namespace kvasir {
namespace {

namespace fs = std::filesystem;

// More than any model has; keeps products of three within 64 bits.
constexpr uint32_t kMostWidth = 1u << 20;
constexpr uint32_t kMostVocab = 1u << 24;
constexpr uint32_t kMostLayers = 4096;

Status out_of_range(std::string_view what, uint64_t value, uint64_t least, uint64_t most) {
  return corrupt(fmt::format("{} is {}, which is outside {} to {}", what, value, least, most));
}

Status check_count(std::string_view what, uint32_t value, uint32_t most, uint32_t least = 1) {
  return value >= least && value <= most ? Status() : out_of_range(what, value, least, most);
}

Status check_mla(const ModelShape::Mla& mla) {
  KVASIR_RETURN_IF_ERROR(check_count("the MLA rank of K and V", mla.kv_lora_rank, kMostWidth));
  KVASIR_RETURN_IF_ERROR(check_count("the MLA rank of queries", mla.q_lora_rank, kMostWidth, 0));
  KVASIR_RETURN_IF_ERROR(check_count("the rotated part of an MLA head", mla.qk_rope_head_dim, kMostWidth));
  KVASIR_RETURN_IF_ERROR(check_count("the plain part of an MLA head", mla.qk_nope_head_dim, kMostWidth));
  return check_count("the value size of an MLA head", mla.v_head_dim, kMostWidth);
}

Status check_moe(const ModelShape& s) {
  const ModelShape::Moe& moe = *s.moe;
  KVASIR_RETURN_IF_ERROR(check_count("the count of experts", moe.experts, kMostWidth));
  KVASIR_RETURN_IF_ERROR(check_count("the count of experts per token", moe.experts_used, moe.experts));
  KVASIR_RETURN_IF_ERROR(check_count("the width of an expert", moe.expert_ffn_dim, kMostWidth));
  KVASIR_RETURN_IF_ERROR(check_count("the count of shared experts", moe.shared_experts, 1024, 0));
  KVASIR_RETURN_IF_ERROR(check_count("the width of the shared experts", moe.shared_ffn_dim, kMostWidth, 0));
  return check_count("the count of leading dense layers", moe.leading_dense_layers, s.layers, 0);
}

// A file that is a config.json by its name, or the one in a folder.
std::string config_path(const std::string& text) {
  std::error_code error;
  if (fs::is_directory(text, error)) return (fs::path(text) / "config.json").string();
  return text.ends_with(".json") ? text : "";
}

// What to call the model of a config.json: its _name_or_path is rarely true, its folder's name mostly is.
std::string name_of_config(const std::string& path) {
  std::error_code error;
  const fs::path folder = fs::absolute(path, error).lexically_normal().parent_path();
  const fs::path file = fs::path(path).filename();
  return file == "config.json" && folder.has_filename() ? folder.filename().string() : file.stem().string();
}

}  // namespace

std::string_view attention_kind_name(AttentionKind kind) {
  switch (kind) {
    case AttentionKind::kMha:
      return "MHA";
    case AttentionKind::kGqa:
      return "GQA";
    case AttentionKind::kMqa:
      return "MQA";
    case AttentionKind::kMla:
      return "MLA";
  }
  return "";
}

AttentionKind ModelShape::attention() const {
  if (mla) return AttentionKind::kMla;
  if (kv_heads == heads) return AttentionKind::kMha;
  return kv_heads == 1 ? AttentionKind::kMqa : AttentionKind::kGqa;
}

uint32_t ModelShape::windowed_layers() const {
  return static_cast<uint32_t>(
      std::count_if(windows.begin(), windows.end(), [](uint32_t w) { return w > 0; }));
}

Status check_shape(const ModelShape& s) {
  KVASIR_RETURN_IF_ERROR(check_count("the vocabulary", s.vocab, kMostVocab));
  KVASIR_RETURN_IF_ERROR(check_count("the width", s.hidden, kMostWidth));
  KVASIR_RETURN_IF_ERROR(check_count("the count of layers", s.layers, kMostLayers));
  KVASIR_RETURN_IF_ERROR(check_count("the count of query heads", s.heads, kMostWidth));
  KVASIR_RETURN_IF_ERROR(check_count("the count of KV heads", s.kv_heads, s.heads));
  KVASIR_RETURN_IF_ERROR(check_count("the head size", s.head_dim, kMostWidth));
  KVASIR_RETURN_IF_ERROR(check_count("the count of feed-forward matrices", s.ffn_matrices, 3, 2));
  if (s.heads % s.kv_heads != 0)
    return corrupt(fmt::format("{} query heads cannot share {} KV heads evenly", s.heads, s.kv_heads));
  if (s.windows.size() != s.layers)
    return corrupt(fmt::format("{} windows are given for {} layers", s.windows.size(), s.layers));
  if (s.mla) KVASIR_RETURN_IF_ERROR(check_mla(*s.mla));
  if (s.moe) KVASIR_RETURN_IF_ERROR(check_moe(s));
  return check_count("the feed-forward width", s.ffn, kMostWidth, s.dense_layers() > 0 ? 1 : 0);
}

Result<ModelShape> resolve_shape(const std::string& text, std::optional<GgufFile>* file) {
  std::error_code error;
  if (const std::string config = config_path(text); !config.empty()) {
    if (!fs::exists(config, error)) return not_found(fmt::format("'{}': no such file", config));
    KVASIR_ASSIGN_OR_RETURN(const std::string json, read_text_file(config));
    Result<ModelShape> shape = shape_from_config(json, name_of_config(config));
    if (!shape.ok()) return Status(shape.status().code(), fmt::format("'{}': {}", config, shape.message()));
    shape->source = config;
    return shape;
  }
  if (fs::exists(text, error) || text.ends_with(".gguf")) {
    KVASIR_ASSIGN_OR_RETURN(GgufFile opened, GgufFile::open(text));
    Result<ModelShape> shape = shape_from_gguf(opened);
    if (!shape.ok()) return Status(shape.status().code(), fmt::format("'{}': {}", text, shape.message()));
    if (file != nullptr) *file = std::move(opened);
    return shape;
  }
  Result<ModelShape> shape = shape_by_name(text);
  if (!shape.ok() && text.find('/') != std::string::npos)
    return not_found(fmt::format("'{}' is no file, and {}", text, shape.message()));
  return shape;
}

}  // namespace kvasir
