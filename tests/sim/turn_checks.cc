// Whose turn it is, of users and priorities, and who has to go: what every plan is held against. The rules
// are those of FairQueue and Scheduler, stated for whole plans.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "scheduler_world.h"

namespace kvasir::sim {
namespace {

constexpr double kRounding = 1e-6;  // of service, which is a sum of doubles

}  // namespace

// Whose turn it was can only be told from before and after where nobody had to go meanwhile: who goes waits
// again, in the same plan, and so may those who waited for blocks that he was computing.
Status SchedulerWorld::check_turns(const Before& before) {
  const bool preempted = scheduler_.counters().preemptions > before.preemptions;
  KVASIR_RETURN_IF_ERROR(check_service(before, preempted));
  KVASIR_RETURN_IF_ERROR(check_preempted(before));
  for (const Sequence* s : scheduler_.running()) {
    if (!preempted && before.running.count(s) == 0)
      KVASIR_RETURN_IF_ERROR(check_turn(before, static_cast<const SimChoice&>(*s)));
  }
  return {};
}

// Each user is charged for what this plan computes for him the first time; what is computed again or came
// from the cache is free. Who is preempted in the plan in which he had got rows has been charged for them
// already.
Status SchedulerWorld::check_service(const Before& before, bool preempted) {
  const FairQueue& queue = scheduler_.queue();
  std::vector<double> served = before.service;
  for (const auto& request : requests_) {
    for (const auto& choice : request->choices) {
      SimChoice& s = *choice;
      if (preempted) s.counted = std::max(s.counted, s.charged);
      if (preempted || s.state != Sequence::State::kRunning || s.scheduled == 0) continue;
      const uint32_t begin = std::max(s.counted, s.computed), end = std::max(begin, s.computed + s.scheduled);
      const uint32_t answer = std::clamp(s.prompt_length, begin, end);
      s.counted = end;
      served[s.user] += (queue.prices().prompt * (answer - begin) + queue.prices().output * (end - answer)) /
                        user_weight(s.user);
    }
  }
  for (uint32_t u = 0; !preempted && u < setup_.users; ++u) {
    if (std::abs(queue.service(u) - served[u]) > kRounding * (1 + served[u]))
      return internal_error(
          fmt::format("user {} has been served {}, and is charged {}", u, served[u], queue.service(u)));
  }
  return {};
}

// `started` was let in; nobody who waited for his turn all along was to go before it. Within a plan ranks
// only get better and service only grows, so the others' ranks of before and service of after count, and its
// own rank of after and service of before.
Status SchedulerWorld::check_turn(const Before& before, const SimChoice& started) {
  bool overtook = false;
  for (const Waiter& w : before.line) {
    const Sequence& other = *w.sequence;
    if (other.state != Sequence::State::kWaiting || other.leader != nullptr) continue;
    overtook = overtook || other.age < started.age;
    if (w.rank < started.rank())
      return internal_error(fmt::format("request {} of rank {} starts before request {} of rank {}",
                                        started.age.first, started.rank(), other.age.first, w.rank));
    if (w.rank != started.rank() || started.urgent) continue;
    if (other.user == started.user && other.age < started.age)
      return internal_error(fmt::format("request {} starts before request {} of the same user",
                                        started.age.first, other.age.first));
    const double mine = before.service[started.user], theirs = scheduler_.queue().service(other.user);
    if (other.user != started.user && mine > theirs * (1 + kRounding))
      return internal_error(
          fmt::format("request {} of user {}, served {}, starts before request {} of user {}, "
                      "served {}",
                      started.age.first, started.user, mine, other.age.first, other.user, theirs));
  }
  tally_.overtakes += overtook;
  return {};
}

// Who was preempted had no better a priority than any who runs on; and with one user and one priority was the
// youngest.
Status SchedulerWorld::check_preempted(const Before& before) const {
  const bool plain = setup_.users == 1 && !setup_.priorities;
  for (const Sequence* gone : before.running) {
    if (gone->state != Sequence::State::kWaiting) continue;
    for (const Sequence* stays : scheduler_.running()) {
      if (before.running.count(stays) == 0 || stays == before.oldest) continue;
      if (stays->rank() > gone->rank() || (plain && stays->age > gone->age))
        return internal_error(fmt::format("request {} of rank {} had to go, request {} of rank {} did not",
                                          gone->age.first, gone->rank(), stays->age.first, stays->rank()));
    }
  }
  return {};
}

}  // namespace kvasir::sim
