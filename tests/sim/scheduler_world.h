#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "engine/scheduler.h"
#include "kv_contents.h"
#include "virtual_costs.h"
#include "world.h"

namespace kvasir::sim {

std::string salt_text(uint32_t salt);
// The token that a choice takes after a history, or kNoToken: the answer ends.
TokenId token_after(uint64_t history, uint64_t path);

// The real Scheduler, BlockPool, PrefixCache and block tables. This world plays the model, the sampler and
// the commit of a step as EngineCore does them, on KvContents and a virtual clock.
class SchedulerWorld final : public World {
 public:
  explicit SchedulerWorld(const Setup& setup);
  ~SchedulerWorld() override;

  Status apply(const Op& op) override;
  Status finish() override;

 private:
  struct SimChoice;
  struct SimRequest {
    Arrival arrival;
    uint32_t number = 0;
    uint64_t arrived_step = 0;
    std::vector<TokenId> prompt;
    uint32_t unparted = 0;  // choices that still are one sequence with choice 0
    std::vector<std::unique_ptr<SimChoice>> choices;
  };

  struct SimChoice final : Sequence {
    SimChoice(SimRequest& owner, uint32_t choice, BlockTable blocks, std::vector<TokenId> known)
        : Sequence(std::move(blocks), std::move(known), static_cast<uint32_t>(owner.prompt.size())),
          request(owner),
          index(choice) {
      extend_values();
    }

    // Values of all known tokens.
    void extend_values() {
      for (size_t p = values.size(); p < tokens.size(); ++p)
        values.push_back(p == 0 ? first_value(request.arrival.salt, tokens[0])
                                : next_value(values[p - 1], tokens[p]));
    }
    uint64_t path() const { return request.arrival.greedy ? 0 : (request.arrival.seed + 1) * 64 + index; }
    uint32_t generated() const { return known() - prompt_length; }

    SimRequest& request;
    uint32_t index;
    std::vector<uint64_t> values;
    uint32_t ends = 0;     // how often it ended
    uint32_t counted = 0;  // tokens that its user should have paid for
    bool was_cancelled = false;
  };

  // One that waited for its turn, before a plan.
  struct Waiter {
    const Sequence* sequence = nullptr;
    int32_t rank = 0;
  };

  // What a plan is held against, from before it.
  struct Before {
    explicit Before(const KvContents& contents) : index(contents) {}
    const Sequence* oldest = nullptr;
    std::set<const Sequence*> running;
    std::vector<Waiter> line;     // without those that wait for another's blocks
    std::vector<double> service;  // by user
    uint64_t preemptions = 0;
    uint32_t decodes = 0;
    uint32_t retained = 0;
    KvContents::Index index;
  };

  void arrive(const Arrival& arrival);
  std::vector<TokenId> prompt_of(const Arrival& arrival, uint32_t most) const;
  Status cancel(uint32_t target);
  void lend(uint32_t blocks);
  void give_back();
  Status step();
  Before look();
  Status check_plan(const SchedulerOutput& plan, const Before& before);
  Status check_admissions(const Before& before);
  Status check_followed(const Before& before, const SimChoice& s) const;
  Status check_turns(const Before& before);
  Status check_turn(const Before& before, const SimChoice& started);
  Status check_service(const Before& before, bool preempted);
  Status check_preempted(const Before& before) const;
  Status check_idleness(const SchedulerOutput& plan) const;
  Status check_pace(const SchedulerOutput& plan, const Before& before) const;
  Status compute(const SchedulerOutput& plan);
  void commit(const SchedulerOutput::Item& item, std::vector<SimChoice*>* caught_up);
  void part_choices(SimChoice& first);
  void accept(SimChoice& choice);
  void end(SimChoice& choice, bool cancelled);
  Status check();
  Status check_waits() const;
  Status check_entered() const;
  Status check_answers() const;
  Status probe();

  Setup setup_;
  KvLayout layout_;
  BlockPool pool_;
  PrefixCache cache_;
  VirtualCosts costs_;
  Scheduler scheduler_;
  KvContents contents_;
  std::vector<std::unique_ptr<SimRequest>> requests_;
  std::vector<BlockId> lent_;
  uint64_t work_ = 0;  // tokens of all requests so far, computed and generated
  uint64_t probes_ = 0;
};

}  // namespace kvasir::sim
