#pragma once

namespace kvasir {

// What the processor offers and the operating system keeps across a context switch. A bit is set only where
// both hold; bits of other processor families are never set.
struct CpuFeatures {
  bool avx2 = false;  // with FMA and F16C, as every processor with AVX2 has them
  bool avx512f = false;
  bool avx512bw = false;
  bool avx512vl = false;
  bool avx512dq = false;
  bool avx512vnni = false;
  bool neon_dotprod = false;
};

// Asks the processor (Intel SDM vol. 2A, CPUID; vol. 1, 13.3 for XGETBV) or, on AArch64, the kernel.
CpuFeatures detect_cpu_features();

}  // namespace kvasir
