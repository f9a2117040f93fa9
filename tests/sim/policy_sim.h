#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "kvcache/kv_layout.h"
#include "perf/perf_model.h"

namespace kvasir::sim {

// One request of a load.
struct LoadRequest {
  double time = 0;  // of its arrival, seconds
  std::vector<TokenId> prompt;
  uint32_t output = 1;  // tokens that it generates
};

// A load as chat services see it: arrivals are a Poisson process; prompts begin with one of a few system
// prompts and go on with a text of their own; the lengths of texts and answers are log-normal, which is how
// those of collected conversations spread (vLLM's paper, arXiv 2309.06180, figure 11). The same for a seed on
// every machine.
struct LoadShape {
  uint32_t requests = 256;
  double rate = 1;  // requests per second; 0: all arrive at once
  uint32_t system_prompts = 4;
  uint32_t system_tokens = 256;                     // of each
  double prompt_median = 120, prompt_spread = 1.0;  // tokens of the own text; spread: sigma of the logarithm
  double output_median = 150, output_spread = 0.8;
  uint32_t longest = 2048;  // of a prompt's own text and of an answer, each
  uint64_t seed = 1;
};
std::vector<LoadRequest> make_load(const LoadShape& shape);

// How requests share the machine. All run on the real scheduler, pool and prefix cache.
struct Policy {
  std::string name;
  std::string idea;            // one line
  bool in_batches = false;     // static batching: the next batch starts when all of the last have ended
  bool padded = false;         // and all rows of the longest are computed for each, as batched tensors are
  bool contiguous = false;     // a sequence reserves KV for the whole context
  bool whole_prompts = false;  // a prompt is computed in one step
  bool paced = false;          // prompt chunks sized by the predicted time of steps
  bool sharing = false;        // prefix cache
};
// Static batching, continuous batching, and so on to this engine; each adds one idea to the one before.
const std::vector<Policy>& policies();

struct PolicyMachine {
  const KvLayout* layout = nullptr;
  const StepCosts* costs = nullptr;  // for steps of up to context + max_num_seqs rows
  uint64_t kv_bytes = 0;
  uint32_t context = 8192;
  uint32_t max_num_seqs = 64;
  uint32_t max_num_batched_tokens = 256;
};

struct Quantiles {
  double mean = 0, p50 = 0, p99 = 0, max = 0;
};
Quantiles quantiles(std::vector<double> values);

struct PolicyResult {
  double seconds = 0;  // from the first arrival to the last token
  uint64_t output_tokens = 0, prompt_tokens = 0;
  uint64_t computed_tokens = 0;  // rows
  uint64_t steps = 0, preemptions = 0;
  Quantiles ttft;           // seconds from arrival to the first token
  Quantiles itl;            // seconds between two tokens of an answer
  double wasted = 0;        // of the KV slots allocated those that hold no token, mean over time
  double running_mean = 0;  // sequences that hold KV, mean over time
  uint32_t running_most = 0;

  double output_per_second() const { return static_cast<double>(output_tokens) / seconds; }
};
PolicyResult simulate(const Policy& policy, const std::vector<LoadRequest>& load,
                      const PolicyMachine& machine);

}  // namespace kvasir::sim
