#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log.h"
#include "decoding/drafter.h"
#include "kvcache/block_pool.h"

namespace kvasir {

// What the drafters have in common that compute their guesses: ModelDrafter, EagleDrafter, LayerSkipDrafter.

// Tokens that the jobs' sequences have on average; there is one job at least.
inline uint32_t mean_known(std::span<const DraftJob> jobs) {
  uint64_t known = 0;
  for (const DraftJob& job : jobs) known += job.known.size();
  return static_cast<uint32_t>(known / jobs.size());
}

// Fills `work` with the jobs that want guesses and for which start(Work&) says that they get some. Allocates
// nothing where `work` has room for all.
template <class Work, class Start>
void start_work(std::span<DraftJob> jobs, std::vector<Work>& work, Start start) {
  work.clear();
  for (DraftJob& job : jobs) {
    if (job.most == 0) continue;
    Work begun{.job = &job};
    if (start(begun)) work.push_back(begun);
  }
}

// Drafts that are not made because the drafter's own pool has no room: the first one is a warning in the log.
class DraftRefusals {
 public:
  explicit DraftRefusals(std::string_view whose) : whose_(whose) {}

  // Returns false, for start() of start_work().
  bool refuse(const BlockPool& pool, size_t known) {
    spdlog::log(count_++ == 0 ? spdlog::level::warn : spdlog::level::debug,
                "{} pool of {} blocks has no room: no guesses for a sequence of {} tokens", whose_,
                pool.total(), known);
    return false;
  }
  uint64_t count() const { return count_; }

 private:
  std::string_view whose_;
  uint64_t count_ = 0;
};

}  // namespace kvasir
