#include "engine/draft_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "gguf/gguf_file.h"
#include "models/weights.h"

namespace kvasir {
namespace {

uint64_t mebibytes(uint64_t bytes) {
  return bytes >> 20;
}

// What is left for a draft model once the target's KV pool is filled.
uint64_t memory_left(const EngineConfig& config, const MemoryReadings& readings) {
  const uint64_t usable = usable_memory(readings);
  return usable - std::min(usable, config.kv_bytes);
}

std::optional<PricedModel> price(const GgufFile& file, ModelConfig config, const DraftGround& ground) {
  if (!ground.machine || ground.priced == nullptr) return std::nullopt;
  auto weights = read_weight_sizes(file, config);
  if (!weights.ok()) return std::nullopt;
  auto machine = ground.machine(ground.pool, config, *weights);
  if (!machine.ok()) {
    spdlog::warn("drafts will not be predicted: {}", machine.message());
    return std::nullopt;
  }
  return PricedModel{std::move(config), *std::move(weights), *std::move(machine)};
}

}  // namespace

std::unique_ptr<PerfModel> PricedModel::perf(const EngineConfig& engine, uint32_t threads,
                                             uint32_t head_tokens) const {
  WeightSizes sizes = weights;
  if (head_tokens > 0 && head_tokens < sizes.head_n) {
    const double part = static_cast<double>(head_tokens) / sizes.head_n;
    sizes.head_n = head_tokens;
    sizes.head_bytes = static_cast<uint64_t>(part * static_cast<double>(weights.head_bytes));
    sizes.head_macs = uint64_t{head_tokens} * sizes.head_k;
  }
  const CausalLm::Limits limits = model_limits(engine);
  return std::make_unique<PerfModel>(config, sizes, machine,
                                     PerfModel::Options{.threads = threads,
                                                        .kv_type = engine.kv_type,
                                                        .max_rows = limits.max_rows,
                                                        .max_logit_rows = limits.max_logit_rows});
}

Status check_vocabulary(const Tokenizer& target, const Tokenizer& draft) {
  const uint32_t both = std::min(target.vocab_size(), draft.vocab_size());
  for (uint32_t i = 0; i < both; ++i) {
    const auto id = static_cast<TokenId>(i);
    if (target.token_text(id) != draft.token_text(id))
      return invalid_argument(fmt::format(
          "token {} is '{}' in the draft model and '{}' here: a draft model must have the same vocabulary", i,
          draft.token_text(id), target.token_text(id)));
  }
  const auto ends = [both](const Tokenizer& t) {
    std::vector<TokenId> list = t.end_tokens();
    std::erase_if(list, [both](TokenId id) { return static_cast<uint32_t>(id) >= both; });
    std::sort(list.begin(), list.end());
    return list;
  };
  const std::vector<TokenId> ours = ends(target), theirs = ends(draft);
  if (ours == theirs) return {};
  const auto differ = std::mismatch(ours.begin(), ours.end(), theirs.begin(), theirs.end());
  const bool only_here =
      differ.first != ours.end() && (differ.second == theirs.end() || *differ.first < *differ.second);
  const TokenId id = only_here ? *differ.first : *differ.second;
  return invalid_argument(fmt::format(
      "token {} '{}' ends a text {}: a draft model must have the same end tokens", id, target.token_text(id),
      only_here ? "here and not in the draft model" : "in the draft model and not here"));
}

Status check_draft_memory(uint64_t weights, const EngineConfig& config, const MemoryReadings& readings) {
  const uint64_t left = memory_left(config, readings);
  if (weights <= left) return {};
  return resource_exhausted(fmt::format(
      "the draft model needs {} MiB, and beside the KV pool of {} MiB there are {} MiB; a smaller "
      "KV pool (--kv-memory) leaves more",
      mebibytes(weights), mebibytes(config.kv_bytes), mebibytes(left)));
}

Result<DraftModel> load_draft_model(const std::string& path, const EngineConfig& config,
                                    const DraftGround& ground) {
  for (const DraftModel& loaded : ground.loaded) {
    if (loaded.path == path) return loaded;
  }
  KVASIR_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::open(path));
  KVASIR_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, Tokenizer::load(file.metadata()));
  if (const Status same = check_vocabulary(ground.tokenizer, *tokenizer); !same.ok())
    return invalid_argument(fmt::format("'{}' cannot draft: {}", path, same.message()));
  KVASIR_ASSIGN_OR_RETURN(const ModelConfig model, read_model_config(file.metadata()));
  KVASIR_ASSIGN_OR_RETURN(const uint64_t weights, packed_weight_bytes(file, model));
  KVASIR_RETURN_IF_ERROR(check_draft_memory(weights, config, read_memory()));
  DraftModel draft{.path = path, .model = nullptr, .priced = std::nullopt};
  KVASIR_ASSIGN_OR_RETURN(draft.model,
                          CausalLm::load(file, ground.kernels, ground.pool, model_limits(config)));
  draft.priced = price(file, draft.model->config(), ground);
  return ground.loaded.emplace_back(std::move(draft));
}

Result<uint32_t> draft_pool_blocks(const KvLayout& layout, const KvLayout& target, const EngineConfig& config,
                                   uint32_t context, const MemoryReadings& readings) {
  const uint64_t target_entries = config.kv_bytes / target.block_bytes() / target.units();
  const uint64_t as_target = target_entries * layout.units();
  const uint64_t longest = uint64_t{layout.blocks_for(context)} * config.max_num_seqs;
  const uint64_t affordable = memory_left(config, readings) / 2 / layout.block_bytes();
  const uint64_t blocks = std::min({as_target, longest, affordable, uint64_t{UINT32_MAX / 2}});
  if (blocks >= layout.units()) return static_cast<uint32_t>(blocks);
  return resource_exhausted(
      fmt::format("the draft model's KV pool needs at least {} KiB, and half of the {} MiB beside the "
                  "target's pool of {} "
                  "MiB is less; a smaller KV pool (--kv-memory) leaves more",
                  layout.units() * layout.block_bytes() >> 10, mebibytes(memory_left(config, readings)),
                  mebibytes(config.kv_bytes)));
}

}  // namespace kvasir
