#include "scenario.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <random>

#include "base/check.h"

namespace kvasir::sim {
namespace {

// Draws that are the same in every standard library.
class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed) {}
  uint32_t below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }
  uint32_t between(uint32_t low, uint32_t high) { return low + below(high - low + 1); }
  bool one_in(uint32_t n) { return below(n) == 0; }
  template <class T>
  T pick(std::initializer_list<T> list) {
    return list.begin()[below(static_cast<uint32_t>(list.size()))];
  }

 private:
  std::mt19937_64 random_;
};

std::vector<uint32_t> pick_windows(Dice& dice) {
  static const std::vector<std::vector<uint32_t>> kKinds = {
      {0}, {0, 0}, {24, 24, 0}, {24, 24, 0, 24, 24, 0}, {33, 0, 0}, {5, 0}, {24}, {48, 48}};
  return dice.one_in(2) ? kKinds[0] : kKinds[dice.below(static_cast<uint32_t>(kKinds.size()))];
}

Setup make_setup(Dice& dice, WorldKind kind) {
  Setup s;
  s.windows = pick_windows(dice);
  s.max_model_len = dice.between(40, kind == WorldKind::kEngine ? 160 : 300);
  const uint32_t longest = layout_of(s).blocks_for(s.max_model_len);
  s.blocks = dice.pick({longest, longest + longest / 2, 2 * longest, 3 * longest, 8 * longest});
  s.max_num_seqs = dice.between(1, 16);
  s.max_num_batched_tokens = dice.pick({dice.between(1, 12), dice.between(16, 64), dice.between(64, 400)});
  s.max_logit_rows = dice.one_in(3)
                         ? dice.between(1, s.max_num_batched_tokens)
                         : std::min(s.max_num_batched_tokens, std::max(s.max_num_seqs, uint32_t{64}));
  s.caching = !dice.one_in(10);
  s.hash_bits = dice.pick({64u, 64u, 2u, 0u});
  s.spare_nodes = dice.pick({0u, 4u, kPlentyOfNodes});
  s.costs = dice.one_in(2);
  if (s.costs && dice.one_in(2)) s.max_gap = 0.001 * dice.between(1, 60);
  return s;
}

Arrival make_arrival(Dice& dice, const Setup& setup) {
  Arrival a;
  const uint32_t longest = setup.max_model_len - 1;
  a.source = dice.pick({Arrival::Source::kText, Arrival::Source::kText, Arrival::Source::kText,
                        Arrival::Source::kTurn, Arrival::Source::kTurn, Arrival::Source::kRetry});
  a.family = dice.below(2);
  a.text = dice.below(6);
  a.length = a.source == Arrival::Source::kTurn ? dice.between(1, 40)
                                                : dice.between(1, dice.one_in(3) ? longest : longest / 2);
  a.shared = dice.one_in(4) ? 0 : dice.below(a.length + 1);
  a.target = dice.below(1u << 30);
  a.max_tokens = dice.one_in(30) ? 0 : dice.between(1, dice.one_in(4) ? longest : 40);
  a.n = dice.one_in(4) ? dice.between(1, std::min(setup.max_num_seqs, 5u)) : 1;
  a.salt = dice.one_in(6) ? dice.between(1, 2) : 0;
  a.greedy = dice.one_in(2);
  a.scored = dice.one_in(14);
  a.seed = dice.below(8);
  a.pace = dice.one_in(3) ? dice.between(1, 2) : 0;
  return a;
}

// Whose the requests are. Drawn apart, so that the rest of a scenario does not depend on it.
void share_out(Scenario& scenario, uint64_t seed) {
  Dice dice(~seed);
  Setup& setup = scenario.setup;
  setup.users = dice.pick({1u, 1u, 2u, 3u});
  setup.priorities = dice.one_in(3);
  for (Op& op : scenario.ops) {
    if (op.kind != Op::Kind::kArrive) continue;
    // The first user asks the most.
    op.arrival.user = dice.one_in(2) ? 0 : dice.below(setup.users);
    if (setup.priorities) op.arrival.priority = dice.pick({-1, 0, 0, 0, 2});
  }
}

// Allocations that fail, in a third of the scenarios. Drawn apart, too.
void lend_blocks(Scenario& scenario, uint64_t seed) {
  Dice dice(~(seed * 3));
  if (!dice.one_in(3)) return;
  for (size_t i = scenario.ops.size(); i-- > 0;) {
    if (!dice.one_in(8)) continue;
    Op op{Op::Kind::kGiveBack, 1, 0, {}};
    if (!dice.one_in(3)) op = {Op::Kind::kLend, dice.between(1, scenario.setup.blocks), 0, {}};
    scenario.ops.insert(scenario.ops.begin() + static_cast<std::ptrdiff_t>(i), op);
  }
}

}  // namespace

std::string user_name(uint32_t user) {
  return user == 0 ? "" : fmt::format("user {}", user);
}

KvLayout layout_of(const Setup& setup) {
  std::vector<KvLayerSpec> layers;
  for (const uint32_t window : setup.windows) layers.push_back({1, 8, window});
  return KvLayout::make(layers, kSimBlock).value();
}

Scenario make_scenario(WorldKind kind, uint64_t seed) {
  Dice dice(seed * 2 + static_cast<uint64_t>(kind));
  Scenario scenario;
  scenario.setup = make_setup(dice, kind);
  const uint32_t count = dice.between(10, kind == WorldKind::kEngine ? 60 : 150);
  while (scenario.ops.size() < count) {
    const uint32_t what = dice.below(10);
    if (what < 4) {
      // A burst of requests that arrive together, often with one beginning.
      Op op{Op::Kind::kArrive, 1, 0, make_arrival(dice, scenario.setup)};
      const uint32_t burst = dice.one_in(5) ? dice.between(2, 8) : 1;
      for (uint32_t i = 0; i < burst; ++i) {
        scenario.ops.push_back(op);
        op.arrival.text = dice.below(6);
        op.arrival.length = dice.between(1, scenario.setup.max_model_len - 1);
      }
    } else if (what < 5) {
      scenario.ops.push_back({Op::Kind::kCancel, 1, dice.below(1u << 30), {}});
    } else {
      scenario.ops.push_back({Op::Kind::kStep, dice.pick({1u, 1u, 2u, 5u, 20u}), 0, {}});
    }
  }
  share_out(scenario, seed);
  if (kind == WorldKind::kScheduler) lend_blocks(scenario, seed);
  return scenario;
}

std::string describe(const Setup& s) {
  return fmt::format(
      "windows {}, {} blocks of {}, at most {} sequences, {} rows, {} logit rows, {} tokens; caching {}, {} "
      "hash bits, {} spare nodes; {}; {} users{}",
      fmt::join(s.windows, ","), s.blocks, kSimBlock, s.max_num_seqs, s.max_num_batched_tokens,
      s.max_logit_rows, s.max_model_len, s.caching ? "on" : "off", s.hash_bits, s.spare_nodes,
      s.costs ? fmt::format("paced, gap {} s", s.max_gap) : "not paced", s.users,
      s.priorities ? " with priorities" : "");
}

std::string describe(const Op& op) {
  if (op.kind == Op::Kind::kStep) return fmt::format("step {} times", op.times);
  if (op.kind == Op::Kind::kLend) return fmt::format("lend {} blocks, as far as there are some", op.times);
  if (op.kind == Op::Kind::kGiveBack) return "give all lent blocks back";
  if (op.kind == Op::Kind::kCancel) return fmt::format("cancel request {}", op.target);
  const Arrival& a = op.arrival;
  std::string prompt;
  if (a.source == Arrival::Source::kText)
    prompt = fmt::format("text {} of family {}, {} tokens, {} shared", a.text, a.family, a.length, a.shared);
  else if (a.source == Arrival::Source::kTurn)
    prompt = fmt::format("the next turn of request {}, {} tokens more", a.target, a.length);
  else
    prompt = fmt::format("request {} again", a.target);
  return fmt::format(
      "arrive: {}; {} to generate, n {}, salt {}, {}{}, seed {}, pace {}, user {}, priority {}", prompt,
      a.max_tokens, a.n, a.salt, a.greedy ? "greedy" : "sampled", a.scored ? ", scored" : "", a.seed, a.pace,
      a.user, a.priority);
}

}  // namespace kvasir::sim
