#include "kernels/cpu_features.h"

#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace kvasir {

#if defined(__x86_64__)
namespace {

struct CpuidLeaf {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

// All zero where the processor has no such leaf.
CpuidLeaf cpuid_leaf(uint32_t leaf, uint32_t subleaf) {
  CpuidLeaf r;
  if (__get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx) == 0) return CpuidLeaf{};
  return r;
}

bool bit(uint32_t word, int index) {
  return ((word >> index) & 1u) != 0;
}

// XCR0: which register states the operating system saves. Only where CPUID says OSXSAVE.
uint32_t saved_states() {
  uint32_t low = 0;
  uint32_t high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

constexpr uint32_t kYmmStates = 0x06;      // XMM, upper YMM
constexpr uint32_t kZmmStates = 0xe6;      // these, opmask, upper ZMM, ZMM 16-31
constexpr uint32_t kTileStates = 0x60000;  // the tiles and their configuration

// arch_prctl of Linux 5.16 and later.
constexpr long kRequestPermission = 0x1023;
constexpr long kTileData = 18;

}  // namespace

CpuFeatures detect_cpu_features() {
  CpuFeatures f;
  const CpuidLeaf one = cpuid_leaf(1, 0);
  const CpuidLeaf seven = cpuid_leaf(7, 0);
  const bool osxsave = bit(one.ecx, 27);
  if (!osxsave || !bit(one.ecx, 28)) return f;
  const uint32_t states = saved_states();
  if ((states & kYmmStates) != kYmmStates) return f;
  const bool fma = bit(one.ecx, 12);
  const bool f16c = bit(one.ecx, 29);
  f.avx2 = bit(seven.ebx, 5) && fma && f16c;
  f.avx_vnni = seven.eax >= 1 && bit(cpuid_leaf(7, 1).eax, 4);  // EAX of subleaf 0: the last subleaf
  if ((states & kZmmStates) != kZmmStates) return f;
  f.avx512f = bit(seven.ebx, 16);
  f.avx512dq = bit(seven.ebx, 17);
  f.avx512bw = bit(seven.ebx, 30);
  f.avx512vl = bit(seven.ebx, 31);
  f.avx512vnni = bit(seven.ecx, 11);
  if ((states & kTileStates) != kTileStates) return f;
  f.amx_int8 = bit(seven.edx, 24) && bit(seven.edx, 25);
  return f;
}

bool allow_amx_tiles() {
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

#else

CpuFeatures detect_cpu_features() {
  CpuFeatures f;
#if defined(__aarch64__)
  f.neon_dotprod = (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#endif
  return f;
}

bool allow_amx_tiles() {
  return false;
}

#endif

}  // namespace kvasir
