#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/kv_type.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "decoding/drafter.h"
#include "engine/request.h"
#include "engine/stats.h"
#include "kvcache/kv_directory.h"
#include "models/causal_lm.h"
#include "perf/perf_model.h"
#include "tokenizer/tokenizer.h"

namespace kvasir {

// One drafter that an engine is to have: a name of drafter_kinds() (engine/drafters.h) and its argument.
struct DrafterSpec {
  std::string name;
  std::string argument;
};

// Who guesses tokens ahead, how many, and who decides.
struct SpeculationConfig {
  std::vector<DrafterSpec> drafters;  // none: no speculation
  uint32_t most = Draft::kMost;       // guesses per sequence and step
  // Verify all guesses, whatever that costs: for measurements and tests. Otherwise as many as the predicted
  // cost of steps makes worth while, which may be none.
  bool always = false;
  // Verify none, though drafters that are free make theirs and these are compared with what comes: for
  // measurements of what that costs.
  bool never = false;
  // How a guess becomes a token of a sampled answer. By match: if it is the token that would have come
  // without it; answers are then the same with and without speculation. By rejection: with the probability
  // that the distributions allow, which is at least as often; answers are then other draws of the same
  // distribution.
  enum class Accept : uint8_t { kMatch, kRejection };
  Accept accept = Accept::kMatch;
};

struct EngineConfig {
  // Tokens per sequence, prompt and output together; 0: the model's context. Where the whole pool holds
  // fewer, that is the limit.
  uint32_t max_model_len = 0;
  uint32_t max_num_seqs = 64;             // running at once
  uint32_t max_num_batched_tokens = 256;  // rows per step (the token budget)
  uint32_t max_queued_requests = 256;     // waiting; one more is refused
  uint32_t max_queued_per_user = 0;       // of them; 0: the fewer the fuller the queue is (queue_bound.h)
  uint32_t block_size = 16;               // tokens per KV block, a multiple of 16
  uint64_t kv_bytes = 0;                  // size of the pool; rounded down to whole blocks
  KvType kv_type = KvType::kF16;          // how K and V are stored
  // Most seconds between two tokens of a running answer while prompts are read, as far as steps are
  // predicted; 0: 50 ms, or three times what the running answers' own step takes where that is more.
  double max_itl_seconds = 0;
  SpeculationConfig speculation;
  bool enable_prefix_caching = true;
  // Seconds without any movement, though there is work, after which the engine says that it is ill
  // (health()); a step that was predicted to be long is given twenty times that. 0: never.
  double stall_seconds = 120;
  // Where a directory for KV blocks is given: what identifies the model's weights (gguf/fingerprint.h), the
  // most bytes of the file, and the seconds between saves while the engine runs (0: only when it ends).
  struct KvPersistence {
    std::string model;
    uint64_t max_bytes = uint64_t{4} << 30;
    double interval_seconds = 300;
  } kv_persistence;
  bool check_invariants = false;  // after every step instead of only when idle
};

// Requests that a user who is alone may have waiting.
uint32_t max_queued_of_one_user(const EngineConfig& config);

// What the model of such an engine must be loaded with.
CausalLm::Limits model_limits(const EngineConfig& config);

// The engine: one thread that owns sequences, blocks and the scheduler, and runs the step loop. All public
// functions are thread-safe and never wait for a step.
class Engine {
 public:
  // `model` (loaded with model_limits(config)), `tokenizer` and `pool`, the model's, outlive the engine.
  // `perf` predicts the steps (made for model_limits(config)); without one, prompts take the whole token
  // budget. `drafters`, made for config.max_num_seqs slots, guess tokens (engine/speculator.h). `directory`:
  // cached prefixes are taken from there now and written to it now and then and when the engine ends. Errors:
  // a limit of 0, a context longer than the model's, a KV pool too small for one block per group or larger
  // than the machine gives.
  static Result<std::unique_ptr<Engine>> start(const EngineConfig& config, CausalLm& model,
                                               const Tokenizer& tokenizer, const KernelTable& kernels,
                                               ThreadPool& pool, std::unique_ptr<PerfModel> perf = nullptr,
                                               std::vector<std::unique_ptr<Drafter>> drafters = {},
                                               std::unique_ptr<KvDirectory> directory = nullptr);
  virtual ~Engine() = default;  // cancels everything and joins the thread

  // Queues a request. Errors: kInvalidArgument when it can never fit (message with both numbers),
  // kResourceExhausted when the queue is full or holds enough of this user (EngineStats::queue_seconds says
  // for how long), kUnavailable when draining or while it does not move. Events go to `sink` until each
  // choice has finished.
  virtual Result<RequestId> submit(Request request, TokenSink sink) = 0;

  // Stops a request: its blocks are free within one step. No event follows except kCancelled for unfinished
  // choices. Unknown or finished ids are ignored.
  virtual void cancel(RequestId id) = 0;

  // Refuses new requests from now on; drained() tells when the last running one is done.
  virtual void drain() = 0;
  virtual bool drained() const = 0;

  // kUnavailable, with what it is at, while the engine does not move although it has work (stall_seconds).
  virtual Status health() const = 0;

  // A snapshot of counters, at most one step old; never waits.
  virtual EngineStats stats() const = 0;

  // Names of its drafters, in the order of Request::drafters.
  virtual std::vector<std::string> drafters() const { return {}; }

  virtual const EngineConfig& config() const = 0;  // with max_model_len as it really is
  // Tokens the pool holds, windows not considered.
  virtual uint64_t kv_token_capacity() const = 0;
};

}  // namespace kvasir
