#include "engine/fair_queue.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "base/check.h"

namespace kvasir {
namespace {

using Links = SequenceLinks Sequence::*;

// Puts s behind `after`; null: to the front.
template <Links L>
void insert(SequenceList& list, Sequence* after, Sequence& s) {
  SequenceLinks& links = s.*L;
  links.previous = after;
  links.next = after != nullptr ? (after->*L).next : list.first;
  (after != nullptr ? (after->*L).next : list.first) = &s;
  (links.next != nullptr ? (links.next->*L).previous : list.last) = &s;
}

template <Links L>
void erase(SequenceList& list, Sequence& s) {
  SequenceLinks& links = s.*L;
  (links.previous != nullptr ? (links.previous->*L).next : list.first) = links.next;
  (links.next != nullptr ? (links.next->*L).previous : list.last) = links.previous;
  links = {};
}

// Puts s behind everyone that does not come after it, looking from the back: arrivals are the youngest.
template <Links L, class Before>
void insert_sorted(SequenceList& list, Sequence& s, Before before) {
  Sequence* after = list.last;
  while (after != nullptr && before(s, *after)) after = (after->*L).previous;
  insert<L>(list, after, s);
}

bool older(const Sequence& a, const Sequence& b) {
  return a.age < b.age;
}

bool ranks_before(const Sequence& a, const Sequence& b) {
  return a.rank() != b.rank() ? a.rank() < b.rank() : a.age < b.age;
}

bool needs_fewer(const Sequence& a, const Sequence& b) {
  return a.leader_tokens < b.leader_tokens;
}

size_t class_of(int32_t priority) {
  return priority < 0 ? 0 : priority == 0 ? 1 : 2;
}

}  // namespace

TokenPrices TokenPrices::of(const StepCosts& costs, uint32_t rows, uint32_t decodes, uint32_t context) {
  StepLoad prompt, answers;
  costs.add(prompt, {.rows = rows, .context = 0}, 1);
  for (uint32_t i = 0; i < decodes; ++i) costs.add(answers, {.rows = 1, .context = context}, 1);
  const double prompt_row = costs.seconds(prompt) / rows;
  const double answer_row = costs.seconds(answers) / decodes;
  TokenPrices prices;
  if (prompt_row > 0) prices.output = std::clamp(answer_row / prompt_row, 1.0, kMostOutput);
  return prices;
}

double WaitingWork::outputs(double mean) const {
  double all = 0;
  for (const Bucket& b : buckets_) all += std::min(b.tokens, b.slots * mean);
  return all;
}

void WaitingWork::count(const Sequence& s, int32_t change) {
  rows += static_cast<uint64_t>(int64_t{change} * s.known());
  const double per_slot = std::clamp(s.most_output / s.slots, 0.0, double{UINT32_MAX});
  Bucket& b = buckets_[static_cast<size_t>(std::bit_width(static_cast<uint32_t>(per_slot)))];
  b.slots += change * static_cast<double>(s.slots);
  b.tokens += change * s.most_output;
}

FairQueue::FairQueue(const TokenPrices& prices) : prices_(prices) {
  find_user("", 1);
}

// --- users ---

uint32_t FairQueue::find_user(std::string_view name, double weight) {
  CHECK(weight > 0);
  const auto known = by_name_.find(std::string(name));
  const uint32_t user = known != by_name_.end() ? known->second : place_for_new();
  if (known == by_name_.end()) {
    users_[user].name = std::string(name);
    by_name_.emplace(users_[user].name, user);
  }
  users_[user].weight = weight;
  return user;
}

// A new place, or that of the user with the least service among those who have nothing here.
uint32_t FairQueue::place_for_new() {
  uint32_t found = kNobody;
  for (uint32_t u = 1; users_.size() >= kKnownUsers && u < users_.size(); ++u) {
    if (users_[u].waiting + users_[u].running > 0 || u == last_to_leave_) continue;
    if (found == kNobody || users_[u].service < users_[found].service) found = u;
  }
  if (found == kNobody) {
    users_.emplace_back();
    in_line_.reserve(users_.size());
    return static_cast<uint32_t>(users_.size() - 1);
  }
  by_name_.erase(users_[found].name);
  users_[found] = {};
  return found;
}

// Who comes anew starts where those who wait are: idleness earns nothing.
void FairQueue::lift(uint32_t user) {
  double least = std::numeric_limits<double>::infinity();
  for (const User& u : users_) {
    if (u.waiting > 0) least = std::min(least, u.service);
  }
  if (users_waiting_ == 0) least = users_[last_to_leave_].service;
  users_[user].service = std::max(users_[user].service, least);
}

// --- who waits ---

void FairQueue::count(const Sequence& s, int32_t change) {
  User& u = users_[s.user];
  if (change > 0 && u.waiting == 0) ++users_waiting_;
  u.waiting += static_cast<uint32_t>(change);
  size_ += static_cast<uint32_t>(change);
  work_.count(s, change);
  by_class_[class_of(s.priority)] += static_cast<uint32_t>(change);
  if (change < 0 && u.waiting == 0) {
    --users_waiting_;
    last_to_leave_ = s.user;
  }
}

void FairQueue::enter(Sequence& s) {
  User& u = users_[s.user];
  if (u.by_age.first == nullptr) {
    u.place = static_cast<uint32_t>(in_line_.size());
    in_line_.push_back(s.user);
  }
  insert_sorted<&Sequence::by_rank>(u.by_rank, s, ranks_before);
  insert_sorted<&Sequence::by_age>(u.by_age, s, older);
}

void FairQueue::exit(Sequence& s) {
  User& u = users_[s.user];
  erase<&Sequence::by_rank>(u.by_rank, s);
  erase<&Sequence::by_age>(u.by_age, s);
  if (u.by_age.first != nullptr) return;
  users_[in_line_.back()].place = u.place;
  in_line_[u.place] = in_line_.back();
  in_line_.pop_back();
  u.place = kNobody;
}

void FairQueue::arrive(Sequence& s) {
  if (users_[s.user].waiting == 0) lift(s.user);
  count(s, 1);
  enter(s);
}

void FairQueue::put_back(Sequence& s) {
  stop(s);
  count(s, 1);
  enter(s);
}

void FairQueue::leave(Sequence& s) {
  if (s.leader != nullptr)
    erase<&Sequence::by_rank>(s.leader->followers, s);
  else
    exit(s);
  s.leader = nullptr;
  count(s, -1);
}

void FairQueue::admit(Sequence& s) {
  const bool by_age = overtakes_ >= kOvertakes;
  const bool overtakes = std::any_of(in_line_.begin(), in_line_.end(),
                                     [&](uint32_t u) { return users_[u].by_rank.last->rank() > s.rank(); });
  if (by_age) {
    s.urgent = true;
    overtakes_ = 0;
  } else if (overtakes) {
    ++overtakes_;
  }
  exit(s);
  count(s, -1);
  users_[s.user].running += s.slots;
}

void FairQueue::stop(Sequence& s) {
  CHECK(users_[s.user].running >= s.slots);
  users_[s.user].running -= s.slots;
}

void FairQueue::set_aside(Sequence& s) {
  CHECK(s.leader != nullptr);
  exit(s);
  insert_sorted<&Sequence::by_rank>(s.leader->followers, s, needs_fewer);
}

void FairQueue::rejoin(Sequence& s) {
  erase<&Sequence::by_rank>(s.leader->followers, s);
  s.leader = nullptr;
  enter(s);
}

// --- whose turn it is ---

bool FairQueue::before(const Sequence& a, const Sequence& b) const {
  if (a.rank() != b.rank()) return a.rank() < b.rank();
  const double mine = users_[a.user].service, theirs = users_[b.user].service;
  return mine != theirs ? mine < theirs : a.age < b.age;
}

Sequence* FairQueue::next() const {
  const bool by_age = overtakes_ >= kOvertakes;
  Sequence* best = nullptr;
  for (const uint32_t u : in_line_) {
    Sequence* s = by_age ? users_[u].by_age.first : users_[u].by_rank.first;
    if (best == nullptr || (by_age ? older(*s, *best) : before(*s, *best))) best = s;
  }
  return best;
}

void FairQueue::charge(Sequence& s, uint32_t rows) {
  const uint32_t begin = s.charged, end = s.computed + rows;
  if (end <= begin) return;
  const uint32_t prompt_end = std::clamp(s.prompt_length, begin, end);
  User& u = users_[s.user];
  u.service += (prices_.prompt * (prompt_end - begin) + prices_.output * (end - prompt_end)) / u.weight;
  s.charged = end;
}

// --- for metrics and checks ---

uint32_t FairQueue::longest() const {
  uint32_t most = 0;
  for (const uint32_t u : in_line_) most = std::max(most, users_[u].waiting);
  return most;
}

double FairQueue::service_gap() const {
  double least = std::numeric_limits<double>::infinity(), most = 0;
  for (const uint32_t u : in_line_) {
    least = std::min(least, users_[u].service);
    most = std::max(most, users_[u].service);
  }
  return most > least ? most - least : 0;
}

void FairQueue::list(std::vector<Sequence*>* out) const {
  for (const uint32_t u : in_line_) {
    for (Sequence* s = users_[u].by_age.first; s != nullptr; s = s->by_age.next) out->push_back(s);
  }
}

Status FairQueue::check_integrity() const {
  for (uint32_t place = 0; place < in_line_.size(); ++place) {
    const User& u = users_[in_line_[place]];
    uint32_t in_line = 0;
    for (const Sequence* s = u.by_rank.first; s != nullptr; s = s->by_rank.next, ++in_line) {
      if (s->by_rank.next != nullptr && !ranks_before(*s, *s->by_rank.next))
        return internal_error(fmt::format("user {}'s waiting sequences are not in order", in_line_[place]));
      if (s->user != in_line_[place] || s->state != Sequence::State::kWaiting)
        return internal_error(fmt::format("user {}'s line holds what is not his", in_line_[place]));
    }
    if (u.place != place || in_line == 0 || in_line > u.waiting)
      return internal_error(fmt::format("user {} has {} sequences in line and {} that wait", in_line_[place],
                                        in_line, u.waiting));
  }
  return {};
}

}  // namespace kvasir
