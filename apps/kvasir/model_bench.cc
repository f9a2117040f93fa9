#include "apps/kvasir/model_bench.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>

#include "engine/memory_plan.h"
#include "perf/kernel_bench.h"

namespace kvasir {
namespace {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// A fixed token for a place in a sequence, spread over the vocabulary.
TokenId token_at(uint32_t sequence, uint32_t position, uint32_t vocab) {
  return static_cast<TokenId>((sequence * 7919u + position * 104729u + 12345u) % vocab);
}

// [begin, end) in passes of `rows` tokens per sequence.
std::vector<BenchStep> passes(uint32_t begin, uint32_t end, uint32_t rows) {
  std::vector<BenchStep> steps;
  for (uint32_t first = begin; first < end; first += rows)
    steps.push_back({first, std::min(rows, end - first)});
  return steps;
}

uint32_t rows_of_chunk(const BenchShape& shape, uint32_t chunk) {
  return std::max(1u, chunk / shape.batch);
}

}  // namespace

std::string BenchShape::name() const {
  std::string s = prompt > 0 ? fmt::format("pp{}", prompt) : fmt::format("tg{}", generate);
  if (batch > 1) s += fmt::format("@b{}", batch);
  if (depth > 0) s += fmt::format("@d{}", depth);
  return s;
}

std::vector<BenchStep> timed_steps(const BenchShape& shape, uint32_t chunk) {
  const uint32_t end = shape.depth + shape.prompt + shape.generate;
  std::vector<BenchStep> steps = passes(shape.depth, end, shape.prompt > 0 ? rows_of_chunk(shape, chunk) : 1);
  for (BenchStep& step : steps) step.logits = shape.prompt == 0 || &step == &steps.back();
  return steps;
}

ModelBench::ModelBench(const Options& options)
    : pool_(options.threads), kernels_(kernel_table(options.isa)), options_(options) {}

Result<std::unique_ptr<ModelBench>> ModelBench::open(const std::string& path, const Options& options) {
  KVASIR_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::open(path));
  std::unique_ptr<ModelBench> bench(new ModelBench(options));
  KVASIR_ASSIGN_OR_RETURN(bench->model_,
                          CausalLm::load(file, bench->kernels_, bench->pool_,
                                         {.max_rows = options.chunk, .max_logit_rows = options.chunk}));
  ModelConfig config = bench->config();
  KVASIR_ASSIGN_OR_RETURN(bench->sizes_, read_weight_sizes(file, config));
  bench->file_bytes_ = file.file_bytes();
  return bench;
}

Result<BenchResult> ModelBench::measure(const BenchShape& shape, uint32_t repetitions) {
  if (shape.batch > options_.chunk)
    return invalid_argument(
        fmt::format("batch {} is larger than the step's {} rows", shape.batch, options_.chunk));
  const uint32_t tokens = shape.depth + shape.prompt + shape.generate;
  const uint32_t entries = (tokens + options_.block_size - 1) / options_.block_size;
  KVASIR_RETURN_IF_ERROR(make_store(shape, entries));
  fill(shape, entries);
  const std::vector<BenchStep> steps = timed_steps(shape, options_.chunk);
  BenchResult result{
      .shape = shape, .tokens_per_second = {}, .cost = cost(shape, steps), .steps = steps.size()};
  if (filled_depth_)
    fill_depth();
  else
    for (const BenchStep& s : passes(0, shape.depth, rows_of_chunk(shape, options_.chunk))) step(shape, s);
  for (uint32_t repetition = 0; repetition <= repetitions; ++repetition) {
    if (profiling_ && repetition == 1) model_->set_profile(&result.profile);
    const double start = seconds_now();
    for (const BenchStep& s : steps) timed_step(shape, s);
    const double elapsed = seconds_now() - start;
    if (repetition > 0)  // the first one warms caches and clocks
      result.tokens_per_second.push_back(static_cast<double>(shape.tokens()) / elapsed);
  }
  model_->set_profile(nullptr);
  std::vector<double> sorted = result.tokens_per_second;
  std::sort(sorted.begin(), sorted.end());
  result.median = sorted[sorted.size() / 2];
  result.spread = (sorted.back() - sorted.front()) / result.median;
  return result;
}

StepCost ModelBench::cost(const BenchShape& shape, const std::vector<BenchStep>& steps) const {
  StepCost total;
  for (const BenchStep& s : steps) {
    const std::vector<StepRows> rows(shape.batch, {.rows = s.rows, .context = s.first});
    total += step_cost(config(), sizes_, rows, s.logits ? shape.batch : 0, options_.kv_type);
  }
  return total;
}

// Blocks for every sequence. The pool of the shape before is given back first, so that its memory counts as
// free.
Status ModelBench::make_store(const BenchShape& shape, uint32_t entries) {
  store_.reset();
  KVASIR_ASSIGN_OR_RETURN(const KvLayout layout,
                          KvLayout::make(config().kv_layers(), options_.block_size, options_.kv_type));
  const uint64_t blocks = uint64_t{entries} * layout.units() * shape.batch;
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(blocks, uint64_t{layout.block_bytes()}, &bytes)) bytes = UINT64_MAX;
  const uint64_t usable = usable_memory(read_memory());
  if (bytes > usable || blocks >= index_of(kNoBlock))
    return resource_exhausted(fmt::format("{} needs {} MiB of KV cache, and {} MiB of memory are free",
                                          shape.name(), bytes >> 20, usable >> 20));
  try {
    store_ = std::make_unique<KvStore>(layout, static_cast<uint32_t>(blocks));
  } catch (const std::bad_alloc&) {
    return resource_exhausted(
        fmt::format("{}: the machine does not give {} MiB for the KV cache", shape.name(), bytes >> 20));
  }
  return {};
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
  best_.resize(shape.batch);
}

void ModelBench::fill_depth() {
  const uint64_t bytes = uint64_t{store_->blocks()} * store_->layout().block_bytes();
  std::byte* base = store_->block(BlockId{0});
  pool_.run([&](Worker& worker) {
    const auto [begin, end] = worker.share(bytes, 4096);
    std::memset(base + begin, kOrdinaryByte, end - begin);
  });
}

void ModelBench::timed_step(const BenchShape& shape, const BenchStep& s) {
  if (!on_step_) return step(shape, s);
  const std::vector<StepRows> rows(shape.batch, {.rows = s.rows, .context = s.first});
  const double start = seconds_now();
  step(shape, s);
  on_step_(rows, s.logits ? shape.batch : 0, seconds_now() - start);
}

void ModelBench::step(const BenchShape& shape, const BenchStep& step) {
  std::vector<TokenId> tokens;
  std::vector<int32_t> positions;
  std::vector<ForwardBatch::Sequence> sequences;
  std::vector<uint32_t> logit_rows;
  for (uint32_t s = 0; s < shape.batch; ++s) {
    sequences.push_back({static_cast<uint32_t>(tokens.size()), step.rows, pointers_[s]});
    for (uint32_t r = 0; r < step.rows; ++r) {
      tokens.push_back(token_at(s, step.first + r, config().vocab_size));
      positions.push_back(static_cast<int32_t>(step.first + r));
    }
    if (step.logits) logit_rows.push_back(static_cast<uint32_t>(tokens.size()) - 1);
  }
  const std::vector<uint32_t> wanted(logit_rows.size(), 1);
  model_->forward({tokens, positions, sequences, logit_rows, wanted}, *store_, {}, best_);
}

}  // namespace kvasir
