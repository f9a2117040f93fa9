#pragma once

#include <cstdint>

#include "kernels/generic/math.h"
#include "kernels/inline.h"
#include "kernels/isa/attention_state.h"
#include "kernels/isa/latent_state.h"

// One chunk of latent attention for the sixteen rows of a tile, over V, sixteen floats of an instruction set.
// Equal to generic/attention.cc to the bit: lanes are rows, so every sum of a row goes value by value, or
// position by position, in ascending order. Included only by isa/vector_latent_attention.h.
namespace kvasir::vec {

// What a tile sees of a chunk, as offsets: some rows see [begin, end), all of them [all_begin, all_end).
struct LatentRange {
  uint32_t begin = 0, end = 0;
  uint32_t all_begin = 0, all_end = 0;
};

// Also writes, for the positions that not all rows see, which do.
static inline LatentRange visible_range(const LatentRows& rows, uint32_t position, float* seen) {
  const auto offset = [position](uint32_t p) {
    const uint32_t o = p <= position ? 0 : p - position;
    return o < kAttnChunk ? o : kAttnChunk;
  };
  LatentRange r{kAttnChunk, 0, 0, kAttnChunk};
  for (uint32_t lane = 0; lane < kLatentLanes; ++lane) {
    const uint32_t from = offset(rows.first[lane]), to = offset(rows.end[lane]);
    r.begin = from < r.begin ? from : r.begin;
    r.end = to > r.end ? to : r.end;
    r.all_begin = from > r.all_begin ? from : r.all_begin;
    r.all_end = to < r.all_end ? to : r.all_end;
  }
  if (r.all_end < r.all_begin) r.all_end = r.all_begin;
  if (r.all_begin > r.end) r.all_begin = r.all_end = r.end;
  for (uint32_t t = r.begin; t < r.end; ++t) {
    if (t >= r.all_begin && t < r.all_end) continue;
    for (uint32_t lane = 0; lane < kLatentLanes; ++lane) {
      const bool sees = t >= offset(rows.first[lane]) && t < offset(rows.end[lane]);
      seen[t * kLatentLanes + lane] = sees ? 1.0f : 0.0f;
    }
  }
  return r;
}

// scores[n] = q . row n for N neighbouring rows of the chunk; `ahead` are rows to prefetch, or null.
template <class V, class Element, int N>
void score_latents(const float* q, const float* chunk, uint32_t width, const Element* const* ahead,
                   float* scores) {
  constexpr size_t kLine = 64 / sizeof(Element);
  V acc[N];
#pragma GCC unroll 16
  for (int n = 0; n < N; ++n) acc[n] = V::broadcast(0.0f);
  for (size_t d = 0; d < width; ++d) {
    if (ahead != nullptr && d % kLine == 0) {
#pragma GCC unroll 16
      for (int n = 0; n < N; ++n) prefetch(ahead[n] + d);
    }
    const V query = V::load(q + d * kLatentLanes);
#pragma GCC unroll 16
    for (int n = 0; n < N; ++n)
      acc[n] = fma(query, V::broadcast(chunk[static_cast<size_t>(n) * width + d]), acc[n]);
  }
#pragma GCC unroll 16
  for (int n = 0; n < N; ++n) acc[n].store(scores + n * kLatentLanes);
}

// weighted[n] += sum over t in [begin, end) of p[t] * column n of row t, for N neighbouring columns. Masked:
// only for the lanes that see t.
template <class V, int N, bool Masked>
void weigh_latents(const float* p, const float* seen, const float* columns, uint32_t width, uint32_t begin,
                   uint32_t end, float* weighted) {
  V acc[N];
#pragma GCC unroll 16
  for (int n = 0; n < N; ++n) acc[n] = V::load(weighted + n * kLatentLanes);
  for (uint32_t t = begin; t < end; ++t) {
    const V weight = V::load(p + t * kLatentLanes);
    const float* row = columns + size_t{t} * width;
#pragma GCC unroll 16
    for (int n = 0; n < N; ++n) {
      const V sum = fma(weight, V::broadcast(row[n]), acc[n]);
      if constexpr (Masked)
        acc[n] = select_less(V::broadcast(0.0f), V::load(seen + t * kLatentLanes), sum, acc[n]);
      else
        acc[n] = sum;
    }
  }
#pragma GCC unroll 16
  for (int n = 0; n < N; ++n) acc[n].store(weighted + n * kLatentLanes);
}

template <class V, bool Masked>
void weigh_range(const LatentState& s, const LatentRows& rows, uint32_t begin, uint32_t end) {
  constexpr uint32_t kStep = V::kLatentStep;
  if (begin >= end) return;
  for (uint32_t d = 0; d < s.latent; d += kStep)
    weigh_latents<V, kStep, Masked>(s.scores, s.seen, s.chunk + d, s.width, begin, end,
                                    rows.weighted + size_t{d} * kLatentLanes);
}

// Moves the rows' largest scores to those of the chunk, and rescales what has been summed where they grew.
template <class V>
void raise_max(V top, const LatentState& s, const LatentRows& rows) {
  const V one = V::broadcast(1.0f);
  const V max = V::load(rows.max);
  const V factor = select_less(max, top, math::exp_nonpositive(max - top), one);
  if (!(reduce_max(one - factor) > 0.0f)) return;
  select_less(max, top, top, max).store(rows.max);
  for (uint32_t i = 0; i < 16; ++i) {
    float* sums = rows.sums + i * kLatentLanes;
    (V::load(sums) * factor).store(sums);
  }
  for (size_t i = 0; i < size_t{s.latent} * kLatentLanes; i += kLatentLanes)
    (V::load(rows.weighted + i) * factor).store(rows.weighted + i);
}

// Scores to weights, as soften_row of vector_attention_tile.h does for one row.
template <class V>
void soften_latents(const AttentionArgs& a, const LatentState& s, const LatentRows& rows,
                    const LatentRange& r) {
  const V none = V::broadcast(-math::kInfinity), zero = V::broadcast(0.0f);
  const auto if_seen = [&](uint32_t t, V x, V otherwise) {
    if (t >= r.all_begin && t < r.all_end) return x;
    return select_less(zero, V::load(s.seen + t * kLatentLanes), x, otherwise);
  };
  V top = none;
  for (uint32_t t = r.begin; t < r.end; ++t) {
    float* score = s.scores + t * kLatentLanes;
    V v = V::load(score);
    if (a.softcap != 0.0f) {
      v = math::softcap(v, V::broadcast(a.softcap));
      v.store(score);
    }
    top = max(if_seen(t, v, none), top);
  }
  raise_max(top, s, rows);
  const V row_max = V::load(rows.max);
  for (uint32_t t = r.begin; t < r.end; ++t) {
    float* score = s.scores + t * kLatentLanes;
    const V p = if_seen(t, math::exp_nonpositive(V::load(score) - row_max), zero);
    float* sums = rows.sums + t % 16 * kLatentLanes;
    (V::load(sums) + p).store(sums);
    p.store(score);
  }
}

// The chunk at `position`, whose rows lie in s.chunk, for one tile. `next` are the rows of the chunk that
// follows, to be prefetched, or null.
template <class V, class Element>
void attend_latents(const AttentionArgs& a, const LatentState& s, const LatentRows& rows, uint32_t position,
                    const Element* const* next) {
  constexpr uint32_t kStep = V::kLatentStep;
  const LatentRange r = visible_range(rows, position, s.seen);
  if (r.begin >= r.end) return;
  for (uint32_t t = r.begin / kStep * kStep; t < r.end; t += kStep)
    score_latents<V, Element, kStep>(rows.q, s.chunk + size_t{t} * s.width, s.width,
                                     next == nullptr ? nullptr : next + t, s.scores + t * kLatentLanes);
  soften_latents<V>(a, s, rows, r);
  weigh_range<V, true>(s, rows, r.begin, r.all_begin);
  weigh_range<V, false>(s, rows, r.all_begin, r.all_end);
  weigh_range<V, true>(s, rows, r.all_end, r.end);
}

}  // namespace kvasir::vec
