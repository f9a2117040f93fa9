#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "engine/sequence.h"
#include "perf/perf_model.h"

namespace kvasir {

// What a computed token counts for when service is shared. An output token costs its user more than one of a
// prompt, because a step reads all weights for its few answers, but once for all rows of a prompt.
struct TokenPrices {
  double prompt = 1;
  double output = 2;  // as in the paper below, where nothing is known of the machine

  // Of steps as `costs` predicts them: a row of a full step of prompt against a decode among `decodes`, after
  // `context` tokens. The output price is from 1 to kMostOutput times the prompt's.
  static constexpr double kMostOutput = 16;
  static TokenPrices of(const StepCosts& costs, uint32_t rows, uint32_t decodes, uint32_t context);
};

// What those who wait ask for: rows of prompts, and answers by how long they may get.
class WaitingWork {
 public:
  uint64_t rows = 0;
  // Tokens of answers of which each slot is to have `mean`, or the most that it may have if that is less.
  double outputs(double mean) const;
  void count(const Sequence& s, int32_t change);

 private:
  // By the binary logarithm of the most per slot.
  struct Bucket {
    double slots = 0, tokens = 0;
  };
  std::array<Bucket, 33> buckets_{};
};

// Who waits, by user, and whose turn it is. In this order:
//  - Priority: the lower number first.
//  - Service: of users with equal priority the one who was served least, in computed tokens times prices,
//    divided by the user's weight. This is the Virtual Token Counter of Sheng et al., "Fairness in Serving
//    Large Language Models", arXiv 2401.00588: a user who comes anew is lifted to the least of those who wait
//    (or to the one who left the queue last), so that idleness earns no credit. Other than there, tokens are
//    charged when they are scheduled: what the prefix cache serves is free, and what a preemption makes us
//    compute again is not charged twice. Between two users who both always wait, at equal priority and
//    weight, charges then differ by at most 2 * output price * tokens that can run at once (the paper's
//    theorem; its U).
//  - Age, among one user's requests and where counters are equal.
// Ageing: whenever kOvertakes requests were admitted while one of worse priority waited, the oldest of all is
// next and goes before all priorities from then on. So with k older requests waiting it is admitted after
// kOvertakes * (k + 1) others of better priority at most.
//
// next() looks at each user that waits once. Only find_user() allocates. Not thread-safe.
class FairQueue {
 public:
  static constexpr uint32_t kOvertakes = 8;
  // With so many users, a new one takes the place of one that has nothing here (who then loses his count).
  static constexpr uint32_t kKnownUsers = 1024;
  static constexpr uint32_t kPriorityClasses = 3;  // below 0, 0, above

  explicit FairQueue(const TokenPrices& prices);

  // The user of that name, made where there is none; "" is the anonymous one, 0. Stays valid while sequences
  // of the user wait or run. weight > 0: a user of weight 2 gets twice the service of one of weight 1.
  uint32_t find_user(std::string_view name, double weight = 1);

  void arrive(Sequence& s);    // a new sequence waits
  void put_back(Sequence& s);  // one that ran waits again
  void leave(Sequence& s);     // waits no longer, and does not run
  void admit(Sequence& s);     // runs from now on
  void stop(Sequence& s);      // ran, and does no longer
  // The sequence waits for its leader instead of its turn; the leader is set. See rejoin().
  void set_aside(Sequence& s);
  void rejoin(Sequence& s);

  // Whose turn it is; null when nobody waits for one.
  Sequence* next() const;
  // True when a goes before b. A strict order.
  bool before(const Sequence& a, const Sequence& b) const;

  // `rows` further tokens of s are computed.
  void charge(Sequence& s, uint32_t rows);

  uint32_t size() const { return size_; }  // sequences that wait, also those set aside
  uint32_t users_waiting() const { return users_waiting_; }
  const std::array<uint32_t, kPriorityClasses>& by_class() const { return by_class_; }
  const WaitingWork& work() const { return work_; }
  uint32_t longest() const;  // most sequences of one user that wait
  uint32_t running(uint32_t user) const { return users_[user].running; }  // slots
  double service(uint32_t user) const { return users_[user].service; }
  // Largest difference of two waiting users' service.
  double service_gap() const;
  const TokenPrices& prices() const { return prices_; }

  // Appends those who wait for their turn, that is without those set aside, in no particular order.
  void list(std::vector<Sequence*>* out) const;
  Status check_integrity() const;

 private:
  static constexpr uint32_t kNobody = UINT32_MAX;
  struct User {
    std::string name;
    double weight = 1;
    double service = 0;        // charged, divided by the weight
    uint32_t waiting = 0;      // sequences, also those set aside
    uint32_t running = 0;      // slots
    uint32_t place = kNobody;  // in in_line_
    SequenceList by_rank;      // rank, then age
    SequenceList by_age;
  };

  uint32_t place_for_new();
  void lift(uint32_t user);
  void enter(Sequence& s);
  void exit(Sequence& s);
  void count(const Sequence& s, int32_t change);

  TokenPrices prices_;
  std::vector<User> users_;
  std::unordered_map<std::string, uint32_t> by_name_;
  std::vector<uint32_t> in_line_;  // users with sequences that wait for their turn
  uint32_t size_ = 0;
  uint32_t users_waiting_ = 0;
  std::array<uint32_t, kPriorityClasses> by_class_{};
  WaitingWork work_;
  uint32_t last_to_leave_ = 0;  // the user whose last waiting sequence left most recently
  uint32_t overtakes_ = 0;
};

}  // namespace kvasir
