// What every plan and every answer of a SchedulerWorld is held against.

#include <fmt/format.h>

#include <algorithm>

#include "scheduler_world.h"

namespace kvasir::sim {

SchedulerWorld::Before SchedulerWorld::look() {
  Before before(contents_);
  before.preemptions = scheduler_.counters().preemptions;
  const std::vector<Sequence*>& running = scheduler_.running();
  if (!running.empty()) before.oldest = running.front();
  before.running.insert(running.begin(), running.end());
  for (const Sequence* s : running) before.decodes += s->pending() == 1;
  std::vector<Sequence*> line;
  scheduler_.queue().list(&line);
  for (const Sequence* s : line) before.line.push_back({s, s->rank()});
  for (uint32_t u = 0; u < setup_.users; ++u) before.service.push_back(scheduler_.queue().service(u));
  for (uint32_t b = 0; b < pool_.total(); ++b) before.retained += pool_.retained(BlockId{b});
  return before;
}

// Limits, and who must not be left out.
Status SchedulerWorld::check_plan(const SchedulerOutput& plan, const Before& before) {
  if (plan.rows == 0) return internal_error("a step without rows, though there is work");
  if (plan.rows > setup_.max_num_batched_tokens || plan.logit_rows > setup_.max_logit_rows)
    return internal_error(fmt::format("a step of {} rows and {} logit rows", plan.rows, plan.logit_rows));
  uint32_t rows = 0;
  for (const SchedulerOutput::Item& item : plan.items) {
    const Sequence& s = *item.sequence;
    note(s.age.first * 1000003 + s.age.second * 1009 + item.rows);
    rows += item.rows;
    if (item.rows == 0 || item.rows > s.pending() || item.rows != s.scheduled ||
        item.logit_rows > item.rows || (item.rows == s.pending() && item.logit_rows == 0))
      return internal_error(fmt::format("{} rows, {} with logits, planned of {} pending", item.rows,
                                        item.logit_rows, s.pending()));
  }
  if (rows != plan.rows) return internal_error("the rows of a plan do not add up");
  const Sequence* oldest = before.oldest;
  if (oldest != nullptr && (oldest->state != Sequence::State::kRunning || oldest->scheduled == 0))
    return internal_error(fmt::format("the oldest running sequence, of request {}, {}", oldest->age.first,
                                      oldest->scheduled == 0 ? "gets no row" : "was preempted"));
  if (before.decodes + 1 > setup_.max_num_batched_tokens || before.decodes + 1 > setup_.max_logit_rows)
    return {};
  for (const Sequence* s : scheduler_.running()) {
    if (before.running.count(s) > 0 && s->pending() == 1 && s->scheduled != 1)
      return internal_error(fmt::format("request {} decodes and gets no row", s->age.first));
  }
  return {};
}

// s has started: no other sequence was about to compute more of its prefix. Of two that started in one plan
// either may have been the second; that holds for both where both have prompts to compute.
Status SchedulerWorld::check_followed(const Before& before, const SimChoice& s) const {
  const auto most = [](const SimChoice& c) { return std::min(c.known() - 1, c.logits_from()); };
  for (const Sequence* running : scheduler_.running()) {
    const SimChoice& r = static_cast<const SimChoice&>(*running);
    const bool ran_before = before.running.count(running) > 0;
    if (!setup_.caching || &r == &s || r.pending() <= 1 || (!ran_before && s.pending() <= 1)) continue;
    const uint32_t end = std::min({most(s), r.known(), ran_before ? r.known() : most(r)});
    const auto differ = std::mismatch(s.values.begin(), s.values.begin() + end, r.values.begin());
    const uint32_t common = static_cast<uint32_t>(differ.first - s.values.begin()) / kSimBlock * kSimBlock;
    if (common > s.computed && common > r.computed)
      return internal_error(
          fmt::format("request {} starts with {} tokens, though request {} is about to "
                      "compute {} of its own",
                      s.age.first, s.computed, r.age.first, common));
  }
  return {};
}

// Nobody is kept waiting though there are rows, a slot and blocks for all that anybody could want, unless for
// blocks that another is computing.
Status SchedulerWorld::check_idleness(const SchedulerOutput& plan) const {
  if (setup_.costs || plan.rows == setup_.max_num_batched_tokens || plan.logit_rows == setup_.max_logit_rows)
    return {};
  uint32_t slots = 0;
  uint64_t promised = 0;  // blocks, generously
  for (const Sequence* s : scheduler_.running()) {
    slots += s->slots;
    promised += std::max(layout_.blocks_for(s->known() + 1), s->table.block_count()) -
                s->table.block_count() + layout_.units();
  }
  const Sequence* kept = nullptr;
  for (const Sequence* s : scheduler_.waiting()) {
    if (s->leader != nullptr && s->leader->computed < s->leader_tokens) continue;
    kept = s;
    if (slots + s->slots > setup_.max_num_seqs ||
        promised + layout_.blocks_for(s->known() + 1) + layout_.units() > pool_.available())
      return {};  // others may have to wait for it
  }
  if (kept == nullptr) return {};
  return internal_error(fmt::format("request {} waits, and {} rows, {} slots and {} blocks are left",
                                    kept->age.first, setup_.max_num_batched_tokens - plan.rows,
                                    setup_.max_num_seqs - slots, pool_.available()));
}

// Where somebody decodes, prompts take no more time than they may, but for one block of rows.
Status SchedulerWorld::check_pace(const SchedulerOutput& plan, const Before& before) const {
  if (!setup_.costs || before.decodes == 0) return {};
  StepLoad load;
  uint32_t decodes = 0;
  for (const SchedulerOutput::Item& item : plan.items) {
    costs_.add(load, {.rows = item.rows, .context = item.sequence->computed}, item.logit_rows);
    decodes += item.rows == 1 && item.sequence->pending() == 1 && before.running.count(item.sequence) > 0;
  }
  if (decodes == 0) return {};
  const double target = scheduler_.target_seconds();
  // Beside the block that always goes, sequences that are admitted may each take the row that starts them.
  const uint32_t free_rows = kSimBlock + static_cast<uint32_t>(plan.items.size());
  if (plan.rows > decodes + free_rows && costs_.seconds(load) > target + 1e-3 * free_rows)
    return internal_error(fmt::format("a step of {} rows takes {} s; {} s were to be kept", plan.rows,
                                      costs_.seconds(load), target));
  return {};
}

// Who starts in this plan must have found all of its prefix that is there, and what a running sequence was
// about to compute is waited for.
Status SchedulerWorld::check_admissions(const Before& before) {
  const KvContents::Index after(contents_);
  uint32_t retained = 0;
  for (uint32_t b = 0; b < pool_.total(); ++b) retained += pool_.retained(BlockId{b});
  tally_.evictions += retained < before.retained;
  for (const Sequence* s : scheduler_.waiting()) tally_.follows += s->leader != nullptr;
  for (const Sequence* started : scheduler_.running()) {
    if (before.running.count(started) > 0) continue;
    const SimChoice& s = static_cast<const SimChoice&>(*started);
    const uint32_t limit = std::min(s.known() - 1, s.logits_from());
    const uint32_t least = after.longest(s.values, limit);
    const uint32_t most = setup_.caching ? before.index.longest(s.values, limit) : 0;
    if (s.computed < std::min(least, most) || s.computed > most)
      return internal_error(
          fmt::format("request {} starts with {} tokens of the cache, which held {} before "
                      "the plan and {} after it",
                      s.age.first, s.computed, most, least));
    tally_.hit_tokens += s.computed;
    tally_.partial_hits += s.computed % kSimBlock != 0;
    KVASIR_RETURN_IF_ERROR(check_followed(before, s));
  }
  return {};
}

// Each step computes a row of the oldest running sequence; so nobody waits for more steps than there are
// tokens of requests that came before or meanwhile. What gives place to another's turn may be computed again.
Status SchedulerWorld::check_waits() const {
  const uint64_t again = setup_.users > 1 || setup_.priorities ? 8 : 1;
  for (const auto& request : requests_) {
    for (const auto& choice : request->choices) {
      if (choice->state == Sequence::State::kFinished) continue;
      if (tally_.steps - request->arrived_step > again * (work_ + requests_.size()))
        return internal_error(fmt::format("request {} is not done after {} steps; {} tokens in all",
                                          choice->age.first, tally_.steps - request->arrived_step, work_));
    }
  }
  return {};
}

// What a running sequence has computed is there for others: every full block of it.
Status SchedulerWorld::check_entered() const {
  const bool windows =
      std::any_of(setup_.windows.begin(), setup_.windows.end(), [](uint32_t w) { return w > 0; });
  if (!setup_.caching || windows || setup_.spare_nodes < kPlentyOfNodes) return {};
  for (const Sequence* s : scheduler_.running()) {
    const PrefixCache::Hit hit = cache_.lookup(s->table.salt(), s->tokens, s->computed);
    if (hit.tokens < s->computed / kSimBlock * kSimBlock)
      return internal_error(fmt::format("request {} has computed {} tokens, of which the cache finds {}",
                                        s->age.first, s->computed, hit.tokens));
  }
  return {};
}

// Looks up what some request of the past would find now: the cache must have what the contents say, and the
// blocks must hold it.
Status SchedulerWorld::probe() {
  if (requests_.empty() || !setup_.caching) return {};
  const SimRequest& request = *requests_[next_value(probes_++, 3) % requests_.size()];
  const SimChoice& s = *request.choices[probes_ % request.choices.size()];
  const PrefixCache::SaltId salt = cache_.open_salt(salt_text(request.arrival.salt));
  const PrefixCache::Hit hit = cache_.lookup(salt, s.tokens, s.known());
  cache_.close_salt(salt);
  const uint32_t right = KvContents::Index(contents_).longest(s.values, s.known());
  if (hit.tokens != right)
    return internal_error(
        fmt::format("a lookup of {} tokens finds {}, the blocks hold {}", s.known(), hit.tokens, right));
  return {};
}

// Every choice ended once, and said what the model says without a scheduler.
Status SchedulerWorld::check_answers() const {
  for (const auto& request : requests_) {
    for (const auto& choice : request->choices) {
      const SimChoice& s = *choice;
      if (s.ends != 1)
        return internal_error(
            fmt::format("choice {} of request {} ended {} times", s.index, s.age.first, s.ends));
      for (uint32_t p = s.prompt_length; p < s.known(); ++p) {
        if (s.tokens[p] != token_after(s.values[p - 1], s.path()))
          return internal_error(
              fmt::format("token {} of request {} is {}", p - s.prompt_length, s.age.first, s.tokens[p]));
      }
      const bool full = s.generated() >= request->arrival.max_tokens || s.known() >= setup_.max_model_len;
      if (!s.was_cancelled && !full && token_after(s.values.back(), s.path()) != kNoToken)
        return internal_error(
            fmt::format("request {} ended after {} tokens of its answer", s.age.first, s.generated()));
    }
    if (request->choices[0]->was_cancelled || request->arrival.max_tokens == 0) continue;
    if (request->choices.size() != std::min(request->arrival.n, setup_.max_num_seqs))
      return internal_error(
          fmt::format("request {} has {} choices", request->number + 1, request->choices.size()));
  }
  return {};
}

}  // namespace kvasir::sim
