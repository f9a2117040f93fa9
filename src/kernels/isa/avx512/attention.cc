#include "kernels/isa/avx512/lanes.h"
#include "kernels/isa/float_functions.h"
#include "kernels/isa/vector_attention.h"
#include "kernels/isa/vector_latent_attention.h"
#include "kernels/isa/vector_store_kv.h"

namespace kvasir::avx512 {

void store_kv(const KvPlanes& kv, uint32_t kv_head, BlockId block, uint32_t slot, const float* k,
              const float* v) {
  vec::store_kv<F32x16>(kv, kv_head, block, slot, k, v);
}

void attention(const AttentionArgs& args) {
  if (args.kv.latent != 0)
    vec::latent_attention<F32x16>(args);
  else
    vec::attention<F32x16>(args);
}

void merge_attention(const float* partials, uint32_t count, uint32_t value_dim, float sink, float* out) {
  vec::merge_attention<F32x16>(partials, count, value_dim, sink, out);
}

}  // namespace kvasir::avx512
