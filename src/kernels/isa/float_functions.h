#pragma once

#include "kernels/table.h"

// The members of KernelTable that are not linear layers, once per instruction set. KernelTable says what each
// does; `scalar` defines the bits.

namespace kvasir::scalar {
void rms_norm(const float* x, const float* w, uint32_t n, float eps, float* y);
void layer_norm(const float* x, const float* w, const float* b, uint32_t n, float eps, float* y);
void gated_act(Activation act, const float* gate, const float* up, uint32_t n, float* y);
void rope(RopeKind kind, float* head, uint32_t n_rot, const float* cos, const float* sin);
void add(const float* x, uint32_t n, float* y);
void scale(float s, uint32_t n, float* y);
void softcap(float cap, uint32_t n, float* y);
void store_kv(const KvPlanes& kv, uint32_t kv_head, BlockId block, uint32_t slot, const float* k,
              const float* v);
void attention(const AttentionArgs& args);
void merge_attention(const float* partials, uint32_t count, uint32_t value_dim, float sink, float* out);
LogitScan scan_logits(const float* x, uint32_t n);
uint32_t argmax(const float* x, uint32_t n);
float log_sum_exp(const float* x, uint32_t n);
}  // namespace kvasir::scalar

namespace kvasir::avx2 {
void rms_norm(const float* x, const float* w, uint32_t n, float eps, float* y);
void layer_norm(const float* x, const float* w, const float* b, uint32_t n, float eps, float* y);
void gated_act(Activation act, const float* gate, const float* up, uint32_t n, float* y);
void rope(RopeKind kind, float* head, uint32_t n_rot, const float* cos, const float* sin);
void add(const float* x, uint32_t n, float* y);
void scale(float s, uint32_t n, float* y);
void softcap(float cap, uint32_t n, float* y);
void store_kv(const KvPlanes& kv, uint32_t kv_head, BlockId block, uint32_t slot, const float* k,
              const float* v);
void attention(const AttentionArgs& args);
void merge_attention(const float* partials, uint32_t count, uint32_t value_dim, float sink, float* out);
LogitScan scan_logits(const float* x, uint32_t n);
uint32_t argmax(const float* x, uint32_t n);
float log_sum_exp(const float* x, uint32_t n);
}  // namespace kvasir::avx2

namespace kvasir::avx512 {
void rms_norm(const float* x, const float* w, uint32_t n, float eps, float* y);
void layer_norm(const float* x, const float* w, const float* b, uint32_t n, float eps, float* y);
void gated_act(Activation act, const float* gate, const float* up, uint32_t n, float* y);
void rope(RopeKind kind, float* head, uint32_t n_rot, const float* cos, const float* sin);
void add(const float* x, uint32_t n, float* y);
void scale(float s, uint32_t n, float* y);
void softcap(float cap, uint32_t n, float* y);
void store_kv(const KvPlanes& kv, uint32_t kv_head, BlockId block, uint32_t slot, const float* k,
              const float* v);
void attention(const AttentionArgs& args);
void merge_attention(const float* partials, uint32_t count, uint32_t value_dim, float sink, float* out);
LogitScan scan_logits(const float* x, uint32_t n);
uint32_t argmax(const float* x, uint32_t n);
float log_sum_exp(const float* x, uint32_t n);
}  // namespace kvasir::avx512

namespace kvasir::neon {
void rms_norm(const float* x, const float* w, uint32_t n, float eps, float* y);
void layer_norm(const float* x, const float* w, const float* b, uint32_t n, float eps, float* y);
void gated_act(Activation act, const float* gate, const float* up, uint32_t n, float* y);
void rope(RopeKind kind, float* head, uint32_t n_rot, const float* cos, const float* sin);
void add(const float* x, uint32_t n, float* y);
void scale(float s, uint32_t n, float* y);
void softcap(float cap, uint32_t n, float* y);
void store_kv(const KvPlanes& kv, uint32_t kv_head, BlockId block, uint32_t slot, const float* k,
              const float* v);
void attention(const AttentionArgs& args);
void merge_attention(const float* partials, uint32_t count, uint32_t value_dim, float sink, float* out);
LogitScan scan_logits(const float* x, uint32_t n);
uint32_t argmax(const float* x, uint32_t n);
float log_sum_exp(const float* x, uint32_t n);
}  // namespace kvasir::neon
