#include "apps/kvasir/model_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>

#include "base/log.h"
#include "base/text_file.h"
#include "kvcache/kv_layout.h"
#include "perf/model_shape.h"

namespace kvasir {
namespace {

// llama.cpp's llama_ftype, as converters write it into general.file_type.
std::string file_type_name(int64_t type) {
  static constexpr std::array<std::pair<int64_t, const char*>, 19> kNames = {{{0, "F32"},
                                                                              {1, "F16"},
                                                                              {2, "Q4_0"},
                                                                              {3, "Q4_1"},
                                                                              {7, "Q8_0"},
                                                                              {8, "Q5_0"},
                                                                              {9, "Q5_1"},
                                                                              {10, "Q2_K"},
                                                                              {11, "Q3_K_S"},
                                                                              {12, "Q3_K_M"},
                                                                              {13, "Q3_K_L"},
                                                                              {14, "Q4_K_S"},
                                                                              {15, "Q4_K_M"},
                                                                              {16, "Q5_K_S"},
                                                                              {17, "Q5_K_M"},
                                                                              {18, "Q6_K"},
                                                                              {25, "IQ4_NL"},
                                                                              {32, "BF16"},
                                                                              {38, "MXFP4"}}};
  for (const auto& [number, name] : kNames) {
    if (number == type) return name;
  }
  return "";
}

uint64_t packed_bytes(const TensorView& view) {
  const auto k = static_cast<uint32_t>(view.shape[0]);
  const bool matrix = view.rows() > 1 && view.shape[0] <= UINT32_MAX && can_pack(view.type, k);
  if (!matrix) return view.elements() * sizeof(float);
  constexpr uint64_t kPanel = 16;
  return packed_panel_bytes(view.type, k) * ((view.rows() + kPanel - 1) / kPanel);
}

// What one token uses of a tensor.
void add_use(const TensorInfo& tensor, bool own_head, ModelFacts* facts) {
  const RouterShape& router = facts->config.mixture.router;
  const uint64_t elements = tensor.view.elements(), bytes = packed_bytes(tensor.view);
  if (router.experts > 0 && holds_routed_experts(tensor.name)) {
    facts->expert_bytes += bytes;
    facts->active_parameters += elements / router.experts * router.used;
    facts->bytes_per_token += bytes / router.experts * router.used;
    return;
  }
  const bool looked_up = own_head && tensor.name == "token_embd.weight";
  facts->active_parameters += elements;
  facts->bytes_per_token += looked_up ? tensor.view.row_bytes() : bytes;
}

void add_tensors(const GgufFile& file, ModelFacts* facts) {
  std::map<DType, ModelFacts::Format> formats;
  const bool own_head = file.find_tensor("output.weight") != nullptr;
  for (const TensorInfo& tensor : file.tensors()) {
    add_use(tensor, own_head, facts);
    ModelFacts::Format& format =
        formats.try_emplace(tensor.view.type, ModelFacts::Format{tensor.view.type}).first->second;
    ++format.tensors;
    format.bytes += tensor.view.bytes();
    facts->packed_bytes += packed_bytes(tensor.view);
    facts->config.parameter_count += tensor.view.elements();
  }
  for (const auto& [type, format] : formats) facts->formats.push_back(format);
  std::sort(facts->formats.begin(), facts->formats.end(),
            [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
}

// Of a token, if every query head kept K and V of its own; `shared` is what it takes now.
uint64_t plain_kv_bytes(const ModelConfig& c, KvType kv_type, uint64_t shared) {
  if (!c.mla) return shared / c.kv_heads * c.heads;
  const uint64_t values = uint64_t{c.mla->nope_dim} + c.rope_dim + c.mla->value_dim;
  const bool int8 = kv_type == KvType::kInt8;
  const uint64_t head = int8 ? values + 2 * sizeof(float) : 2 * values;
  return c.layers * c.heads * head;
}

Result<std::string> text_of(const GgufMetadata& metadata, const char* key) {
  KVASIR_ASSIGN_OR_RETURN(const std::optional<std::string> text, metadata.get_string(key));
  return text.value_or("");
}

// Tokens of the vocabulary; rows of the embedding in a file without a tokenizer.
Result<uint32_t> vocabulary_size(const GgufFile& file) {
  KVASIR_ASSIGN_OR_RETURN(const std::vector<std::string>* vocabulary,
                          file.metadata().get_strings("tokenizer.ggml.tokens"));
  if (vocabulary != nullptr) return static_cast<uint32_t>(vocabulary->size());
  const TensorInfo* embedding = file.find_tensor("token_embd.weight");
  return embedding == nullptr ? 0u : static_cast<uint32_t>(embedding->view.shape[1]);
}

}  // namespace

Result<ModelFacts> read_model_facts(const std::string& path, KvType kv_type) {
  KVASIR_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::open(path));
  const GgufMetadata& metadata = file.metadata();
  ModelFacts facts;
  facts.path = path;
  facts.file_bytes = file.file_bytes();
  facts.gguf_version = file.version();
  facts.tensors = file.tensors().size() + file.integers().size();
  KVASIR_ASSIGN_OR_RETURN(const std::string architecture, metadata.require_string("general.architecture"));
  KVASIR_ASSIGN_OR_RETURN(facts.config, read_model_config(metadata));
  facts.config.architecture = architecture;
  facts.config.parameter_count = 0;
  KVASIR_ASSIGN_OR_RETURN(facts.name, text_of(metadata, "general.name"));
  if (facts.name.empty()) facts.name = std::filesystem::path(path).stem().string();
  KVASIR_ASSIGN_OR_RETURN(const std::optional<int64_t> type,
                          metadata.get_int("general.file_type", 0, INT32_MAX));
  if (type) facts.quantization = file_type_name(*type);
  KVASIR_ASSIGN_OR_RETURN(facts.tokenizer, text_of(metadata, "tokenizer.ggml.model"));
  KVASIR_ASSIGN_OR_RETURN(const std::string pre, text_of(metadata, "tokenizer.ggml.pre"));
  if (!pre.empty()) facts.tokenizer += fmt::format(" ({})", pre);
  KVASIR_ASSIGN_OR_RETURN(facts.config.vocab_size, vocabulary_size(file));
  facts.has_chat_template = metadata.contains("tokenizer.chat_template");
  add_tensors(file, &facts);
  KVASIR_ASSIGN_OR_RETURN(const KvLayout layout,
                          KvLayout::make(facts.config.kv_layers(), EngineConfig{}.block_size, kv_type));
  facts.kv_type = kv_type;
  facts.kv_bytes_per_token = layout.bytes_per_token();
  facts.plain_kv_bytes_per_token = plain_kv_bytes(facts.config, kv_type, facts.kv_bytes_per_token);
  return facts;
}

Result<LoadedTemplate> read_chat_template(const std::string& file) {
  LoadedTemplate loaded;
  if (file.empty()) return loaded;
  Result<std::string> text = read_text_file(file);
  if (!text.ok()) return invalid_argument("--chat-template: " + text.message());
  if (text->find_first_not_of(" \t\r\n") == std::string::npos)
    return invalid_argument(fmt::format("--chat-template: '{}' is empty", file));
  auto parsed = ChatTemplate::parse(*text);
  if (!parsed.ok()) return invalid_argument(fmt::format("--chat-template: '{}': {}", file, parsed.message()));
  loaded.parsed = std::make_unique<ChatTemplate>(std::move(*parsed));
  loaded.source = std::move(*text);
  return loaded;
}

LoadedTemplate model_chat_template(const Tokenizer& tokenizer) {
  LoadedTemplate loaded;
  loaded.source = tokenizer.chat_template();
  if (loaded.source.empty()) return loaded;
  auto parsed = ChatTemplate::parse(loaded.source);
  if (parsed.ok())
    loaded.parsed = std::make_unique<ChatTemplate>(std::move(*parsed));
  else
    spdlog::warn("the model's chat template cannot be used, chats will be refused: {}", parsed.message());
  return loaded;
}

ServedModel served_model(Llm& llm, const ModelFacts& facts, const LoadedTemplate& chat_template,
                         const std::string& name) {
  const std::filesystem::path path(facts.path);
  ServedModel model;
  model.engine = &llm.engine();
  model.tokenizer = &llm.tokenizer();
  model.chat_template = chat_template.parsed.get();
  model.chat_template_source = chat_template.source;
  model.any_name = name.empty();
  model.name = name.empty() ? path.stem().string() : name;
  model.aliases = {facts.path, path.filename().string(), path.stem().string(), facts.name};
  model.architecture = facts.config.architecture;
  model.quantization = facts.quantization;
  model.parameters = facts.config.parameter_count;
  model.file_bytes = facts.file_bytes;
  model.trained_context = facts.config.context_length;
  return model;
}

}  // namespace kvasir
