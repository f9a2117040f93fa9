#pragma once

// The arithmetic of transformer inference. Every function states its formula, units and source; none reads
// anything but its arguments. Symbols are those of ModelShape (perf/model_shape.h): V vocabulary, D width, F
// feed-forward width, L layers, N query heads, K KV heads, H head size; B sequences (batch), S positions of a
// sequence, e bytes per KV value. "Book" is Austin et al., "How to Scale Your Model", 2025,
// https://jax-ml.github.io/scaling-book.
//
//   perf/parameter_formulas.h    how many weights, and how many bytes they are
//   perf/kv_formulas.h           the KV cache: per token, per sequence, windows, MLA, paging
//   perf/work_formulas.h         multiply-adds and bytes of every matrix and of attention; arithmetic
//   intensity perf/performance_formulas.h  memory, latency, throughput, limits of the batch
//   perf/speculation_formulas.h  speculative decoding
//   perf/performance_report.h    the same as a Derivation, which says how each number came about
#include "perf/kv_formulas.h"
#include "perf/parameter_formulas.h"
#include "perf/performance_formulas.h"
#include "perf/performance_report.h"
#include "perf/speculation_formulas.h"
#include "perf/work_formulas.h"
