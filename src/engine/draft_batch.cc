#include "engine/draft_batch.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "decoding/sampler.h"
#include "engine/clock.h"
#include "engine/guess_chooser.h"

namespace kvasir {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

uint32_t computed_tokens(uint32_t model_vocab, const DraftBatch::Options& options) {
  const uint32_t both = std::min(model_vocab, options.vocab);
  return options.head_tokens == 0 ? both : std::min(both, options.head_tokens);
}

// A row that the sampler refuses ends the draft: whether that is an error, the target says.
TokenId chosen(const Result<TokenId>& token) {
  return token.ok() ? *token : kNoToken;
}

}  // namespace

DraftBatch::DraftBatch(CausalLm& model, ThreadPool& pool, const Options& options)
    : model_(model),
      pool_(pool),
      options_(options),
      model_vocab_(model.config().vocab_size),
      head_(computed_tokens(model_vocab_, options)),
      logits_(size_t{options.limits.max_logit_rows} * model_vocab_ * sizeof(float)),
      best_(options.limits.max_logit_rows),
      scratch_(pool.size()) {
  CHECK(head_ > 0);
  tokens_.reserve(options.limits.max_rows);
  positions_.reserve(options.limits.max_rows);
  sequences_.reserve(options.limits.max_rows);
  logit_rows_.reserve(options.limits.max_logit_rows);
  wanted_.reserve(options.limits.max_logit_rows);
  slots_.reserve(options.limits.max_logit_rows);
  choices_.reserve(options.limits.max_logit_rows);
  for (uint32_t i = 0; i < pool.size() && model_vocab_ < options.vocab; ++i) {
    padded_.emplace_back(options.vocab * sizeof(float));
    std::ranges::fill(padded_.back().as<float>(), kNever);
  }
  padded_.resize(pool.size());
}

void DraftBatch::clear() {
  tokens_.clear();
  positions_.clear();
  sequences_.clear();
  logit_rows_.clear();
  wanted_.clear();
  slots_.clear();
  choices_.clear();
}

void DraftBatch::add(std::span<const BlockId* const> tables, uint32_t first,
                     std::span<const TokenId> tokens) {
  CHECK(!tokens.empty() && tokens.size() <= room());
  sequences_.push_back({rows(), static_cast<uint32_t>(tokens.size()), tables});
  for (size_t i = 0; i < tokens.size(); ++i) positions_.push_back(static_cast<int32_t>(first + i));
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
}

void DraftBatch::choose_for(DraftJob& job) {
  CHECK(choices_left() > 0);
  logit_rows_.push_back(rows() - 1);
  wanted_.push_back(logits_to_grade(job));
  choices_.push_back({&job});
}

// The tail of a row is never written by the model, nor by a sampler: it stays -infinity.
std::span<float> DraftBatch::whole_row(uint32_t slot) {
  const std::span<float> row = logits_.as<float>().subspan(size_t{slot} * model_vocab_, model_vocab_);
  if (slot >= rows_padded_) {
    std::ranges::fill(row.subspan(head_), kNever);
    rows_padded_ = slot + 1;
  }
  return row;
}

std::span<const DraftBatch::Choice> DraftBatch::run(KvStore& kv) {
  uint32_t whole = 0;
  for (const uint32_t wanted : wanted_) {
    slots_.push_back(whole);
    if (wanted == kAllLogits) whole_row(whole++);
  }
  const ForwardBatch batch = {.tokens = tokens_,
                              .positions = positions_,
                              .sequences = sequences_,
                              .logit_rows = logit_rows_,
                              .logits_wanted = wanted_,
                              .layers = options_.layers,
                              .head_tokens = head_ == model_vocab_ ? 0 : head_};
  model_.forward(batch, kv, logits_.as<float>().first(size_t{whole} * model_vocab_), best_);
  const auto every = [this](size_t first, size_t step) {
    for (size_t i = first; i < choices_.size(); i += step)
      choose(static_cast<uint32_t>(i), scratch_[first], padded_[first]);
  };
  if (whole < 2 || pool_.size() == 1)
    every(0, 1);
  else
    pool_.run([&every](Worker& worker) { every(worker.index(), worker.count()); });
  return choices_;
}

void DraftBatch::choose(uint32_t index, SamplerScratch& scratch, AlignedBuffer& padded) {
  Choice& choice = choices_[index];
  const DraftJob& job = *choice.job;
  const uint32_t position = static_cast<uint32_t>(job.known.size()) + job.draft->size;
  const uint32_t output_count = job.output_tokens + job.draft->size;
  if (wanted_[index] != kAllLogits) {
    choice.token = chosen(job.sampler->choose(best_[index], position, output_count, scratch));
    choice.grade = grade_of(best_[index], choice.token);
    return;
  }
  std::span<float> row = whole_row(slots_[index]);
  if (model_vocab_ < options_.vocab) {
    std::copy(row.begin(), row.end(), padded.as<float>().begin());
    row = padded.as<float>();
  }
  choice.token = chosen(job.sampler->choose(row.first(options_.vocab), position, output_count, scratch));
}

void DraftBatch::give_guesses(KvStore& kv, DraftForecast& forecast, uint32_t context) {
  if (empty()) return;
  forecast.predict(rows(), choices(), context);
  const double before = monotonic_seconds();
  const std::span<const Choice> given = run(kv);
  forecast.observe(monotonic_seconds() - before);
  for (const Choice& choice : given) {
    if (choice.token == kNoToken) continue;
    if (choice.grade)
      choice.job->draft->add(choice.token, *choice.grade);
    else
      choice.job->draft->add(choice.token);
  }
  clear();
}

}  // namespace kvasir
