#include "engine/drafters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <functional>
#include <new>
#include <random>
#include <utility>

#include "base/log.h"
#include "decoding/ngram_drafter.h"
#include "decoding/suffix_drafter.h"
#include "engine/eagle_drafter.h"
#include "engine/eagle_file.h"
#include "engine/layer_skip_drafter.h"
#include "engine/medusa_drafter.h"
#include "engine/medusa_file.h"
#include "engine/model_drafter.h"

namespace kvasir {
namespace {

using Made = Result<std::unique_ptr<Drafter>>;

struct Row {
  DrafterKind kind;
  Made (*make)(const DrafterSpec& spec, const EngineConfig& config, const DraftGround& ground);
};

Made make_ngram(const DrafterSpec&, const EngineConfig& config, const DraftGround&) {
  return Made(std::make_unique<NgramDrafter>(config.max_num_seqs));
}

Made make_suffix(const DrafterSpec&, const EngineConfig& config, const DraftGround&) {
  return Made(std::make_unique<SuffixDrafter>(config.max_num_seqs));
}

Made make_outputs(const DrafterSpec& spec, const EngineConfig& config, const DraftGround&) {
  constexpr uint32_t kMost = 4096;
  const std::string& text = spec.argument;
  uint32_t mib = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), mib);
  if (error != std::errc() || end != text.data() + text.size() || mib < 1 || mib > kMost)
    return invalid_argument(fmt::format("outputs={}: a whole number of MiB is needed, 1 to {}", text, kMost));
  try {
    return Made(std::make_unique<SuffixDrafter>(config.max_num_seqs,
                                                SuffixOptions{.shared_bytes = size_t{mib} << 20}));
  } catch (const std::bad_alloc&) {
    return resource_exhausted(fmt::format("the machine does not give {} MiB for past answers", mib));
  }
}

// "FILE" or "FILE:N".
struct DraftArgument {
  std::string path;
  std::optional<uint32_t> head_tokens;
};

Result<DraftArgument> split_draft_argument(const std::string& text) {
  const size_t colon = text.rfind(':');
  uint32_t tokens = 0;
  if (colon == std::string::npos) return DraftArgument{text, std::nullopt};
  const auto [end, error] = std::from_chars(text.data() + colon + 1, text.data() + text.size(), tokens);
  if (error == std::errc() && end == text.data() + text.size())
    return DraftArgument{text.substr(0, colon), tokens};
  std::error_code ignored;
  if (!std::filesystem::exists(text, ignored) && std::filesystem::exists(text.substr(0, colon), ignored))
    return invalid_argument(fmt::format("draft={}: '{}' is not a number of tokens, from 0 to {}", text,
                                        text.substr(colon + 1), UINT32_MAX));
  return DraftArgument{text, std::nullopt};
}

// Merges come in the order of their frequency, and tokens in that of the merges: the first ids of a BPE
// vocabulary are the most frequent ones (after FR-Spec, arXiv 2502.14856). What the others cost a draft of
// Qwen2.5-Coder-0.5B is a third of its step.
uint32_t head_tokens_of(const DraftArgument& argument, const Tokenizer& tokenizer) {
  constexpr uint32_t kFrequent = 32768;
  if (argument.head_tokens) return *argument.head_tokens;
  return tokenizer.model() == "gpt2" && tokenizer.vocab_size() > 2 * kFrequent ? kFrequent : 0;
}

Made make_model_drafter(const DrafterSpec& spec, const EngineConfig& config, const DraftGround& ground) {
  KVASIR_ASSIGN_OR_RETURN(const DraftArgument argument, split_draft_argument(spec.argument));
  KVASIR_ASSIGN_OR_RETURN(const DraftModel draft, load_draft_model(argument.path, config, ground));
  const ModelConfig& model = draft.model->config();
  KVASIR_ASSIGN_OR_RETURN(const KvLayout layout,
                          KvLayout::make(model.kv_layers(), config.block_size, config.kv_type));
  KVASIR_ASSIGN_OR_RETURN(const KvLayout target, KvLayout::make(ground.model.config().kv_layers(),
                                                                config.block_size, config.kv_type));
  const uint32_t length = config.max_model_len != 0 ? config.max_model_len : model.context_length;
  KVASIR_ASSIGN_OR_RETURN(
      const uint32_t blocks,
      draft_pool_blocks(layout, target, config, std::min(length, model.context_length), read_memory()));
  const uint32_t head = head_tokens_of(argument, ground.tokenizer);
  const ModelDrafter::Options options = {.slots = config.max_num_seqs,
                                         .blocks = blocks,
                                         .prefix_caching = config.enable_prefix_caching,
                                         .hash_seed = std::random_device()(),
                                         .batch = {.limits = model_limits(config),
                                                   .vocab = ground.model.config().vocab_size,
                                                   .head_tokens = head,
                                                   .layers = {}},
                                         .end_tokens = ground.tokenizer.end_tokens()};
  DraftForecast forecast(draft.priced ? draft.priced->perf(config, ground.pool.size(), head) : nullptr);
  spdlog::info(
      "draft model {}: {} MiB of weights, a KV pool of {} MiB for {} tokens, {} of {} tokens guessed",
      argument.path, draft.model->weight_bytes() >> 20, blocks * layout.block_bytes() >> 20,
      blocks / layout.units() * layout.block_size(),
      head == 0 ? model.vocab_size : std::min(head, model.vocab_size), model.vocab_size);
  try {
    return Made(
        std::make_unique<ModelDrafter>(draft.model, layout, ground.pool, options, std::move(forecast)));
  } catch (const std::bad_alloc&) {
    return resource_exhausted(fmt::format("the machine does not give {} MiB for the draft model's KV pool",
                                          blocks * layout.block_bytes() >> 20));
  }
}

Made make_layer_skip(const DrafterSpec& spec, const EngineConfig& config, const DraftGround& ground) {
  const ModelConfig& model = ground.model.config();
  KVASIR_ASSIGN_OR_RETURN(std::vector<uint32_t> layers, parse_layers(spec.argument, model.layers));
  const double share = static_cast<double>(layers.size()) / model.layers;
  DraftForecast forecast(ground.priced != nullptr ? ground.priced->perf(config, ground.pool.size()) : nullptr,
                         share);
  const DraftBatch::Options batch = {.limits = model_limits(config),
                                     .vocab = model.vocab_size,
                                     .head_tokens = 0,
                                     .layers = std::move(layers)};
  return Made(std::make_unique<LayerSkipDrafter>(ground.model, ground.pool, batch,
                                                 ground.tokenizer.end_tokens(), std::move(forecast)));
}

// Of heads without a list of tokens, those that are guessed.
uint32_t frequent_tokens(const DraftGround& ground) {
  return head_tokens_of({.path = "", .head_tokens = std::nullopt}, ground.tokenizer);
}

// What predicts the passes of heads of that shape; nothing where the machine is not known.
DraftForecast head_forecast(const ModelConfig& shape, const WeightSizes& sizes, const EngineConfig& config,
                            const DraftGround& ground, uint32_t rows, uint32_t logit_rows) {
  if (ground.priced == nullptr) return DraftForecast();
  return DraftForecast(std::make_unique<PerfModel>(shape, sizes, ground.priced->machine,
                                                   PerfModel::Options{.threads = ground.pool.size(),
                                                                      .kv_type = config.kv_type,
                                                                      .max_rows = rows,
                                                                      .max_logit_rows = logit_rows}));
}

Made make_medusa(const DrafterSpec& spec, const EngineConfig& config, const DraftGround& ground) {
  KVASIR_ASSIGN_OR_RETURN(MedusaWeights weights,
                          load_medusa(spec.argument, ground.model, frequent_tokens(ground)));
  KVASIR_RETURN_IF_ERROR(check_draft_memory(weights.bytes(), config, read_memory()));
  spdlog::info("{} Medusa heads {}: {} MiB, {} of {} tokens guessed", weights.heads.size(), spec.argument,
               weights.bytes() >> 20, weights.outputs[0]->ids().size(), ground.model.config().vocab_size);
  ModelConfig shape;
  shape.hidden_dim = weights.width();
  shape.head_dim = ground.model.config().head_dim;
  const auto heads = static_cast<uint32_t>(weights.heads.size());
  DraftForecast forecast = head_forecast(shape, MedusaDrafter::sizes(weights), config, ground,
                                         config.max_num_seqs, config.max_num_seqs * heads);
  return Made(
      std::make_unique<MedusaDrafter>(std::move(weights), ground.kernels, ground.pool,
                                      MedusaDrafter::Options{.slots = config.max_num_seqs,
                                                             .vocab = ground.model.config().vocab_size,
                                                             .end_tokens = ground.tokenizer.end_tokens()},
                                      std::move(forecast)));
}

// A pool for so many tokens as the target's holds, of a layer's K and V.
Result<uint32_t> eagle_pool(const KvLayout& layout, const EngineConfig& config, const DraftGround& ground) {
  const ModelConfig& target = ground.model.config();
  KVASIR_ASSIGN_OR_RETURN(const KvLayout target_layout,
                          KvLayout::make(target.kv_layers(), config.block_size, config.kv_type));
  const uint32_t length = config.max_model_len != 0 ? config.max_model_len : target.context_length;
  return draft_pool_blocks(layout, target_layout, config, std::min(length, target.context_length),
                           read_memory());
}

Made make_eagle(const DrafterSpec& spec, const EngineConfig& config, const DraftGround& ground) {
  KVASIR_ASSIGN_OR_RETURN(EagleWeights weights,
                          load_eagle(spec.argument, ground.model, frequent_tokens(ground)));
  const uint64_t windows =
      uint64_t{config.max_num_seqs} * EagleDrafter::kWindow * weights.feature_width() * sizeof(float);
  KVASIR_RETURN_IF_ERROR(check_draft_memory(weights.bytes() + windows, config, read_memory()));
  const ModelConfig shape = weights.config;
  KVASIR_ASSIGN_OR_RETURN(const KvLayout layout,
                          KvLayout::make(shape.kv_layers(), config.block_size, config.kv_type));
  KVASIR_ASSIGN_OR_RETURN(const uint32_t blocks, eagle_pool(layout, config, ground));
  spdlog::info("{} head {}: {} MiB of weights, a KV pool of {} MiB, {} of {} tokens guessed",
               weights.fuses_layers ? "EAGLE-3" : "EAGLE", spec.argument, weights.bytes() >> 20,
               blocks * layout.block_bytes() >> 20, weights.output->ids().size(), shape.vocab_size);
  const uint32_t most_rows = std::max(EagleDrafter::kRows, config.max_num_seqs);
  DraftForecast forecast =
      head_forecast(shape, EagleDrafter::sizes(weights), config, ground, most_rows, most_rows);
  try {
    return Made(
        std::make_unique<EagleDrafter>(std::move(weights), ground.model, ground.kernels, layout, ground.pool,
                                       EagleDrafter::Options{.slots = config.max_num_seqs,
                                                             .blocks = blocks,
                                                             .vocab = shape.vocab_size,
                                                             .end_tokens = ground.tokenizer.end_tokens()},
                                       std::move(forecast)));
  } catch (const std::bad_alloc&) {
    return resource_exhausted(fmt::format("the machine does not give {} MiB for the EAGLE head's KV pool",
                                          blocks * layout.block_bytes() >> 20));
  }
}

constexpr Row kDrafters[] = {
    {{"ngram", "", "what followed the last tokens earlier in the same text", true}, make_ngram},
    {{"suffix", "", "all places of the same text that look like its end, weighed", true}, make_suffix},
    {{"outputs", "MIB", "as suffix, and past answers under the same cache salt, MIB of which are kept",
      false},
     make_outputs},
    {{"draft", "FILE",
      "a smaller model with the same vocabulary; FILE:N guesses the N most frequent tokens only, FILE:0 all",
      false},
     make_model_drafter},
    {{"medusa", "FILE", "Medusa heads trained for the model (safetensors)", false}, make_medusa},
    {{"eagle", "FILE", "an EAGLE-1 or EAGLE-3 head trained for the model (safetensors; GGUF eagle3)", false},
     make_eagle},
    {{"layers", "N", "the model's own first N layers; 0-7+20-29 chooses others", false}, make_layer_skip},
};

const Row* find(std::string_view name) {
  const auto it = std::find_if(std::begin(kDrafters), std::end(kDrafters),
                               [&](const Row& row) { return row.kind.name == name; });
  return it == std::end(kDrafters) ? nullptr : it;
}

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t comma = text.find(',');
    parts.push_back(text.substr(0, comma));
    if (comma == std::string_view::npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

std::string known_kinds() {
  std::string text = "off, auto";
  for (const Row& row : kDrafters)
    text += fmt::format(", {}{}{}", row.kind.name, row.kind.argument.empty() ? "" : "=", row.kind.argument);
  return text;
}

Result<DrafterSpec> parse_one(std::string_view part) {
  const size_t equals = part.find('=');
  const std::string_view name = part.substr(0, equals);
  const Row* row = find(name);
  if (row == nullptr)
    return invalid_argument(fmt::format("'{}' is no drafter; there are {}", part, known_kinds()));
  const bool given = equals != std::string_view::npos && equals + 1 < part.size();
  if (given == row->kind.argument.empty())
    return invalid_argument(fmt::format(
        "the drafter '{}' {}", name,
        given ? "takes no value" : fmt::format("needs a value: {}={}", name, row->kind.argument)));
  return DrafterSpec{std::string(name), given ? std::string(part.substr(equals + 1)) : ""};
}

// One of each kind: who is named again, as by `auto`, is there already.
Status add_spec(DrafterSpec spec, std::vector<DrafterSpec>* specs) {
  const auto there =
      std::find_if(specs->begin(), specs->end(), [&](const DrafterSpec& s) { return s.name == spec.name; });
  if (there == specs->end()) {
    specs->push_back(std::move(spec));
    return {};
  }
  if (there->argument == spec.argument) return {};
  return invalid_argument(fmt::format("{0}={1} and {0}={2}: there can be one drafter of a kind", spec.name,
                                      there->argument, spec.argument));
}

}  // namespace

std::vector<DrafterKind> drafter_kinds() {
  std::vector<DrafterKind> kinds;
  for (const Row& row : kDrafters) kinds.push_back(row.kind);
  return kinds;
}

Result<std::vector<DrafterSpec>> parse_drafters(std::string_view text) {
  std::vector<DrafterSpec> specs;
  if (text == "off") return specs;
  for (const std::string_view part : split(text)) {
    if (part == "off") return invalid_argument(fmt::format("'off' stands alone, not as in '{}'", text));
    if (part != "auto") {
      KVASIR_ASSIGN_OR_RETURN(DrafterSpec spec, parse_one(part));
      KVASIR_RETURN_IF_ERROR(add_spec(std::move(spec), &specs));
      continue;
    }
    for (const Row& row : kDrafters) {
      if (row.kind.automatic) KVASIR_RETURN_IF_ERROR(add_spec({std::string(row.kind.name), ""}, &specs));
    }
  }
  return specs;
}

Result<std::vector<std::unique_ptr<Drafter>>> make_drafters(const EngineConfig& config,
                                                            const DraftGround& ground) {
  std::vector<std::unique_ptr<Drafter>> drafters;
  for (const DrafterSpec& spec : config.speculation.drafters) {
    const Row* row = find(spec.name);
    if (row == nullptr) return invalid_argument(fmt::format("'{}' is no drafter", spec.name));
    Made drafter = row->make(spec, config, ground);
    if (!drafter.ok()) return drafter.status().about("speculate");
    drafters.push_back(std::move(drafter).value());
  }
  return drafters;
}

Result<uint32_t> drafter_mask(const std::vector<std::string>& names, std::string_view wish) {
  if (wish == "off") return 0u;
  uint32_t mask = 0;
  for (const std::string_view part : split(wish)) {
    if (part == "off") return invalid_argument(fmt::format("'off' stands alone, not as in '{}'", wish));
    if (part == "auto") {
      mask = ~0u;
      continue;
    }
    const auto it = std::find(names.begin(), names.end(), part);
    if (it == names.end())
      return invalid_argument(fmt::format("'{}' is no drafter of this server; there are auto, off{}{}", part,
                                          names.empty() ? "" : ", ", fmt::join(names, ", ")));
    mask |= 1u << (it - names.begin());
  }
  return mask;
}

}  // namespace kvasir
