// The step loop takes no memory from the system: a program of its own, because it counts every operator new.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

#include "engine/engine_core.h"
#include "engine/fake_model.h"
#include "tests/model_fixture.h"
#include "tests/steps/step_rig.h"
#include "tests/tiny_fixture.h"

namespace {

std::atomic<uint64_t> allocations{0};

void* allocate(std::size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  void* memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void* allocate(std::size_t bytes, std::align_val_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  const std::size_t align = static_cast<std::size_t>(alignment);
  void* memory = std::aligned_alloc(align, (bytes + align - 1) / align * align);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t bytes) {
  return allocate(bytes);
}
void* operator new[](std::size_t bytes) {
  return allocate(bytes);
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, alignment);
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, alignment);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace kvasir {
namespace {

// Allocations of so many steps.
template <class F>
uint64_t allocations_of(uint32_t steps, F step) {
  const uint64_t before = allocations;
  for (uint32_t i = 0; i < steps; ++i) step();
  return allocations - before;
}

TEST(StepAllocations, ThisProgramCountsThem) {
  EXPECT_EQ(allocations_of(3, [] { delete new int(1); }), 3u);
}

// Across block boundaries, with blocks that enter the prefix cache and old ones that give way.
TEST(StepAllocations, NoneWhile256SequencesDecode) {
  StepRig rig({.blocks = 1100, .max_num_batched_tokens = 1024});
  for (int i = 0; i < 128; ++i) rig.add(200);
  rig.settle();
  rig.clear();
  EXPECT_GT(rig.pool().cached(), 700u);
  for (int i = 0; i < 256; ++i) rig.add(20 + static_cast<uint32_t>(i) % 40);
  rig.settle();
  const uint32_t cached = rig.pool().cached();
  EXPECT_EQ(allocations_of(50, [&] { rig.step(); }), 0u);
  EXPECT_EQ(rig.scheduler().running().size(), 256u);
  EXPECT_LT(rig.pool().cached(), cached);
}

TEST(StepAllocations, NoneWhereWindowsAreLeft) {
  StepRig rig({.windows = {64, 64, 0, 64, 64, 0}, .blocks = 8192, .max_num_batched_tokens = 1024});
  for (int i = 0; i < 256; ++i) rig.add(40);
  rig.settle();
  EXPECT_EQ(allocations_of(150, [&] { rig.step(); }), 0u);
}

TEST(StepAllocations, NoneUnderPressureAndPreemption) {
  StepRig rig({.blocks = 600, .max_num_batched_tokens = 1024});
  for (int i = 0; i < 256; ++i) rig.add(40);
  for (int i = 0; i < 20; ++i) rig.step();
  EXPECT_EQ(allocations_of(200, [&] { rig.step(); }), 0u);
  EXPECT_GT(rig.scheduler().counters().preemptions, 0u);
}

TEST(StepAllocations, NoneWhilePromptsAreReadAndOthersWaitForThem) {
  StepRig rig({.blocks = 8192, .max_num_batched_tokens = 1024});
  for (int i = 0; i < 128; ++i) rig.add(30);
  rig.settle();
  for (int i = 0; i < 128; ++i) rig.add(1000, 900);
  EXPECT_EQ(allocations_of(60, [&] { rig.step(); }), 0u);
}

// A model that costs nothing: every row's best token is 7.
class NullLm final : public CausalLm {
 public:
  NullLm() {
    config_.vocab_size = 48;
    config_.context_length = 2048;
    config_.layers = 1;
    config_.windows = {0};
    config_.kv_heads = 1;
    config_.head_dim = 4;
    logits_.assign(config_.vocab_size, 0.0f);
    logits_[7] = 1.0f;
  }
  const ModelConfig& config() const override { return config_; }
  size_t weight_bytes() const override { return 0; }
  void read_embedding(TokenId, float*) const override {}
  void read_head_row(TokenId, float*) const override {}
  void forward(const ForwardBatch& batch, KvStore&, std::span<float>, std::span<BestLogits> best) override {
    for (size_t i = 0; i < batch.logit_rows.size(); ++i) {
      best[i].start(batch.wanted(i));
      best[i].add(logits_.data(), config_.vocab_size, 0, kernel_table(best_isa()));
    }
  }

 private:
  ModelConfig config_;
  std::vector<float> logits_;
};

// Passes of one row and of many, whose choices of experts differ.
TEST(StepAllocations, NoneInAModelWithExperts) {
  for (const char* name : {"qwen2moe", "gpt-oss", "deepseek-v3"}) {
    LoadedModel m(open_tiny(name), kernel_table(best_isa()), 2, 32, KvType::kF16, 128);
    const LoadedModel::Tables tables = m.make_tables(0, 4);
    for (const uint32_t rows : {1u, 60u}) {
      std::vector<TokenId> tokens(rows);
      std::vector<int32_t> positions(rows);
      for (uint32_t r = 0; r < rows; ++r) positions[r] = static_cast<int32_t>(r);
      const ForwardBatch::Sequence sequence = {0, rows, tables.pointers};
      const std::vector<uint32_t> logit_rows = {rows - 1};
      std::vector<float> logits(m.vocab());
      TokenId next = 0;
      EXPECT_EQ(allocations_of(
                    5,
                    [&] {
                      for (TokenId& t : tokens) t = next = (next * 7 + 1) % 256;
                      m.model().forward({tokens, positions, {&sequence, 1}, logit_rows}, m.store(), logits);
                    }),
                0u)
          << name << ", " << rows << " rows";
    }
  }
}

// The whole engine: what is told about a token is the only thing that takes memory, once per token.
TEST(StepAllocations, OneEventPerTokenInTheEngine) {
  NullLm model;
  FakeTokenizer tokenizer(48);
  ThreadPool threads(1);
  EngineConfig config;
  config.max_model_len = 2048;
  config.max_num_seqs = 256;
  const KvLayout layout = KvLayout::make(model.config().kv_layers(), 32).value();
  EngineCore core(config, layout, 4096, model, tokenizer, kernel_table(best_isa()), threads, 7);
  for (uint64_t i = 1; i <= 256; ++i) {
    Request request;
    request.prompt.assign(20 + i % 40, static_cast<TokenId>(1 + i % 40));
    request.sampling.max_tokens = 1500;
    request.sampling.temperature = 0;
    request.sampling.ignore_eos = true;
    core.add(
        RequestId{i}, std::move(request), [](TokenEvent&&) {}, 0);
  }
  const auto decodes = [](const Sequence* s) { return s->pending() == 1; };
  const std::vector<Sequence*>& running = core.scheduler().running();
  for (int i = 0; i < 1000 && (running.size() < 256 || !std::all_of(running.begin(), running.end(), decodes));
       ++i)
    core.step();
  ASSERT_EQ(running.size(), 256u);
  EXPECT_LE(allocations_of(50, [&] { core.step(); }), 50u * 256);
  EXPECT_EQ(allocations_of(50, [&] { core.update_stats(); }), 0u);
}

}  // namespace
}  // namespace kvasir
