// The controller on a virtual machine: what steps take is given, and how often guesses are right.

#include "engine/speculator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "decoding/test_drafters.h"
#include "engine/fake_model.h"
#include "perf/speculation_formulas.h"

namespace kvasir {
namespace {

constexpr uint32_t kVocab = 48, kPrompt = 16;

// A step of m rows takes as long as reading the weights, 1, or as its arithmetic, m / rows_for_free; and
// something for each row. Rows are computed in tiles of `tile`.
struct VirtualMachine final : StepCosts {
  VirtualMachine(double free_rows, double per_row, uint32_t in_tiles)
      : rows_for_free(free_rows), each(per_row), tile(in_tiles) {}
  void add(StepLoad& load, const StepRows& sequence, LogitRows logits) const override {
    load.rows += sequence.rows;
    load.logits.rows += logits.rows;
  }
  double seconds(const StepLoad& load) const override { return of_rows(load.rows); }
  double of_rows(uint32_t rows) const {
    const double computed = (rows + tile - 1) / tile * tile;
    return std::max(1.0, computed / rows_for_free) + each * rows;
  }
  double rows_for_free, each;
  uint32_t tile;
};

// A FixedRateDrafter, each pass of which takes some time.
class PricedDrafter final : public testing_drafters::FixedRateDrafter {
 public:
  PricedDrafter(const testing_drafters::Continuation& right, double rate, double pass)
      : FixedRateDrafter(right, rate, kVocab), pass_(pass) {}
  bool is_free() const override { return pass_ == 0; }
  double seconds(uint32_t, uint32_t tokens) const override { return tokens * pass_; }
  void propose(std::span<DraftJob> jobs) override {
    FixedRateDrafter::propose(jobs);
    for (const DraftJob& job : jobs) spent += pass_ * job.draft->size;
  }
  double spent = 0;

 private:
  double pass_;
};

std::vector<TokenId> random_text(size_t size) {
  std::mt19937 rng(5);
  std::vector<TokenId> text(size);
  for (TokenId& token : text) token = static_cast<TokenId>(rng() % kVocab);
  return text;
}

// One answer, token for token as a text has it, from a scheduler and a speculator without an engine.
class VirtualRun {
 public:
  struct Options {
    const VirtualMachine& machine;
    double rate = 0;
    double pass = 0;
    uint32_t tokens = 2000;
    std::optional<uint32_t> k = std::nullopt;  // always so many guesses; none: the controller's
    uint32_t slow_until = 0;  // before this token steps with guesses take twice what is predicted
    double noise = 0;         // deviation of the logarithm of what a step takes over what is predicted
  };
  explicit VirtualRun(const Options& options)
      : options_(options),
        text_(random_text(kPrompt + options.tokens)),
        layout_(KvLayout::make(model_.config().kv_layers(), 16).value()),
        pool_(layout_.blocks_for(static_cast<uint32_t>(text_.size()) + 32)),
        cache_(layout_, pool_, {false, 1, 64}),
        store_(layout_, 1),
        scheduler_({.max_num_seqs = 1, .max_model_len = static_cast<uint32_t>(text_.size())}, layout_, pool_,
                   cache_),
        speculator_(speculator_options(), drafters(), store_),
        tokenizer_(kVocab) {
    request_.request.sampling.max_tokens = options.tokens;
    std::vector<TokenId> known(text_.begin(), text_.begin() + kPrompt);
    known.reserve(text_.size());
    choice_ = std::make_unique<Choice>(
        request_, 0, Sampler(request_.request.sampling, 0, kVocab, {}, kernel_table(best_isa())),
        TextAssembler(tokenizer_, {}),
        BlockTable(layout_, pool_, cache_, "", static_cast<uint32_t>(text_.size())), std::move(known),
        kPrompt);
  }

  // Tokens per second.
  double speed() {
    scheduler_.add(*choice_);
    double seconds = step();
    prompt_seconds_ = seconds;
    while (choice_->known() < text_.size()) seconds += step();
    answer_seconds_ = seconds - prompt_seconds_ + drafter_->spent;
    speculator_.close(*choice_);
    scheduler_.remove(*choice_);
    return options_.tokens / (seconds + drafter_->spent);
  }
  const DrafterStats& stats() const { return speculator_.stats()[0]; }
  const DraftCounts& counts() const { return choice_->drafting; }
  double saved_seconds() const { return speculator_.saved_seconds(); }
  // What all tokens of the answer but the first took.
  double answer_seconds() const { return answer_seconds_; }

 private:
  Speculator::Options speculator_options() const {
    return {.max_num_seqs = 1,
            .max_model_len = static_cast<uint32_t>(text_.size()),
            .costs = &options_.machine,
            .most = options_.k.value_or(Draft::kMost),
            .always = options_.k.has_value(),
            .now = [this] { return drafter_->spent; }};
  }
  std::vector<std::unique_ptr<Drafter>> drafters() {
    auto drafter = std::make_unique<PricedDrafter>(testing_drafters::continuation_of({text_}), options_.rate,
                                                   options_.pass);
    drafter_ = drafter.get();
    std::vector<std::unique_ptr<Drafter>> list;
    list.push_back(std::move(drafter));
    return list;
  }

  double step() {
    const double spent = drafter_->spent;
    speculator_.propose(scheduler_);
    const SchedulerOutput& plan = scheduler_.plan();
    speculator_.draft(scheduler_);
    StepLoad load;
    options_.machine.add(load, {.rows = plan.rows, .context = choice_->computed}, plan.logit_rows);
    const double predicted = options_.machine.seconds(load);
    const bool slow = choice_->draft.size > 0 && choice_->known() < options_.slow_until;
    const double measured = (slow ? 2 * predicted : predicted) *
                            std::exp(options_.noise * std::normal_distribution<double>()(rng_));
    choice_->computed += plan.items[0].rows - choice_->draft.size;
    choice_->scheduled = 0;
    speculator_.took(measured + drafter_->spent - spent);
    if (choice_->pending() == 0) accept();
    speculator_.observe(predicted, measured);
    return measured;
  }

  void accept() {
    const uint32_t before = choice_->known();
    uint32_t right = 0;
    while (right < choice_->draft.size && choice_->draft.tokens[right] == text_[before + right]) ++right;
    for (uint32_t i = 0; i <= right; ++i) choice_->tokens.push_back(text_[before + i]);
    choice_->output_tokens += right + 1;
    if (choice_->draft.size > 0) {
      choice_->computed = choice_->known() - 1;
      choice_->table.truncate_to(choice_->computed);
    }
    speculator_.settle(*choice_, right + 1);
  }

  Options options_;
  double prompt_seconds_ = 0, answer_seconds_ = 0;
  std::mt19937 rng_{3};
  std::vector<TokenId> text_;
  FakeLm model_{FakeLm::Options{}};
  KvLayout layout_;
  BlockPool pool_;
  PrefixCache cache_;
  KvStore store_;
  PricedDrafter* drafter_ = nullptr;
  Scheduler scheduler_;
  Speculator speculator_;
  FakeTokenizer tokenizer_;
  ActiveRequest request_;
  std::unique_ptr<Choice> choice_;
};

// The number of guesses of which most tokens per second are to be expected, if it is the same in every step.
uint32_t best_fixed(const VirtualMachine& machine, double rate, double pass) {
  uint32_t best = 0;
  double speed = 0;
  for (uint32_t k = 0; k <= Draft::kMost; ++k) {
    const double now = expected_tokens_per_step(rate, k) / (machine.of_rows(k + 1) + k * pass);
    if (now > speed) speed = now, best = k;
  }
  return best;
}

// Memory-bound, with weights in cache, bound by arithmetic, and with rows in tiles of four.
const VirtualMachine kMachines[] = {{8, 0.03, 1}, {3, 0.05, 1}, {1, 0.01, 1}, {6, 0.02, 4}};

TEST(Speculator, IsNearTheBestNumberOfGuesses) {
  for (const VirtualMachine& machine : kMachines) {
    for (const double pass : {0.0, 0.1, 0.3}) {
      for (const double rate : {0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95}) {
        const uint32_t best = best_fixed(machine, rate, pass);
        const double fixed = VirtualRun({.machine = machine, .rate = rate, .pass = pass, .k = best}).speed();
        VirtualRun chosen({.machine = machine, .rate = rate, .pass = pass});
        EXPECT_GE(chosen.speed() / fixed, 0.97)
            << "rows for free " << machine.rows_for_free << ", rate " << rate << ", a pass takes " << pass
            << ": " << best << " guesses are best, " << chosen.stats().drafted << " were made in "
            << chosen.stats().drafts << " drafts";
      }
    }
  }
}

TEST(Speculator, LosesNextToNothingToGuessesThatAreNeverRight) {
  for (const VirtualMachine& machine : kMachines) {
    for (const double pass : {0.0, 0.3, 1.0}) {
      const double plain = 1 / machine.of_rows(1);
      EXPECT_GE(VirtualRun({.machine = machine, .pass = pass}).speed(), 0.98 * plain)
          << "rows for free " << machine.rows_for_free << ", a pass takes " << pass;
    }
  }
}

// What is said to be saved is what the answer took less than one without guesses, and what is said of the
// answer adds up.
TEST(Speculator, SaysWhatWasSaved) {
  for (const VirtualMachine& machine : kMachines) {
    for (const double rate : {0.0, 0.5, 0.9}) {
      for (const std::optional<uint32_t> k : {std::optional<uint32_t>(), std::optional<uint32_t>(3)}) {
        VirtualRun run({.machine = machine, .rate = rate, .pass = 0.1, .tokens = 500, .k = k});
        run.speed();
        const double without = 499 * machine.of_rows(1);
        EXPECT_NEAR(run.saved_seconds(), without - run.answer_seconds(), 1e-6 * without);
        EXPECT_DOUBLE_EQ(run.counts().saved_seconds, run.saved_seconds());
        EXPECT_EQ(run.counts().drafts, run.stats().drafts);
        EXPECT_EQ(run.counts().drafted, run.stats().drafted);
        EXPECT_EQ(run.counts().accepted, run.stats().accepted);
        for (uint32_t i = 0; i < Draft::kMost; ++i)
          EXPECT_EQ(run.counts().accepted_at[i], run.stats().accepted_at[i]);
      }
    }
  }
}

// Steps take now half of what is predicted, now twice as much: that guesses cost nothing does not follow.
TEST(Speculator, IsNotMisledByAMachineThatOthersUseToo) {
  for (const VirtualMachine& machine : kMachines) {
    VirtualRun run({.machine = machine, .noise = 0.5});
    run.speed();
    EXPECT_LT(run.stats().drafts, 100u) << "rows for free " << machine.rows_for_free;
  }
}

// Steps with guesses take twice what is predicted for a while: guesses stop, and come back.
TEST(Speculator, SlowStepsAreForgotten) {
  const VirtualMachine machine(8, 0.03, 1);
  VirtualRun slow({.machine = machine, .rate = 0.5, .tokens = 200, .slow_until = 100000});
  slow.speed();
  EXPECT_LT(slow.stats().drafts, 100u);
  VirtualRun recovering({.machine = machine, .rate = 0.5, .tokens = 3000, .slow_until = 400});
  recovering.speed();
  EXPECT_GT(recovering.stats().accepted, 800u);
}

}  // namespace
}  // namespace kvasir
