#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "base/thread_pool.h"
#include "gguf/gguf_file.h"
#include "kernels/best_logits.h"
#include "kernels/table.h"
#include "kvcache/kv_layout.h"
#include "kvcache/kv_store.h"
#include "models/forward_batch.h"
#include "models/model_config.h"
#include "models/step_profile.h"

namespace kvasir {

// A decoder-only transformer: configuration, packed weights, and the one forward pass.
class CausalLm {
 public:
  // Largest batch forward() will be given; scratch is sized from it once.
  struct Limits {
    uint32_t max_rows = 512;
    uint32_t max_logit_rows = 256;
    // The longest sequence there will be, 0: the trained context. Models whose RoPE has one set of factors
    // for short contexts and one for long ones are opened for one of them (docs/numerics.md, rule 3).
    uint32_t max_context = 0;
  };
  using Progress = std::function<void(uint64_t done_bytes, uint64_t total_bytes)>;

  // Packs the file's weights into memory of our own; `file` may be closed afterwards. Errors name the key or
  // tensor.
  static Result<std::unique_ptr<CausalLm>> load(const GgufFile& file, const KernelTable& kernels,
                                                ThreadPool& pool, const Limits& limits,
                                                const Progress& progress = {});
  virtual ~CausalLm() = default;

  virtual const ModelConfig& config() const = 0;
  virtual size_t weight_bytes() const = 0;
  // Memory that forward() works in, reserved when the model is loaded and first touched when it is needed.
  virtual size_t scratch_bytes() const { return 0; }

  // Computes the batch: writes K and V of every row into `kv`; then the logits, one row of
  // config().vocab_size after the other, of those logit_rows that want all; and into best[i] those of
  // logit_rows[i] where that wants only the best. Where only some tokens' logits are computed, those of the
  // others are left as they are, and never among the best. Hidden states that the batch asks for go where it
  // says, the same bits whatever else is in the batch. Allocates nothing. The batch must be within the
  // limits, and every table entry that a row reads or writes present.
  virtual void forward(const ForwardBatch& batch, KvStore& kv, std::span<float> logits,
                       std::span<BestLogits> best = {}) = 0;

  // A token's embedding as rows begin with it, and its row of the output head: hidden_dim values. For heads
  // that draft with them.
  virtual void read_embedding(TokenId token, float* out) const = 0;
  virtual void read_head_row(TokenId token, float* out) const = 0;

  // From now on adds the time of each phase to `profile`, which outlives its use; null: no longer.
  virtual void set_profile(StepProfile* profile) { (void)profile; }
};

}  // namespace kvasir
