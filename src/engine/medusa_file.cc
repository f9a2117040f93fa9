#include "engine/medusa_file.h"

#include <fmt/format.h>

#include <utility>

#include "decoding/drafter.h"
#include "engine/head_tensors.h"

namespace kvasir {
namespace {

constexpr uint32_t kMostBlocks = 16;

// Where block j of head i is, by either way of naming; "" where there is none.
std::string block_name(const HeadTensors& tensors, uint32_t head, uint32_t block) {
  for (const std::string& name :
       {fmt::format("blocks.{}.layers.{}", head, block), fmt::format("{}.{}.linear", head, block)}) {
    if (tensors.has(name + ".weight")) return name;
  }
  return "";
}

// `one`: that of head 0 is everybody's.
std::string output_name(HeadTensors& tensors, uint32_t head, uint32_t blocks, bool one) {
  if (one) {
    tensors.ignore(fmt::format("lm_heads.{}.weight", head));
    return tensors.has("lm_head.weight") ? "lm_head.weight" : "lm_heads.0.weight";
  }
  for (const std::string& name :
       {fmt::format("lm_heads.{}.weight", head), fmt::format("{}.{}.weight", head, blocks)}) {
    if (tensors.has(name)) return name;
  }
  return "lm_head.weight";
}

std::vector<MedusaWeights::Block> read_blocks(HeadTensors& tensors, uint32_t head, uint32_t width) {
  std::vector<MedusaWeights::Block> blocks;
  while (blocks.size() < kMostBlocks) {
    const std::string name = block_name(tensors, head, static_cast<uint32_t>(blocks.size()));
    if (name.empty()) break;
    blocks.push_back(
        {tensors.matrix(name + ".weight", width, width), tensors.vector(name + ".bias", width, true)});
  }
  return blocks;
}

MedusaWeights read_heads(HeadTensors& tensors, const CausalLm& target, uint32_t frequent, bool one_output) {
  MedusaWeights weights;
  const std::vector<int64_t> tokens = tensors.integers("token_map");
  std::shared_ptr<GuessHead> shared;
  for (uint32_t i = 0; i < Draft::kMost && !block_name(tensors, i, 0).empty(); ++i) {
    weights.heads.push_back(read_blocks(tensors, i, target.config().hidden_dim));
    const auto blocks = static_cast<uint32_t>(weights.heads.back().size());
    if (blocks != weights.heads[0].size())
      tensors.fail(corrupt(
          fmt::format("head {} has {} blocks, and head 0 has {}", i, blocks, weights.heads[0].size())));
    const std::string name = output_name(tensors, i, blocks, one_output);
    if (!one_output && name != "lm_head.weight") {
      weights.outputs.push_back(guess_head(tensors, name, target, tokens, frequent));
      continue;
    }
    if (shared == nullptr) shared = guess_head(tensors, name, target, tokens, frequent);
    weights.outputs.push_back(shared);
  }
  if (weights.heads.empty())
    tensors.fail(corrupt("there are no Medusa heads in it: no tensor 'blocks.0.layers.0.weight'"));
  return weights;
}

}  // namespace

Result<MedusaWeights> load_medusa(const std::string& path, const CausalLm& target, uint32_t frequent) {
  KVASIR_ASSIGN_OR_RETURN(const HeadFile file, HeadFile::open(path));
  if (file.is_gguf())
    return unsupported(
        fmt::format("'{}' is an EAGLE head (GGUF, eagle3); give it as eagle=FILE", file.path()));
  HeadTensors tensors(file);
  MedusaWeights weights = read_heads(tensors, target, frequent, file.config().flag("original_lm_head"));
  if (const Status status = tensors.status(); !status.ok())
    return Status(status.code(), fmt::format("'{}': {}", file.path(), status.message()));
  return weights;
}

}  // namespace kvasir
