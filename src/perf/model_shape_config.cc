// Model shapes from Hugging Face config.json files. Defaults are those of the configuration classes in
// https://github.com/huggingface/transformers/tree/main/src/transformers/models.
#include <fmt/format.h>

#include <optional>
#include <utility>

#include "perf/json_fields.h"
#include "perf/model_shape.h"

namespace kvasir {
namespace {

namespace json = boost::json;

// What distinguishes the types whose fields are otherwise named alike. Numbers are defaults; 0: the field
// must be there.
struct ConfigType {
  const char* name;
  bool tied = false;         // tie_word_embeddings
  bool qkv_bias = false;     // where attention_bias says nothing
  bool output_bias = false;  // attention_bias is of the output too
  bool norm_bias = false;
  enum class QkNorm { kNone, kHeads, kRows } qk_norm = QkNorm::kNone;  // of head_dim values each, or of all
  uint32_t norms_per_layer = 2;
  uint32_t head_dim = 0;  // 0: hidden_size / num_attention_heads
  uint32_t pattern = 0;   // of so many layers the last sees everything; 0: windows are everywhere or nowhere
  uint32_t vocab = 0;
  uint32_t heads = 0;
  uint32_t kv_heads = 0;  // 0: as many as query heads
  uint32_t max_context = 0;
  uint32_t window = 0;
};

using QkNorm = ConfigType::QkNorm;

constexpr ConfigType kTypes[] = {
    {.name = "llama", .output_bias = true, .vocab = 32000, .max_context = 2048},
    {.name = "mistral", .vocab = 32000, .kv_heads = 8, .max_context = 131072, .window = 4096},
    {.name = "mixtral", .vocab = 32000, .kv_heads = 8, .max_context = 131072},
    {.name = "qwen2",
     .qkv_bias = true,
     .vocab = 151936,
     .kv_heads = 32,
     .max_context = 32768,
     .window = 4096},
    {.name = "qwen2_moe",
     .qkv_bias = true,
     .vocab = 151936,
     .kv_heads = 16,
     .max_context = 32768,
     .window = 4096},
    {.name = "qwen3",
     .qk_norm = QkNorm::kHeads,
     .head_dim = 128,
     .vocab = 151936,
     .kv_heads = 32,
     .max_context = 32768,
     .window = 4096},
    {.name = "qwen3_moe",
     .qk_norm = QkNorm::kHeads,
     .vocab = 151936,
     .kv_heads = 4,
     .max_context = 32768,
     .window = 4096},
    {.name = "gemma",
     .tied = true,
     .head_dim = 256,
     .vocab = 256000,
     .heads = 16,
     .kv_heads = 16,
     .max_context = 8192},
    {.name = "gemma2",
     .tied = true,
     .norms_per_layer = 4,
     .head_dim = 256,
     .pattern = 2,
     .vocab = 256000,
     .heads = 8,
     .kv_heads = 4,
     .max_context = 8192,
     .window = 4096},
    {.name = "gemma3_text",
     .tied = true,
     .qk_norm = QkNorm::kHeads,
     .norms_per_layer = 4,
     .head_dim = 256,
     .pattern = 6,
     .vocab = 262208,
     .heads = 8,
     .kv_heads = 4,
     .max_context = 131072,
     .window = 4096},
    {.name = "smollm3",
     .tied = true,
     .output_bias = true,
     .vocab = 128256,
     .heads = 16,
     .kv_heads = 4,
     .max_context = 32768},
    {.name = "granite", .output_bias = true, .vocab = 32000, .max_context = 2048},
    {.name = "olmo2", .output_bias = true, .qk_norm = QkNorm::kRows, .vocab = 50304, .max_context = 2048},
    {.name = "olmo3",
     .output_bias = true,
     .qk_norm = QkNorm::kRows,
     .pattern = 4,
     .vocab = 50304,
     .max_context = 2048,
     .window = 4096},
    {.name = "stablelm", .norm_bias = true, .vocab = 50304, .kv_heads = 32, .max_context = 4096},
    {.name = "cohere",
     .tied = true,
     .output_bias = true,
     .norms_per_layer = 1,
     .vocab = 256000,
     .heads = 64,
     .max_context = 8192},
    {.name = "cohere2",
     .tied = true,
     .output_bias = true,
     .norms_per_layer = 1,
     .head_dim = 128,
     .pattern = 4,
     .vocab = 256000,
     .heads = 64,
     .max_context = 8192,
     .window = 4096},
    {.name = "phi3", .vocab = 32064, .max_context = 4096},
    {.name = "olmoe", .output_bias = true, .qk_norm = QkNorm::kRows, .vocab = 50304, .max_context = 4096},
    {.name = "granitemoe", .output_bias = true, .vocab = 32000, .max_context = 2048},
    {.name = "granitemoeshared", .output_bias = true, .vocab = 32000, .max_context = 2048},
    {.name = "gpt_oss",
     .qkv_bias = true,
     .output_bias = true,
     .head_dim = 64,
     .pattern = 2,
     .vocab = 201088,
     .heads = 64,
     .kv_heads = 8,
     .max_context = 131072,
     .window = 128},
    {.name = "deepseek_v2", .vocab = 102400, .max_context = 2048},
    {.name = "deepseek_v3", .vocab = 129280, .max_context = 4096},
    {.name = "minicpm3", .tied = true, .vocab = 73448, .max_context = 32768},
    {.name = "plm", .tied = true, .vocab = 151936, .max_context = 4096},
};

Result<const ConfigType*> find_type(const std::string& name) {
  std::string known;
  for (const ConfigType& type : kTypes) {
    if (name == type.name) return &type;
    known += known.empty() ? type.name : fmt::format(", {}", type.name);
  }
  if (name.empty()) return corrupt("'model_type' is missing: not a model's config.json");
  return unsupported(fmt::format("'model_type' is '{}': known are {}", name, known));
}

// Which of the layers see a window: those that layer_types names, or else all but the last of every
// `pattern`.
void read_windows(JsonFields& in, const ConfigType& type, ModelShape* s) {
  s->windows.assign(s->layers, 0);
  const bool qwen = s->architecture.starts_with("qwen");
  if (qwen && !in.flag_or("use_sliding_window", false)) return;
  const uint32_t window = in.is_null("sliding_window") ? 0 : in.count_or("sliding_window", type.window);
  if (window == 0) return;
  if (const json::array* listed = in.array("layer_types"); listed != nullptr) {
    if (listed->size() != s->layers)
      return in.fail("layer_types", fmt::format("lists {} layers of {}", listed->size(), s->layers));
    for (uint32_t l = 0; l < s->layers; ++l)
      if (const json::string* kind = (*listed)[l].if_string();
          kind != nullptr && *kind == "sliding_attention")
        s->windows[l] = window;
    return;
  }
  // Qwen: layers from max_window_layers on.
  const uint32_t first = qwen ? in.count_or("max_window_layers", 28) : 0;
  const uint32_t pattern = type.pattern > 0 ? in.count_or("sliding_window_pattern", type.pattern) : 0;
  for (uint32_t l = first; l < s->layers; ++l)
    if (pattern == 0 || l % pattern < pattern - 1) s->windows[l] = window;
}

void read_mla(JsonFields& in, ModelShape* s) {
  ModelShape::Mla mla;
  mla.kv_lora_rank = in.need_count("kv_lora_rank");
  mla.q_lora_rank = in.count_or("q_lora_rank", 0);
  mla.qk_rope_head_dim = in.need_count("qk_rope_head_dim");
  mla.qk_nope_head_dim = in.need_count("qk_nope_head_dim");
  mla.v_head_dim = in.need_count("v_head_dim");
  s->kv_heads = s->heads;
  s->head_dim = mla.qk_nope_head_dim + mla.qk_rope_head_dim;
  s->mla = mla;
}

void read_deepseek_moe(JsonFields& in, ModelShape* s) {
  if (in.count_or("n_routed_experts", 0) == 0) return;
  ModelShape::Moe moe;
  moe.experts = in.need_count("n_routed_experts");
  moe.experts_used = in.need_count("num_experts_per_tok");
  moe.shared_experts = in.count_or("n_shared_experts", 0);
  moe.expert_ffn_dim = in.need_count("moe_intermediate_size");
  moe.shared_ffn_dim = moe.shared_experts * moe.expert_ffn_dim;
  moe.leading_dense_layers = in.count_or("first_k_dense_replace", 0);
  moe.selection_bias = in.text("topk_method") == "noaux_tc" || s->architecture == "deepseek_v3";
  if (in.count_or("moe_layer_freq", 1) != 1) in.fail("moe_layer_freq", "is not 1");
  s->moe = moe;
}

// Of models whose feed-forward parts are all experts: `experts` is what counts them, the numbers are
// defaults.
void read_plain_moe(JsonFields& in, const char* experts, uint32_t count, uint32_t used, ModelShape* s) {
  ModelShape::Moe moe;
  moe.experts = in.count_or(experts, count);
  moe.experts_used = in.count_or("num_experts_per_tok", used);
  moe.expert_ffn_dim = s->ffn;
  moe.shared_ffn_dim = in.count_or("shared_intermediate_size", 0);
  moe.shared_experts = moe.shared_ffn_dim > 0 ? 1 : 0;
  moe.biases = s->architecture == "gpt_oss";
  s->ffn = 0;
  s->moe = moe;
}

void read_qwen_moe(JsonFields& in, ModelShape* s) {
  ModelShape::Moe moe;
  // Recent versions of transformers write Qwen3-MoE's under another name than its published files.
  const uint32_t local = in.count_or("num_local_experts", 0);
  moe.experts = local > 0 ? local : in.need_count("num_experts");
  moe.experts_used = in.need_count("num_experts_per_tok");
  moe.expert_ffn_dim = in.need_count("moe_intermediate_size");
  moe.shared_ffn_dim = in.count_or("shared_expert_intermediate_size", 0);
  moe.shared_experts = moe.shared_ffn_dim > 0 ? 1 : 0;
  moe.shared_gate = moe.shared_ffn_dim > 0;
  if (in.count_or("decoder_sparse_step", 1) != 1) in.fail("decoder_sparse_step", "is not 1");
  if (const json::array* dense = in.array("mlp_only_layers"); dense != nullptr) {
    for (size_t i = 0; i < dense->size(); ++i)
      if (!(*dense)[i].is_int64() || (*dense)[i].get_int64() != static_cast<int64_t>(i))
        in.fail("mlp_only_layers", "are not the first layers");
    moe.leading_dense_layers = static_cast<uint32_t>(dense->size());
  }
  if (moe.leading_dense_layers == 0) s->ffn = 0;
  s->moe = moe;
}

// torch_dtype, unless the weights are quantised further.
WeightFormat read_format(JsonFields& in) {
  WeightFormat format;
  const std::string dtype = in.has("dtype") ? in.text("dtype") : in.text("torch_dtype");
  if (!dtype.empty()) {
    if (Result<WeightFormat> parsed = parse_weight_format(dtype); parsed.ok()) format = *parsed;
  }
  const json::object* quantization = in.object("quantization_config");
  if (quantization == nullptr) return format;
  JsonFields q(*quantization);
  const std::string method = q.text("quant_method");
  if (method == "fp8") return {"fp8", 8};
  if (const auto bits = q.count("bits", 32); bits && *bits > 0)
    return {fmt::format("{} {}-bit", method, *bits), static_cast<double>(*bits)};
  return format;
}

void read_norms(JsonFields& in, const ConfigType& type, ModelShape* s) {
  s->norm_bias = type.norm_bias;
  s->norms_per_layer = in.flag_or("use_parallel_residual", false) ? 1 : type.norms_per_layer;
  const bool own = in.flag_or("use_qk_norm", false) || in.flag_or("qk_layernorm", false);
  if (type.qk_norm == QkNorm::kRows || own) s->qk_norm = (s->heads + s->kv_heads) * s->head_dim;
  if (type.qk_norm == QkNorm::kHeads) s->qk_norm = 2 * s->head_dim;
}

void read_dimensions(JsonFields& in, const ConfigType& type, ModelShape* s) {
  s->vocab = type.vocab > 0 ? in.count_or("vocab_size", type.vocab) : in.need_count("vocab_size");
  s->hidden = in.need_count("hidden_size");
  s->layers = in.count("num_hidden_layers", 4096).value_or(0);
  if (!in.has("num_hidden_layers")) in.fail("num_hidden_layers", "is missing");
  s->heads =
      type.heads > 0 ? in.count_or("num_attention_heads", type.heads) : in.need_count("num_attention_heads");
  s->kv_heads = in.count_or("num_key_value_heads", type.kv_heads > 0 ? type.kv_heads : s->heads);
  s->ffn = in.need_count("intermediate_size");
  const uint32_t divided = s->heads > 0 ? s->hidden / s->heads : 0;
  s->head_dim = in.count_or("head_dim", type.head_dim > 0 ? type.head_dim : divided);
  s->max_context = in.count_or("max_position_embeddings", type.max_context);
  s->norms_per_layer = type.norms_per_layer;
  s->qkv_bias = in.flag_or(type.norm_bias ? "use_qkv_bias" : "attention_bias", type.qkv_bias);
  s->output_bias = type.output_bias && s->qkv_bias;
  s->ffn_bias = in.flag_or("mlp_bias", false);
  read_norms(in, type, s);
}

Result<ModelShape> read_text_model(const json::object& object, const ConfigType& type, std::string name,
                                   const std::optional<bool>& tied, const WeightFormat& outer) {
  JsonFields in(object);
  ModelShape s;
  s.name = std::move(name);
  s.architecture = type.name;
  s.source = "config.json";
  read_dimensions(in, type, &s);
  s.tied_embeddings = tied.value_or(in.flag_or("tie_word_embeddings", type.tied));
  const std::string_view arch = type.name;
  if (arch.starts_with("deepseek") || arch == "minicpm3" || arch == "plm") read_mla(in, &s);
  if (arch == "plm") s.ffn_matrices = 2;
  if (arch.starts_with("deepseek")) read_deepseek_moe(in, &s);
  s.attention_sinks = arch == "gpt_oss";
  if (arch == "mixtral" || arch.starts_with("granitemoe")) read_plain_moe(in, "num_local_experts", 8, 2, &s);
  if (arch == "olmoe") read_plain_moe(in, "num_experts", 64, 8, &s);
  if (arch == "gpt_oss") read_plain_moe(in, "num_local_experts", 128, 4, &s);
  if (arch == "qwen2_moe" || arch == "qwen3_moe") read_qwen_moe(in, &s);
  KVASIR_RETURN_IF_ERROR(in.status());
  read_windows(in, type, &s);
  s.weights =
      in.has("torch_dtype") || in.has("dtype") || in.has("quantization_config") ? read_format(in) : outer;
  KVASIR_RETURN_IF_ERROR(in.status());
  KVASIR_RETURN_IF_ERROR(check_shape(s));
  return s;
}

}  // namespace

Result<ModelShape> shape_from_config(std::string_view text, std::string name) {
  KVASIR_ASSIGN_OR_RETURN(const json::object root, parse_json_object(text));
  JsonFields in(root);
  std::string type_name = in.text("model_type");
  const json::object* nested = in.object("text_config");
  std::optional<bool> tied;
  if (in.has("tie_word_embeddings")) tied = in.flag_or("tie_word_embeddings", false);
  const WeightFormat outer = read_format(in);
  KVASIR_RETURN_IF_ERROR(in.status());
  if (nested != nullptr) {
    JsonFields inner(*nested);
    const std::string inner_type = inner.text("model_type");
    KVASIR_RETURN_IF_ERROR(inner.status());
    if (!inner_type.empty()) type_name = inner_type;
  }
  if (type_name == "gemma3") type_name = "gemma3_text";
  KVASIR_ASSIGN_OR_RETURN(const ConfigType* type, find_type(type_name));
  return read_text_model(nested != nullptr ? *nested : root, *type, std::move(name), tied, outer);
}

}  // namespace kvasir
