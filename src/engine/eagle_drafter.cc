#include "engine/eagle_drafter.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/clock.h"

namespace kvasir {
namespace {

WeightSizes::Matrices matrix_of(WeightSizes::Phase phase, const OwnMatrix& m) {
  const PackedMatrix& w = m.packed();
  return {phase, w.type, w.n, w.k, 1, w.panels() * w.panel_bytes};
}

}  // namespace

WeightSizes EagleDrafter::sizes(const EagleWeights& w) {
  using Phase = WeightSizes::Phase;
  WeightSizes sizes;
  sizes.matrices = {matrix_of(Phase::kQkv, w.q),       matrix_of(Phase::kQkv, w.k),
                    matrix_of(Phase::kQkv, w.v),       matrix_of(Phase::kAttnOut, w.o),
                    matrix_of(Phase::kGateUp, w.gate), matrix_of(Phase::kGateUp, w.up),
                    matrix_of(Phase::kDown, w.down)};
  if (!w.fuses_layers) sizes.matrices.push_back(matrix_of(Phase::kQkv, w.fc));
  for (const WeightSizes::Matrices& m : sizes.matrices) {
    sizes.layer_bytes += m.bytes;
    sizes.layer_macs += uint64_t{m.n} * m.k;
  }
  const PackedMatrix& output = w.output->rows();
  sizes.head_bytes = output.panels() * output.panel_bytes;
  sizes.head_macs = uint64_t{output.n} * output.k;
  sizes.head_type = sizes.embedding_type = output.type;
  sizes.head_n = output.n;
  sizes.head_k = output.k;
  return sizes;
}

EagleDrafter::EagleDrafter(EagleWeights weights, const CausalLm& target, const KernelTable& kernels,
                           const KvLayout& layout, ThreadPool& pool, const Options& options,
                           DraftForecast forecast)
    : layer_(std::move(weights), target, kernels, pool, kRows),
      layout_(layout),
      options_(options),
      pool_(options.blocks),
      cache_(layout_, pool_, {.enabled = false}),
      store_(layout_, options.blocks),
      chooser_(kernels, options.vocab),
      forecast_(std::move(forecast)),
      slots_(options.slots),
      features_(size_t{kRows} * layer_.weights().feature_width() * sizeof(float)),
      states_(size_t{options.slots} * layer_.weights().width() * sizeof(float)) {
  work_.reserve(options.slots);
  copies_.reserve(size_t{options.slots} * layout.units());
  tokens_.reserve(kRows);
  positions_.reserve(kRows);
  sequences_.reserve(kRows);
  guess_rows_.reserve(kRows);
  guessing_.reserve(kRows);
}

HiddenWish EagleDrafter::hidden_wish() const {
  return {.points = layer_.weights().points, .rows = kWindow};
}

void EagleDrafter::open(uint32_t index, uint32_t max_tokens) {
  Slot& slot = slots_[index];
  CHECK(!slot.table);
  slot.max_tokens = max_tokens;
  slot.origin = slot.computed = 0;
  slot.window.open(kWindow, layer_.weights().feature_width());
  slot.table.emplace(layout_, pool_, cache_, "", max_tokens + Draft::kMost);
}

void EagleDrafter::close(uint32_t index) {
  slots_[index].table.reset();
  slots_[index].window.clear();
}

void EagleDrafter::see(uint32_t index, const HiddenRows& rows) {
  for (uint32_t r = 0; r < rows.rows; ++r) {
    float* out = slots_[index].window.place(rows.first + r);
    for (const uint32_t point : layer_.weights().points)
      out = std::copy_n(rows.at(r, point), rows.width, out);
  }
}

// Rows of tokens whose features are there and that are not computed; those that are known to be of the
// sequence end in front of the last token, which the target has not read yet. Where what is computed does not
// reach that far, the context begins anew.
bool EagleDrafter::start(Work& work, uint32_t* catch_up_left) {
  DraftJob& job = *work.job;
  Slot& slot = slots_[job.slot];
  const auto known = static_cast<uint32_t>(job.known.size());
  slot.window.cut(known - 1);
  if (slot.window.end() != known - 1 || slot.window.begin() == slot.window.end()) return false;
  work.end = known - 1;
  const uint32_t most_rows = std::max(*catch_up_left, 1u);
  const uint32_t first = std::max(slot.window.begin(), work.end - std::min(work.end, most_rows));
  slot.computed = std::min(slot.computed, work.end - 1);
  if (slot.computed < first || slot.computed < slot.origin) {
    slot.table->truncate_to(0);
    slot.origin = slot.computed = first;
  }
  work.next = slot.computed;
  *catch_up_left -= std::min(*catch_up_left, work.end - work.next);
  const uint32_t place = work.next - slot.origin;
  if (slot.table->prepare(place, work.end - work.next + job.most - 1, &copies_)) return true;
  return refusals_.refuse(pool_, known);
}

void EagleDrafter::propose(std::span<DraftJob> jobs) {
  if (jobs.empty()) return;
  copies_.clear();
  mean_known_ = mean_known(jobs);
  uint32_t catch_up_left = kCatchUpRows;
  start_work(jobs, work_, [&](Work& work) { return start(work, &catch_up_left); });
  for (const BlockCopy& copy : copies_) store_.copy_block(copy.from, copy.to);
  begin_pass();
  read_features();
  read_guesses();
}

void EagleDrafter::begin_pass() {
  tokens_.clear();
  positions_.clear();
  sequences_.clear();
  guess_rows_.clear();
  guessing_.clear();
}

// A row of the pass, of the sequence added last or of another one.
void EagleDrafter::add_row(Work& work, uint32_t position, TokenId token) {
  const Slot& slot = slots_[work.job->slot];
  const auto row = static_cast<uint32_t>(tokens_.size());
  const bool goes_on = row > 0 && sequences_.back().tables.data() == slot.table->tables().data();
  if (!goes_on) sequences_.push_back({row, 0, slot.table->tables()});
  ++sequences_.back().rows;
  tokens_.push_back(token);
  positions_.push_back(static_cast<int32_t>(position - slot.origin));
}

// Rows with features, of one sequence after the other; behind the last row of each comes its first guess.
void EagleDrafter::read_features() {
  const uint32_t width = layer_.weights().feature_width();
  for (Work& work : work_) {
    Slot& slot = slots_[work.job->slot];
    for (; work.next < work.end; ++work.next) {
      if (tokens_.size() == kRows) run_pass(true);
      std::copy_n(slot.window.at(work.next), width, features_.as<float>().data() + tokens_.size() * width);
      add_row(work, work.next, work.job->known[work.next + 1]);
    }
    guess_rows_.push_back(static_cast<uint32_t>(tokens_.size()) - 1);
    guessing_.push_back(&work);
    slot.computed = work.end;
  }
  run_pass(true);
}

// One row per sequence and pass: the newest guess, and what the row before it gave.
void EagleDrafter::read_guesses() {
  const uint32_t width = layer_.weights().width();
  for (uint32_t guess = 1; guess < Draft::kMost; ++guess) {
    for (Work& work : work_) {
      const DraftJob& job = *work.job;
      if (job.draft->size != guess || !more_guesses_wanted(job, options_.end_tokens)) continue;
      if (tokens_.size() == kRows) run_pass(false);
      std::copy_n(states_.as<float>().data() + size_t{job.slot} * width, width,
                  layer_.hidden() + tokens_.size() * width);
      guess_rows_.push_back(static_cast<uint32_t>(tokens_.size()));
      guessing_.push_back(&work);
      add_row(work, work.end + guess - 1, job.draft->tokens[guess - 1]);
    }
    if (tokens_.empty()) return;
    run_pass(false);
  }
}

void EagleDrafter::run_pass(bool features) {
  if (tokens_.empty()) return;
  const uint32_t width = layer_.weights().width();
  forecast_.predict(static_cast<uint32_t>(tokens_.size()), static_cast<uint32_t>(guess_rows_.size()),
                    mean_known_);
  const double before = monotonic_seconds();
  layer_.run({.tokens = tokens_,
              .positions = positions_,
              .sequences = sequences_,
              .guess_rows = guess_rows_,
              .features = features ? features_.as<float>() : std::span<float>()},
             store_);
  for (uint32_t i = 0; i < guess_rows_.size(); ++i) {
    const DraftJob& job = *guessing_[i]->job;
    chooser_.choose(job, *layer_.weights().output, layer_.logits(i));
    std::copy_n(layer_.hidden() + size_t{guess_rows_[i]} * width, width,
                states_.as<float>().data() + size_t{job.slot} * width);
  }
  forecast_.observe(monotonic_seconds() - before);
  begin_pass();
}

double EagleDrafter::seconds(uint32_t sequences, uint32_t tokens) const {
  return tokens * forecast_.seconds(sequences, 1, mean_known_);
}

double EagleDrafter::catch_up_seconds(uint32_t index, uint32_t known, bool) const {
  const Slot& slot = slots_[index];
  const uint32_t first = std::max(slot.computed, slot.window.begin());
  if (known < 3 || first >= known - 2) return 0;
  const uint32_t rows = known - 2 - first;  // the last one is due in any case
  const uint32_t each = std::min(rows, kRows);
  return forecast_.seconds(1, each, mean_known_) * rows / each;
}

}  // namespace kvasir
