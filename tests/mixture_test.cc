// Layers with experts, on the small models: files that keep their experts in other ways give the same bits,
// and no expert is read that no row chose.

#include <atomic>
#include <cstring>
#include <limits>
#include <set>

#include "models/weight_sizes.h"
#include "tests/model_runs.h"
#include "tests/tiny_fixture.h"
#include "tests/tiny_rewrite.h"

namespace kvasir {
namespace {

constexpr uint32_t kPositions = 64;

LoadedModel load(const GgufFile& file, uint32_t threads = 1) {
  return LoadedModel(file, best_isa(), threads, 32, KvType::kF16, kPositions);
}

std::vector<float> logits_of(const std::vector<std::byte>& bytes, const std::vector<TokenId>& tokens,
                             uint32_t threads = 1) {
  const auto file = GgufFile::parse(bytes, "rewritten");
  EXPECT_TRUE(file.ok()) << file.message();
  LoadedModel m = load(*file, threads);
  return run(m, tokens, static_cast<uint32_t>(tokens.size()), 0);
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  return text.replace(text.find(from), from.size(), to);
}

std::span<const std::byte> slice(const TensorInfo& t, uint64_t part, uint64_t parts) {
  const size_t bytes = t.view.bytes() / parts;
  return {t.view.data + part * bytes, bytes};
}

// Every expert's gate and then its up, in one tensor.
std::vector<std::byte> fused(const GgufFile& file) {
  GgufBuilder out;
  for (const auto& [key, value] : file.metadata().entries()) copy_pair(out, key, value);
  for (const TensorInfo& t : file.tensors()) {
    const auto& shape = t.view.shape;
    const auto type = static_cast<uint32_t>(t.view.type);
    std::vector<std::byte> data;
    if (t.name.find("ffn_up_exps") != std::string::npos) continue;
    if (t.name.find("ffn_gate_exps") == std::string::npos) {
      data.assign(t.view.data, t.view.data + t.view.bytes());
      out.tensor(t.name, type, dims_of(shape[0], shape[1], shape[2]), data);
      continue;
    }
    const TensorInfo* up = file.find_tensor(replaced(t.name, "gate", "up"));
    const bool bias = shape[2] == 1;
    const uint64_t experts = bias ? shape[1] : shape[2];
    for (uint64_t e = 0; e < experts; ++e) {
      for (const TensorInfo* half : {&t, up}) {
        const auto part = slice(*half, e, experts);
        data.insert(data.end(), part.begin(), part.end());
      }
    }
    const auto dims = bias ? dims_of(2 * shape[0], experts, 1) : dims_of(shape[0], 2 * shape[1], experts);
    out.tensor(replaced(t.name, "gate", "gate_up"), type, dims, data);
  }
  return out.build();
}

// A tensor for each matrix of each expert; `damaged` has one output more.
std::vector<std::byte> apart(const GgufFile& file, const std::string& damaged = "") {
  GgufBuilder out;
  for (const auto& [key, value] : file.metadata().entries()) copy_pair(out, key, value);
  for (const TensorInfo& t : file.tensors()) {
    const auto& shape = t.view.shape;
    const bool experts = t.name.find("_exps.weight") != std::string::npos;
    for (uint64_t e = 0; e < (experts ? shape[2] : 1); ++e) {
      const std::string name = experts ? replaced(t.name, "_exps", "." + std::to_string(e)) : t.name;
      const auto part = slice(t, e, experts ? shape[2] : 1);
      std::vector<std::byte> data(part.begin(), part.end());
      const uint64_t rows = shape[1] + (name == damaged ? 1 : 0);
      data.resize(data.size() / shape[1] * rows);
      out.tensor(name, static_cast<uint32_t>(t.view.type), dims_of(shape[0], rows, 1), data);
    }
  }
  return out.build();
}

class Mixtures : public testing::TestWithParam<std::string> {};

TEST_P(Mixtures, FusedGateAndUpGiveTheSameBits) {
  const GgufFile file = open_tiny(GetParam());
  const auto tokens = TinyGolden(GetParam()).tokens;
  LoadedModel m = load(file);
  const auto whole = run(m, tokens, kPositions, 0);
  EXPECT_TRUE(same_bits(whole, logits_of(fused(file), tokens)));
  EXPECT_TRUE(same_bits(whole, logits_of(fused(file), tokens, 3)));
}

TEST_P(Mixtures, ThreadsDoNotMatter) {
  const GgufFile file = open_tiny(GetParam());
  const auto tokens = TinyGolden(GetParam()).tokens;
  LoadedModel one = load(file);
  const auto whole = run(one, tokens, kPositions, 0);
  for (const uint32_t threads : {2u, 3u, 5u, 8u}) {
    LoadedModel m = load(file, threads);
    for (const uint32_t chunk : {1u, 2u, 3u, 30u, kPositions})
      EXPECT_TRUE(same_bits(whole, run(m, tokens, chunk, chunk == 3 ? 5 : 0))) << threads << ", " << chunk;
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, Mixtures,
                         testing::Values("mixtral", "qwen2moe", "qwen3moe", "olmoe", "granitemoe",
                                         "granitemoe-shared", "gpt-oss", "deepseek-v2-lite", "deepseek-v2",
                                         "deepseek-v3"),
                         tiny_test_name);

// As the first files of Mixtral are, in every format.
TEST(ExpertsApart, GiveTheSameBits) {
  const GgufFile file = open_tiny("mixtral");
  const auto tokens = TinyGolden("mixtral").tokens;
  for (const DTypeInfo& format : dtype_table()) {
    const Rewritten quantised = rewrite(file, format.type, Stored::kFormat);
    if (quantised.matrices == 0) continue;
    const auto together = GgufFile::parse(quantised.bytes, "together");
    ASSERT_TRUE(together.ok());
    EXPECT_TRUE(same_bits(logits_of(quantised.bytes, tokens), logits_of(apart(*together), tokens)))
        << format.name;
  }
}

TEST(ExpertsApart, NameWhatIsWrong) {
  const auto bytes = apart(open_tiny("mixtral"), "blk.1.ffn_up.2.weight");
  const auto file = GgufFile::parse(bytes, "damaged");
  ASSERT_TRUE(file.ok());
  auto config = read_model_config(file->metadata());
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(read_weight_sizes(*file, *config).message(),
            "tensor 'blk.1.ffn_up.2.weight' has shape (64, 65, 1, 1); the metadata calls for (64, 64)");
}

// The same file with one expert of a layer that is not a number.
std::vector<std::byte> poisoned(const GgufFile& file, const std::string& layer, uint64_t expert) {
  GgufBuilder out;
  for (const auto& [key, value] : file.metadata().entries()) copy_pair(out, key, value);
  for (const TensorInfo& t : file.tensors()) {
    const auto& shape = t.view.shape;
    std::vector<std::byte> data(t.view.data, t.view.data + t.view.bytes());
    if (t.name.starts_with(layer) && t.name.find("_exps.weight") != std::string::npos) {
      const float nan = std::numeric_limits<float>::quiet_NaN();
      const size_t bytes = data.size() / shape[2];
      for (size_t at = expert * bytes; at < (expert + 1) * bytes; at += sizeof nan)
        std::memcpy(data.data() + at, &nan, sizeof nan);
    }
    out.tensor(t.name, static_cast<uint32_t>(t.view.type), dims_of(shape[0], shape[1], shape[2]), data);
  }
  return out.build();
}

// Of eight experts of a layer exactly the three that a token goes to matter to it, beside others too.
TEST(ChosenExperts, AreTheOnlyOnesThatMatter) {
  const GgufFile file = open_tiny("qwen3moe");
  const std::vector<TokenId> tokens = {TinyGolden("qwen3moe").tokens[0]};
  for (const uint32_t mates : {0u, 4u}) {
    LoadedModel clean = load(file);
    const auto want = run(clean, tokens, 1, mates);
    uint32_t matter = 0;
    for (uint64_t e = 0; e < 8; ++e) {
      const auto bytes = poisoned(file, "blk.1.", e);
      const auto parsed = GgufFile::parse(bytes, "poisoned");
      ASSERT_TRUE(parsed.ok());
      LoadedModel m = load(*parsed);
      const auto got = run(m, tokens, 1, mates);
      if (same_bits(got, want)) continue;
      ++matter;
      EXPECT_TRUE(std::isnan(got[0])) << e;
    }
    EXPECT_EQ(matter, 3u);
  }
}

std::atomic<uint64_t> bytes_multiplied{0};

void counting_linear(const LinearArgs& a) {
  bytes_multiplied += uint64_t{a.panel_end - a.panel_begin} * a.w->panel_bytes;
  kernel_table(best_isa()).linear(a);
}

// Bytes of weights that the linear kernels are given in steps of so many rows of each of some sequences.
std::vector<uint64_t> bytes_of_steps(const GgufFile& file, uint32_t threads, uint32_t chunk, uint32_t mates) {
  KernelTable counting = kernel_table(best_isa());
  counting.linear = counting_linear;
  LoadedModel m(file, counting, threads, 32, KvType::kF16, kPositions);
  std::vector<uint64_t> out;
  for (uint32_t seed = 0; seed < 8; ++seed) {
    bytes_multiplied = 0;
    run(m, random_tokens(chunk, m.vocab(), seed), chunk, mates);
    out.push_back(bytes_multiplied);
  }
  return out;
}

// One token reads its experts and no other weights of experts, to the byte; many tokens read each expert at
// most once, whoever of them go there.
TEST_P(Mixtures, ReadWhatIsChosenAndThatOnce) {
  const GgufFile file = open_tiny(GetParam());
  for (const bool quantised : {false, true}) {
    const Rewritten bytes = rewrite(file, DType::kQ8_0, Stored::kFormat);
    const auto rewritten = GgufFile::parse(bytes.bytes, "rewritten");
    ASSERT_TRUE(rewritten.ok());
    const GgufFile& tested = quantised ? *rewritten : file;
    auto config = read_model_config(tested.metadata());
    ASSERT_TRUE(config.ok());
    const auto sizes = read_weight_sizes(tested, *config);
    ASSERT_TRUE(sizes.ok());
    const uint64_t always = sizes->layer_bytes + sizes->head_bytes;
    const RouterShape& router = config->mixture.router;
    EXPECT_EQ(sizes->active_expert_bytes * router.experts, sizes->expert_bytes * router.used);
    for (const uint32_t threads : {1u, 2u, 3u}) {
      for (const uint64_t one : bytes_of_steps(tested, threads, 1, 0))
        EXPECT_EQ(one, always + sizes->active_expert_bytes) << threads;
      std::set<uint64_t> seen;
      for (const uint64_t several : bytes_of_steps(tested, threads, 2, 0)) {
        EXPECT_GE(several, always + sizes->active_expert_bytes);
        EXPECT_LE(several, always + std::min(sizes->expert_bytes, 2 * sizes->active_expert_bytes));
        seen.insert(several);
      }
      EXPECT_GT(seen.size(), 1u);
      for (const uint64_t many : bytes_of_steps(tested, threads, 50, 1))
        EXPECT_LE(many, always + sizes->expert_bytes) << threads;
    }
  }
}

}  // namespace
}  // namespace kvasir
