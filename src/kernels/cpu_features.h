#pragma once

namespace kvasir {

// What the processor offers and the operating system keeps across a context switch. A bit is set only where
// both hold; bits of other processor families are never set.
struct CpuFeatures {
  bool avx2 = false;  // with FMA and F16C, as every processor with AVX2 has them
  bool avx_vnni = false;
  bool avx512f = false;
  bool avx512bw = false;
  bool avx512vl = false;
  bool avx512dq = false;
  bool avx512vnni = false;
  bool amx_int8 = false;  // with AMX-TILE; to be used after allow_amx_tiles()
  bool neon_dotprod = false;
};

// Asks the processor (Intel SDM vol. 2A, CPUID; vol. 1, 13.3 for XGETBV) or, on AArch64, the kernel.
CpuFeatures detect_cpu_features();

// Asks the kernel to keep this process's tile registers, which Linux does only for processes that ask
// (Documentation/arch/x86/xstate.rst). Holds for all threads from then on; false where it is refused.
bool allow_amx_tiles();

}  // namespace kvasir
