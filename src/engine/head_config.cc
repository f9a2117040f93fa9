#include "engine/head_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/json.hpp>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <numbers>
#include <utility>

#include "base/log.h"
#include "base/text_file.h"
#include "gguf/byte_cursor.h"

namespace kvasir {
namespace {

namespace json = boost::json;

std::string as_text(const json::value& v) {
  if (v.is_string()) return std::string(v.get_string());
  if (!v.is_array()) return json::serialize(v);
  std::vector<std::string> parts;
  for (const json::value& item : v.get_array()) parts.push_back(as_text(item));
  return fmt::format("{}", fmt::join(parts, ","));
}

// What stands further out counts before what objects hold.
void add_values(const json::object& object, std::map<std::string, std::string>& values) {
  for (const auto& [key, value] : object) {
    if (!value.is_null()) values.emplace(key, value.is_object() ? "{}" : as_text(value));
  }
  for (const auto& [key, value] : object) {
    if (value.is_object()) add_values(value.get_object(), values);
  }
}

// llama.cpp's keys behind "eagle3." and the names that Hugging Face has for them. An earlier converter wrote
// extract_layers for target_layers.
constexpr std::pair<const char*, const char*> kGgufKeys[] = {
    {"target_layers", "eagle_aux_hidden_state_layer_ids"},
    {"extract_layers", "eagle_aux_hidden_state_layer_ids"},
    {"target_hidden_size", "target_hidden_size"},
    {"norm_before_residual", "norm_before_residual"},
    {"norm_before_fc", "norm_before_fc"},
    {"embedding_length", "hidden_size"},
    {"block_count", "num_hidden_layers"},
    {"attention.head_count", "num_attention_heads"},
    {"attention.key_length", "head_dim"},
    {"attention.value_length", "value_dim"},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
    {"rope.freq_base", "rope_theta"},
    {"rope.dimension_count", "rope_dim"},
    {"rope.scaling.type", "rope_type"},
    {"rope.scaling.factor", "factor"},
    {"rope.scaling.original_context_length", "original_max_position_embeddings"},
    {"rope.scaling.yarn_beta_fast", "beta_fast"},
    {"rope.scaling.yarn_beta_slow", "beta_slow"},
};

struct AsText {
  std::string operator()(bool v) const { return v ? "true" : "false"; }
  std::string operator()(int64_t v) const { return fmt::format("{}", v); }
  std::string operator()(double v) const { return fmt::format("{}", v); }
  std::string operator()(const std::string& v) const { return v; }
  std::string operator()(const std::vector<int64_t>& v) const { return fmt::format("{}", fmt::join(v, ",")); }
  std::string operator()(const auto&) const { return "a list"; }
};

// Llama 3's divisors: pairs whose waves are longer than the context that they were trained with are slowed
// by the factor, those that fit several times are left alone (Llama 3.1 reference, apply_scaling).
std::vector<float> llama3_factors(uint32_t rope_dim, double base, double factor, double low, double high,
                                  double context) {
  std::vector<float> factors(rope_dim / 2, 1.0f);
  for (uint32_t i = 0; i < factors.size(); ++i) {
    const double wave = 2 * std::numbers::pi * std::pow(base, 2.0 * i / rope_dim);
    const double kept = std::clamp((context / wave - low) / (high - low), 0.0, 1.0);
    factors[i] = static_cast<float>(1 / ((1 - kept) / factor + kept));
  }
  return factors;
}

}  // namespace

// transformers' LlamaConfig has these where a key is absent, and by it those who train heads, vLLM and
// llama.cpp. Published EAGLE heads do leave out rope_theta; the target's base is another one.
void HeadConfig::add_defaults() {
  const auto heads = number("num_attention_heads"), width = number("hidden_size");
  if (heads && width && *heads > 0) values_.emplace("head_dim", fmt::format("{}", *width / *heads));
  values_.emplace("rope_theta", "10000");
  values_.emplace("rms_norm_eps", "1e-6");
}

Result<HeadConfig> HeadConfig::read(const SafetensorsFile& file) {
  HeadConfig config;
  const auto beside = std::filesystem::path(file.path()).parent_path() / "config.json";
  std::error_code error;
  if (!std::filesystem::exists(beside, error)) {
    config.values_ = file.metadata();
    return config;
  }
  if (!std::filesystem::is_regular_file(beside, error))
    return io_error(fmt::format("'{}' is not a regular file", beside.string()));
  KVASIR_ASSIGN_OR_RETURN(const std::string text, read_text_file(beside.string()));
  boost::system::error_code broken;
  const json::value value = json::parse(text, broken);
  if (broken || !value.is_object()) return corrupt(fmt::format("'{}' is no JSON object", beside.string()));
  add_values(value.get_object(), config.values_);
  config.add_defaults();
  return config;
}

Result<HeadConfig> HeadConfig::read(const GgufMetadata& metadata) {
  HeadConfig config;
  for (const auto& [key, name] : kGgufKeys) {
    const GgufMetadata::Value* value = metadata.find(std::string("eagle3.") + key);
    if (value != nullptr) config.values_.emplace(name, std::visit(AsText{}, *value));
  }
  for (const char* needed : {"eagle_aux_hidden_state_layer_ids", "target_hidden_size", "rms_norm_eps"}) {
    if (config.given(needed)) continue;
    for (const auto& [key, name] : kGgufKeys)
      if (std::string_view(name) == needed)
        return corrupt(fmt::format("metadata key 'eagle3.{}' is missing", key));
  }
  config.add_defaults();
  return config;
}

std::optional<double> HeadConfig::number(std::string_view key) const {
  const auto it = values_.find(std::string(key));
  if (it == values_.end()) return std::nullopt;
  double value = 0;
  const char* end = it->second.data() + it->second.size();
  const auto parsed = std::from_chars(it->second.data(), end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  return value;
}

bool HeadConfig::flag(std::string_view key, bool otherwise) const {
  const auto it = values_.find(std::string(key));
  return it == values_.end() ? otherwise : it->second == "true";
}

std::string HeadConfig::text(std::string_view key) const {
  const auto it = values_.find(std::string(key));
  return it == values_.end() ? "" : it->second;
}

Result<std::vector<uint32_t>> HeadConfig::list(std::string_view key) const {
  std::vector<uint32_t> numbers;
  const auto it = values_.find(std::string(key));
  if (it == values_.end() || it->second.empty()) return numbers;
  for (std::string_view rest = it->second;;) {
    const size_t comma = rest.find(',');
    const std::string_view part = rest.substr(0, comma);
    uint32_t number = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), number);
    if (error != std::errc() || end != part.data() + part.size())
      return corrupt(
          fmt::format("{} is {}, and a list of numbers is needed", key, kvasir::quoted(it->second)));
    numbers.push_back(number);
    if (comma == std::string_view::npos) return numbers;
    rest.remove_prefix(comma + 1);
  }
}

Result<HeadConfig::Rope> HeadConfig::rope(uint32_t rope_dim, double base) const {
  Rope rope;
  const std::string type = given("rope_type") ? text("rope_type") : given("rope_scaling") ? text("type") : "";
  if (type.empty() || type == "default" || type == "none") return rope;
  const double factor = number("factor").value_or(0);
  const double context = number("original_max_position_embeddings").value_or(0);
  const bool known = type == "linear" || type == "llama3" || type == "yarn";
  if (!known) {
    spdlog::warn("the head's RoPE scaling '{}' is left out: its guesses in long texts will be worse", type);
    return rope;
  }
  if (!(factor >= 1 && std::isfinite(factor)))
    return corrupt(fmt::format("the factor of RoPE scaling '{}' is {}: 1 or more is needed", type, factor));
  if (type != "linear" && !(context >= 1 && context <= 1e9))
    return corrupt(
        fmt::format("original_max_position_embeddings is {}, and RoPE scaling '{}' needs it", context, type));
  if (type == "linear") rope.scaling.linear_factor = factor;
  if (type == "yarn") {
    rope.scaling.yarn_factor = factor;
    rope.scaling.beta_fast = number("beta_fast").value_or(32);
    rope.scaling.beta_slow = number("beta_slow").value_or(1);
    rope.scaling.original_context = static_cast<uint32_t>(context);
    rope.scaling.magnitude = number("attention_factor").value_or(yarn_magnitude(factor));
  }
  if (type == "llama3") {
    const double low = number("low_freq_factor").value_or(1), high = number("high_freq_factor").value_or(4);
    if (!(high > low))
      return corrupt(fmt::format("high_freq_factor is {}, low_freq_factor {}: it must be larger", high, low));
    rope.factors = llama3_factors(rope_dim, base, factor, low, high, context);
  }
  return rope;
}

}  // namespace kvasir
