// What kvcache/kv_file.h writes under a numerics version must be what that version computes.

#include <gtest/gtest.h>

#include <filesystem>

#include "base/sha256.h"
#include "kernels/numerics_version.h"
#include "tests/model_fixture.h"

namespace kvasir {
namespace {

struct Known {
  const char* file;
  KvType type;
  const char* digest;  // of the blocks of 64 tokens, under kNumericsVersion
};

class NumericsVersion : public testing::TestWithParam<Known> {};

TEST_P(NumericsVersion, CoversEveryBitOfKAndV) {
  const Known& known = GetParam();
  if (!std::filesystem::exists(model_path(known.file))) GTEST_SKIP() << known.file << " is absent";
  LoadedModel loaded(known.file, best_isa(), 2, 32, known.type);
  const LoadedModel::Tables tables = loaded.make_tables(0, 2);
  std::vector<TokenId> tokens;
  std::vector<int32_t> positions;
  for (int32_t p = 0; p < 64; ++p) {
    tokens.push_back((p * 7919 + 13) % static_cast<int32_t>(loaded.vocab()));
    positions.push_back(p);
  }
  const std::vector<ForwardBatch::Sequence> sequences = {{0, 64, tables.pointers}};
  loaded.model().forward({tokens, positions, sequences, {}, {}}, loaded.store(), {});
  Sha256 hash;
  for (const std::vector<BlockId>& group : tables.ids) {
    for (const BlockId id : group) hash.update(loaded.store().block_bytes(id));
  }
  EXPECT_EQ(hex_text(hash.finish()), known.digest)
      << "K or V of version " << kNumericsVersion
      << " moved: raise kNumericsVersion and write the new digests here";
}

INSTANTIATE_TEST_SUITE_P(
    Models, NumericsVersion,
    testing::Values(Known{"smollm2-135m-instruct-q4_1.gguf", KvType::kF16,
                          "628d6015eaab9eff0da11f4e0d812fa8fe1c852d8adceaaf625aa2e731ede0e4"},
                    Known{"smollm2-135m-instruct-q4_1.gguf", KvType::kInt8,
                          "69d1bca20cab0275c80568e07dacbb5b31de112ce1c433de4d46b7e1faf5e149"},
                    Known{"gemma-3-270m-q4_k_m.gguf", KvType::kF16,
                          "b4cbc3b60f2ecede1ecb90c4c72f27d7d2cce566c92b185670769259be2c49ba"},
                    Known{"qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", KvType::kF16,
                          "4539b67e43b39d748b34af2e8e9e83266f905ab2bb19cb8aaf89b9c51e758165"}),
    [](const auto& test) {
      return model_test_name(test.param.file) + (test.param.type == KvType::kInt8 ? "_int8" : "_f16");
    });

}  // namespace
}  // namespace kvasir
