#include "engine/medusa_drafter.h"

#include <algorithm>
#include <utility>

#include "engine/clock.h"
#include "models/forward_batch.h"

namespace kvasir {
namespace {

// Of the rows of a pass any may become the last one that counts.
constexpr uint32_t kRows = Draft::kMost + 1;

}  // namespace

WeightSizes MedusaDrafter::sizes(const MedusaWeights& weights) {
  const uint32_t width = weights.width();
  const PackedMatrix& block = weights.heads[0][0].weight.packed();
  const PackedMatrix& output = weights.outputs[0]->rows();
  const auto blocks = static_cast<uint32_t>(weights.heads.size() * weights.heads[0].size());
  WeightSizes sizes;
  const uint64_t bytes = block.panels() * block.panel_bytes;
  sizes.matrices = {{WeightSizes::Phase::kQkv, block.type, width, width, blocks, bytes}};
  sizes.layer_bytes = blocks * bytes;
  sizes.layer_macs = uint64_t{blocks} * width * width;
  sizes.head_bytes = output.panels() * output.panel_bytes;
  sizes.head_macs = uint64_t{output.n} * output.k;
  sizes.head_type = output.type;
  sizes.head_n = output.n;
  sizes.head_k = output.k;
  sizes.embedding_type = block.type;
  return sizes;
}

MedusaDrafter::MedusaDrafter(MedusaWeights weights, const KernelTable& kernels, ThreadPool& pool,
                             const Options& options, DraftForecast forecast)
    : heads_(std::move(weights), kernels, pool, std::min(options.slots, kSequences)),
      options_(options),
      chooser_(kernels, options.vocab),
      forecast_(std::move(forecast)),
      slots_(options.slots) {
  able_.reserve(options.slots);
  rows_of_head_.reserve(heads_.count());
}

HiddenWish MedusaDrafter::hidden_wish() const {
  return {.points = {HiddenTap::kOutputNorm}, .rows = kRows};
}

void MedusaDrafter::open(uint32_t slot, uint32_t) {
  slots_[slot].open(kRows, heads_.weights().width());
}

void MedusaDrafter::close(uint32_t slot) {
  slots_[slot].clear();
}

void MedusaDrafter::see(uint32_t slot, const HiddenRows& rows) {
  for (uint32_t r = 0; r < rows.rows; ++r) {
    const float* values = rows.at(r, HiddenTap::kOutputNorm);
    std::copy_n(values, rows.width, slots_[slot].place(rows.first + r));
  }
}

// The state that gave the last known token; null where the target has not shown it.
const float* MedusaDrafter::state_of(const DraftJob& job) {
  HiddenWindow& window = slots_[job.slot];
  const auto known = static_cast<uint32_t>(job.known.size());
  window.cut(known - 1);
  return known >= 2 && window.end() == known - 1 && window.begin() < window.end() ? window.at(known - 2)
                                                                                  : nullptr;
}

void MedusaDrafter::propose(std::span<DraftJob> jobs) {
  able_.clear();
  for (DraftJob& job : jobs) {
    if (job.most > 0 && state_of(job) != nullptr) able_.push_back(&job);
  }
  const size_t together = heads_.max_sequences();
  for (size_t first = 0; first < able_.size(); first += together)
    draft(std::span<DraftJob* const>(able_).subspan(first, std::min(together, able_.size() - first)));
}

// One pass: the rows of head 0, of all jobs; then those of head 1, of the jobs that want two; ...
void MedusaDrafter::draft(std::span<DraftJob* const> jobs) {
  const uint32_t width = heads_.weights().width();
  rows_of_head_.clear();
  float* at = heads_.states();
  uint32_t rows = 0;
  for (uint32_t h = 0; h < heads_.count(); ++h) {
    rows_of_head_.push_back(0);
    for (const DraftJob* job : jobs) {
      if (job->most <= h) continue;
      at = std::copy_n(state_of(*job), width, at);
      ++rows_of_head_.back();
      ++rows;
    }
  }
  forecast_.predict(static_cast<uint32_t>(jobs.size()), rows, 0);
  const double before = monotonic_seconds();
  heads_.run(rows_of_head_);
  uint32_t row = 0;
  for (uint32_t h = 0; h < heads_.count(); ++h) {
    for (DraftJob* job : jobs) {
      if (job->most <= h) continue;
      const float* logits = heads_.logits(row++);
      if (job->draft->size < h) continue;  // it has ended
      const bool ended = h > 0 && std::ranges::count(options_.end_tokens, job->draft->tokens[h - 1]) > 0;
      if (!ended) chooser_.choose(*job, *heads_.weights().outputs[h], logits);
    }
  }
  forecast_.observe(monotonic_seconds() - before);
}

double MedusaDrafter::seconds(uint32_t sequences, uint32_t tokens) const {
  const uint32_t all = heads_.count();
  return forecast_.pass_seconds(sequences, sequences * all, 0) * tokens / all;
}

}  // namespace kvasir
