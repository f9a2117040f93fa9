#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kvcache/kv_layout.h"

namespace kvasir::sim {

// Which part of the engine a scenario drives: the scheduler and the blocks alone, with a KV cache that
// remembers what was written where (thousands of steps per second), or the whole EngineCore over the fake
// model, with sampling, text and events.
enum class WorldKind : uint8_t { kScheduler, kEngine };

// The machine and the settings of a scenario.
struct Setup {
  std::vector<uint32_t> windows = {0};  // one per layer; 0: sees everything
  uint32_t blocks = 64;                 // of kSimBlock tokens
  uint32_t max_num_seqs = 8;
  uint32_t max_num_batched_tokens = 64;
  uint32_t max_logit_rows = 64;
  uint32_t max_model_len = 256;
  bool caching = true;
  uint32_t hash_bits = 64;   // of the prefix cache; few force collisions
  uint32_t spare_nodes = 0;  // of the prefix cache, beside one per block
  bool costs = false;        // steps have a predicted time, and prompts are paced by it
  double max_gap = 0;        // as Scheduler::Options
  uint32_t users = 1;        // who share the engine, with the weights of user_weight()
  bool priorities = false;   // requests have some
};
inline constexpr uint32_t kSimBlock = 16;
inline constexpr uint32_t kPlentyOfNodes = 400;  // with so many to spare, blocks never want for one
KvLayout layout_of(const Setup& setup);
std::string user_name(uint32_t user);
inline double user_weight(uint32_t user) {
  return 1.0 + user % 2;
}

// A request as a scenario describes it. What depends on other requests (the conversation that is continued)
// is named by their number of arrival, modulo how many there are, so that an operation keeps a meaning when
// others are left out.
struct Arrival {
  enum class Source : uint8_t {
    kText,   // `length` tokens, of which the first `shared` are those of every text of this `family`
    kTurn,   // prompt and answer of `target` and `length` tokens more
    kRetry,  // the prompt of `target` again
  };
  Source source = Source::kText;
  uint32_t family = 0, text = 0;
  uint32_t length = 1, shared = 0;
  uint32_t target = 0;
  uint32_t max_tokens = 1;
  uint32_t n = 1;
  uint32_t salt = 0;    // 0: none
  bool greedy = true;   // choices with the same history then choose the same token
  bool scored = false;  // the prompt's rows are all wanted (prompt logprobs)
  uint32_t seed = 0;
  uint32_t pace = 0;  // events that its reader takes per step; 0: all at once
  uint32_t user = 0;
  int32_t priority = 0;
};

struct Op {
  // kLend: blocks vanish from the pool, so that allocations fail on which somebody counted; as many stay as
  // the longest sequence needs. kGiveBack: all of them are there again.
  enum class Kind : uint8_t { kArrive, kCancel, kStep, kLend, kGiveBack };
  Kind kind = Kind::kStep;
  uint32_t times = 1;   // kStep; of kLend: blocks
  uint32_t target = 0;  // kCancel
  Arrival arrival;
};

struct Scenario {
  Setup setup;
  std::vector<Op> ops;
};

// The scenario of a seed, the same on every machine. Pools are often tiny (one request of the longest kind
// fits, or one and a half), prompts share beginnings, arrive in bursts and continue each other.
Scenario make_scenario(WorldKind kind, uint64_t seed);

// One line each.
std::string describe(const Setup& setup);
std::string describe(const Op& op);

}  // namespace kvasir::sim
