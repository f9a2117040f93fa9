#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cpu_features.h"
#include "kernels/kernel_test_util.h"
#include "kernels/table.h"

namespace kvasir {
namespace {

TEST(Dispatch, NamesAreReadBack) {
  for (const Isa isa : all_isas()) {
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
    EXPECT_THAT(parsed.message(),
                testing::HasSubstr("scalar, neon-dotprod, avx2, avx-vnni, avx512-vnni, amx-int8"));
  }
}

TEST(Dispatch, ListHoldsEachOnceInOrder) {
  for (size_t i = 0; i < all_isas().size(); ++i) EXPECT_EQ(static_cast<size_t>(all_isas()[i]), i);
  EXPECT_EQ(all_isas().back(), Isa::kAmxInt8);
}

TEST(Dispatch, BestIsTheLastSupported) {
  EXPECT_TRUE(isa_supported(Isa::kScalar));
  const Isa best = best_isa();
  EXPECT_TRUE(isa_supported(best));
  for (const Isa isa : all_isas()) EXPECT_TRUE(isa <= best || !isa_supported(isa)) << isa_name(isa);
}

TEST(Dispatch, ForcedTablesAreWholeAndNamedRight) {
  for (const Isa isa : runnable_isas()) {
    const KernelTable& t = kernel_table(isa);
    EXPECT_EQ(t.isa, isa);
    EXPECT_TRUE(t.quantize_rows && t.linear && t.rms_norm && t.layer_norm && t.gated_act && t.rope && t.add &&
                t.scale && t.store_kv && t.attention && t.merge_attention && t.scan_logits && t.argmax &&
                t.log_sum_exp && t.softcap)
        << isa_name(isa);
    EXPECT_EQ(t.attention == kernel_table(Isa::kScalar).attention, isa == Isa::kScalar);
  }
}

TEST(DispatchDeathTest, UnsupportedTableIsAProgramFault) {
  EXPECT_DEATH(kernel_table(static_cast<Isa>(all_isas().size())), "");
  for (const Isa isa : all_isas()) {
    if (isa_supported(isa)) continue;
    EXPECT_DEATH(kernel_table(isa), "isa_supported");
  }
}

// No processor is of two families.
TEST(Dispatch, SetsOfOneFamilyOnly) {
#if defined(__x86_64__)
  EXPECT_FALSE(isa_supported(Isa::kNeonDotprod));
#else
  for (const Isa isa : {Isa::kAvx2, Isa::kAvxVnni, Isa::kAvx512Vnni, Isa::kAmxInt8})
    EXPECT_FALSE(isa_supported(isa));
#endif
}

#if defined(__x86_64__)
// The compiler's runtime asks the processor and the operating system by itself.
TEST(CpuFeatures, AgreeWithTheCompilersRuntime) {
  const CpuFeatures f = detect_cpu_features();
  EXPECT_EQ(f.avx2, __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
  EXPECT_EQ(f.avx_vnni, __builtin_cpu_supports("avxvnni") != 0);
  EXPECT_EQ(f.avx512f, __builtin_cpu_supports("avx512f") != 0);
  EXPECT_EQ(f.avx512bw, __builtin_cpu_supports("avx512bw") != 0);
  EXPECT_EQ(f.avx512vl, __builtin_cpu_supports("avx512vl") != 0);
  EXPECT_EQ(f.avx512dq, __builtin_cpu_supports("avx512dq") != 0);
  EXPECT_EQ(f.avx512vnni, __builtin_cpu_supports("avx512vnni") != 0);
  EXPECT_EQ(f.amx_int8, __builtin_cpu_supports("amx-int8") != 0);
}
#elif defined(__aarch64__)
// The processor says by itself what the kernel was asked: ID_AA64ISAR0_EL1.DP, bits 44 to 47, which Linux
// lets programs read.
TEST(CpuFeatures, AgreeWithTheProcessor) {
  uint64_t features = 0;
  __asm__("mrs %0, ID_AA64ISAR0_EL1" : "=r"(features));
  EXPECT_EQ(detect_cpu_features().neon_dotprod, (features >> 44 & 15) != 0);
}
#endif

}  // namespace
}  // namespace kvasir
