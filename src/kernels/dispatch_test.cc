#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cpu_features.h"
#include "kernels/kernel_test_util.h"
#include "kernels/table.h"

namespace kvasir {
namespace {

constexpr Isa kAllIsas[] = {Isa::kScalar, Isa::kAvx2, Isa::kAvx512Vnni};

TEST(Dispatch, NamesAreReadBack) {
  for (const Isa isa : kAllIsas) {
    const Result<Isa> parsed = parse_isa(isa_name(isa));
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(*parsed, isa);
  }
}

TEST(Dispatch, UnknownNameIsRefusedWithTheList) {
  for (const char* name : {"", "AVX2", "avx512", "neon"}) {
    const Result<Isa> parsed = parse_isa(name);
    ASSERT_FALSE(parsed.ok()) << name;
    EXPECT_EQ(parsed.status().code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(parsed.message(), testing::HasSubstr("'" + std::string(name) + "'"));
    EXPECT_THAT(parsed.message(), testing::HasSubstr("scalar, avx2, avx512-vnni"));
  }
}

TEST(Dispatch, BestIsTheLastSupported) {
  EXPECT_TRUE(isa_supported(Isa::kScalar));
  const Isa best = best_isa();
  EXPECT_TRUE(isa_supported(best));
  for (const Isa isa : kAllIsas) {
    EXPECT_TRUE(isa <= best || !isa_supported(isa)) << isa_name(isa);
  }
}

TEST(Dispatch, ForcedTablesAreWholeAndNamedRight) {
  for (const Isa isa : runnable_isas()) {
    const KernelTable& t = kernel_table(isa);
    EXPECT_EQ(t.isa, isa);
    EXPECT_TRUE(t.quantize_rows && t.linear && t.rms_norm && t.gated_act && t.rope && t.add && t.scale &&
                t.store_kv && t.attention && t.merge_attention && t.argmax && t.log_sum_exp && t.softcap)
        << isa_name(isa);
    EXPECT_EQ(t.attention == kernel_table(Isa::kScalar).attention, isa == Isa::kScalar);
  }
}

TEST(DispatchDeathTest, UnsupportedTableIsAProgramFault) {
  EXPECT_DEATH(kernel_table(static_cast<Isa>(3)), "");
  for (const Isa isa : kAllIsas) {
    if (isa_supported(isa)) continue;
    EXPECT_DEATH(kernel_table(isa), "isa_supported");
  }
}

// The compiler's runtime asks the processor and the operating system by itself.
TEST(CpuFeatures, AgreeWithTheCompilersRuntime) {
  const CpuFeatures f = detect_cpu_features();
  EXPECT_EQ(f.avx2, __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
  EXPECT_EQ(f.avx512f, __builtin_cpu_supports("avx512f") != 0);
  EXPECT_EQ(f.avx512bw, __builtin_cpu_supports("avx512bw") != 0);
  EXPECT_EQ(f.avx512vl, __builtin_cpu_supports("avx512vl") != 0);
  EXPECT_EQ(f.avx512dq, __builtin_cpu_supports("avx512dq") != 0);
  EXPECT_EQ(f.avx512vnni, __builtin_cpu_supports("avx512vnni") != 0);
}

}  // namespace
}  // namespace kvasir
