#include "apps/kvasir/model_bench.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <new>

namespace kvasir {
namespace {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// A fixed token for a place in a sequence, spread over the vocabulary.
TokenId token_at(uint32_t sequence, uint32_t position, uint32_t vocab) {
  return static_cast<TokenId>((sequence * 7919u + position * 104729u + 12345u) % vocab);
}

}  // namespace

std::string BenchShape::name() const {
  std::string s = prompt > 0 ? fmt::format("pp{}", prompt) : fmt::format("tg{}", generate);
  if (batch > 1) s += fmt::format("@b{}", batch);
  if (depth > 0) s += fmt::format("@d{}", depth);
  return s;
}

ModelBench::ModelBench(const Options& options)
    : pool_(options.threads), kernels_(kernel_table(options.isa)), options_(options) {}

Result<std::unique_ptr<ModelBench>> ModelBench::open(const std::string& path, const Options& options) {
  KVASIR_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::open(path));
  std::unique_ptr<ModelBench> bench(new ModelBench(options));
  KVASIR_ASSIGN_OR_RETURN(bench->model_,
                          CausalLm::load(file, bench->kernels_, bench->pool_,
                                         {.max_rows = options.chunk, .max_logit_rows = options.chunk}));
  bench->file_bytes_ = file.file_bytes();
  return bench;
}

Result<BenchResult> ModelBench::measure(const BenchShape& shape, uint32_t repetitions) {
  if (shape.batch > options_.chunk)
    return invalid_argument(
        fmt::format("batch {} is larger than the step's {} rows", shape.batch, options_.chunk));
  const uint32_t tokens = shape.depth + shape.prompt + shape.generate;
  const auto specs = config().kv_layers();
  KVASIR_ASSIGN_OR_RETURN(const KvLayout layout,
                          KvLayout::make(specs, options_.block_size, options_.kv_type));
  const uint32_t entries = (tokens + options_.block_size - 1) / options_.block_size;
  uint32_t units = 0;
  for (const KvLayout::Group& g : layout.groups()) units += g.units;
  const uint64_t blocks = static_cast<uint64_t>(entries) * units * shape.batch;
  try {
    store_ = std::make_unique<KvStore>(layout, static_cast<uint32_t>(blocks));
  } catch (const std::bad_alloc&) {
    return resource_exhausted(
        fmt::format("{}: cannot allocate {} bytes of KV", shape.name(), blocks * layout.block_bytes()));
  }
  fill(shape, entries);
  BenchResult result{.shape = shape, .tokens_per_second = {}};
  for (uint32_t first = 0; first < shape.depth;) {
    const uint32_t rows = std::min(std::max(1u, options_.chunk / shape.batch), shape.depth - first);
    step(shape, first, rows, false);
    first += rows;
  }
  for (uint32_t repetition = 0; repetition <= repetitions; ++repetition) {
    const double start = seconds_now();
    const uint32_t end = tokens;
    for (uint32_t first = shape.depth; first < end;) {
      const uint32_t rows =
          shape.prompt > 0 ? std::min(std::max(1u, options_.chunk / shape.batch), end - first) : 1;
      step(shape, first, rows, shape.prompt == 0 || first + rows == end);
      first += rows;
    }
    const double elapsed = seconds_now() - start;
    if (repetition > 0)  // the first one warms caches and clocks
      result.tokens_per_second.push_back((shape.prompt + shape.generate) * shape.batch / elapsed);
  }
  std::vector<double> sorted = result.tokens_per_second;
  std::sort(sorted.begin(), sorted.end());
  result.median = sorted[sorted.size() / 2];
  result.spread = (sorted.back() - sorted.front()) / result.median;
  return result;
}

// Hands every sequence its own blocks.
void ModelBench::fill(const BenchShape& shape, uint32_t entries) {
  const auto& groups = store_->layout().groups();
  tables_.assign(shape.batch, {});
  pointers_.assign(shape.batch, {});
  uint32_t next = 0;
  for (uint32_t s = 0; s < shape.batch; ++s) {
    for (const KvLayout::Group& g : groups) {
      std::vector<BlockId> ids(static_cast<size_t>(entries) * g.units);
      for (BlockId& id : ids) id = BlockId{next++};
      tables_[s].push_back(std::move(ids));
    }
    for (const auto& ids : tables_[s]) pointers_[s].push_back(ids.data());
  }
  logits_.resize(static_cast<size_t>(shape.batch) * config().vocab_size);
}

void ModelBench::step(const BenchShape& shape, uint32_t first, uint32_t rows_each, bool logits) {
  std::vector<TokenId> tokens;
  std::vector<int32_t> positions;
  std::vector<ForwardBatch::Sequence> sequences;
  std::vector<uint32_t> logit_rows;
  for (uint32_t s = 0; s < shape.batch; ++s) {
    sequences.push_back({static_cast<uint32_t>(tokens.size()), rows_each, pointers_[s]});
    for (uint32_t r = 0; r < rows_each; ++r) {
      tokens.push_back(token_at(s, first + r, config().vocab_size));
      positions.push_back(static_cast<int32_t>(first + r));
    }
    if (logits) logit_rows.push_back(static_cast<uint32_t>(tokens.size()) - 1);
  }
  model_->forward({tokens, positions, sequences, logit_rows}, *store_, logits_);
}

}  // namespace kvasir
