#include "engine_world.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace kvasir::sim {
namespace {

constexpr uint32_t kVocab = 24;

}  // namespace

struct EngineWorld::Reader {
  struct Answer {
    std::vector<TokenId> tokens;
    std::string text;
    FinishReason finish = FinishReason::kNone;
    uint32_t after_end = 0;  // events that came after the last one
    uint32_t cached_tokens = 0;
  };
  Request request;
  Arrival arrival;
  uint64_t id = 0;
  bool cancelled = false;
  std::vector<SampledToken> prompt_logprobs;
  uint32_t scored = 0;  // how often the prompt's came
  std::deque<TokenEvent> mail;
  std::vector<Answer> answers;

  void take(TokenEvent&& event) {
    Answer& a = answers[event.choice];
    a.after_end += a.finish != FinishReason::kNone;
    a.tokens.insert(a.tokens.end(), event.tokens.begin(), event.tokens.end());
    a.text += event.text;
    a.finish = event.finish;
    a.cached_tokens = event.cached_tokens;
  }
};

EngineWorld::EngineWorld(const Setup& setup)
    : setup_(setup),
      model_options_{.vocab = kVocab, .windows = setup.windows},
      model_(model_options_),
      tokenizer_(kVocab) {
  EngineConfig config;
  config.max_model_len = setup.max_model_len;
  config.max_num_seqs = setup.max_num_seqs;
  config.max_num_batched_tokens = setup.max_num_batched_tokens;
  config.block_size = kSimBlock;
  config.enable_prefix_caching = setup.caching;
  const KvLayout layout = KvLayout::make(model_.config().kv_layers(), kSimBlock).value();
  core_ = std::make_unique<EngineCore>(config, layout, setup.blocks, model_, tokenizer_,
                                       kernel_table(best_isa()), threads_, 7);
}

EngineWorld::~EngineWorld() = default;

Status EngineWorld::apply(const Op& op) {
  ++tally_.operations;
  if (op.kind == Op::Kind::kArrive) arrive(op.arrival);
  if (op.kind == Op::Kind::kCancel && !readers_.empty()) {
    Reader& reader = *readers_[op.target % readers_.size()];
    reader.cancelled = true;
    core_->cancel(RequestId{reader.id});
  }
  for (uint32_t i = 0; op.kind == Op::Kind::kStep && i < op.times && core_->has_work(); ++i)
    KVASIR_RETURN_IF_ERROR(step());
  return check();
}

Request EngineWorld::request_of(const Arrival& a) const {
  Request r;
  if (a.source != Arrival::Source::kText && !readers_.empty()) {
    const Reader& target = *readers_[a.target % readers_.size()];
    r.prompt = target.request.prompt;
    const std::vector<TokenId>& said = target.answers[a.seed % target.answers.size()].tokens;
    if (a.source == Arrival::Source::kTurn) r.prompt.insert(r.prompt.end(), said.begin(), said.end());
  }
  for (uint32_t p = 0; r.prompt.empty() || (a.source != Arrival::Source::kRetry && p < a.length); ++p) {
    const uint64_t text = p < a.shared ? 0 : a.text + 1;
    r.prompt.push_back(static_cast<TokenId>(1 + fake::mix(a.family * 64 + text, p) % (kVocab - 1)));
  }
  const uint32_t most = setup_.max_model_len - (a.max_tokens > 0);
  if (r.prompt.size() > most) r.prompt.resize(most);
  r.n = std::min(a.n, setup_.max_num_seqs);
  r.sampling.max_tokens = a.max_tokens;
  r.sampling.temperature = a.greedy ? 0.0f : 0.9f;
  r.sampling.seed = a.seed;
  r.sampling.ignore_eos = a.seed % 2 == 0;
  r.sampling.logprobs = a.seed % 3 == 0 ? 0 : -1;
  if (a.seed % 4 == 1) r.sampling.repetition_penalty = 1.3f;
  if (a.seed % 4 == 2) r.stop = {"ab", "q"};
  if (a.seed % 4 == 3) r.sampling.stop_token_ids = {5};
  if (a.salt != 0) r.cache_salt = fmt::format("salt {}", a.salt);
  if (a.scored) r.prompt_logprobs = 1;
  r.priority = a.priority;
  r.user = user_name(a.user);
  r.weight = user_weight(a.user);
  return r;
}

void EngineWorld::arrive(const Arrival& arrival) {
  auto reader = std::make_unique<Reader>();
  Reader* r = reader.get();
  r->request = request_of(arrival);
  r->arrival = arrival;
  r->id = readers_.size() + 1;
  r->answers.resize(r->request.n);
  Request request = r->request;
  if (arrival.scored) {
    request.prompt_logprobs_sink = [r](std::vector<SampledToken>&& logprobs) {
      r->prompt_logprobs = std::move(logprobs);
      ++r->scored;
    };
  }
  work_ += uint64_t{request.n} *
           std::min<uint64_t>(request.prompt.size() + request.sampling.max_tokens, setup_.max_model_len);
  core_->add(
      RequestId{r->id}, std::move(request), [r](TokenEvent&& event) { r->mail.push_back(std::move(event)); },
      tally_.seconds);
  readers_.push_back(std::move(reader));
  ++tally_.requests;
}

void EngineWorld::read_on(bool everything) {
  for (const auto& r : readers_) {
    size_t most = everything || r->arrival.pace == 0 ? r->mail.size() : r->arrival.pace;
    for (; most > 0 && !r->mail.empty(); --most) {
      r->take(std::move(r->mail.front()));
      r->mail.pop_front();
    }
  }
}

Status EngineWorld::step() {
  const std::vector<Sequence*>& running = core_->scheduler().running();
  const auto oldest = running.empty() ? std::pair<uint64_t, uint32_t>{} : running.front()->age;
  const uint32_t computed = running.empty() ? 0 : running.front()->computed;
  const uint64_t rows = model_.rows;
  core_->step();
  ++tally_.steps;
  tally_.rows += model_.rows - rows;
  tally_.seconds += 1e-3 * static_cast<double>(1 + model_.rows - rows);
  note(model_.rows);
  read_on(false);
  for (const Sequence* s : core_->scheduler().waiting()) {
    if (s->age == oldest) return internal_error("the oldest running sequence was preempted");
    tally_.follows += s->leader != nullptr;
  }
  for (const Sequence* s : core_->scheduler().running()) {
    if (s->age == oldest && s->computed <= computed)
      return internal_error("the oldest running sequence stood still");
  }
  if (tally_.steps > 4 * work_ + 100)
    return internal_error(fmt::format("{} steps for {} tokens in all", tally_.steps, work_));
  return check();
}

Status EngineWorld::check() {
  ++tally_.checks;
  KVASIR_RETURN_IF_ERROR(core_->check_integrity());
  if (model_.faults > 0) return internal_error("a row read a slot that is not its own");
  if (core_->requests_started() > tally_.requests || core_->requests_ended() > core_->requests_started() ||
      core_->requests_held() != tally_.requests - core_->requests_ended())
    return internal_error(fmt::format("{} requests, {} started, {} ended, {} held", tally_.requests,
                                      core_->requests_started(), core_->requests_ended(),
                                      core_->requests_held()));
  return {};
}

Status EngineWorld::finish() {
  while (core_->has_work()) KVASIR_RETURN_IF_ERROR(step());
  read_on(true);
  const EngineStats stats = core_->update_stats();
  if (core_->requests_ended() != tally_.requests || stats.blocks_used != 0)
    return internal_error(fmt::format("{} of {} requests ended, {} blocks are owned", core_->requests_ended(),
                                      tally_.requests, stats.blocks_used));
  tally_.preemptions += stats.preemptions;
  tally_.hit_tokens += stats.prefix_hits;
  return check_answers();
}

Status EngineWorld::check_answers() {
  for (const auto& r : readers_) {
    for (uint32_t c = 0; c < r->answers.size(); ++c) {
      const Reader::Answer& a = r->answers[c];
      const auto wrong = [&](const std::string& what) {
        return internal_error(fmt::format("choice {} of request {}: {}", c, r->id, what));
      };
      if (a.finish == FinishReason::kNone || a.after_end > 0)
        return wrong(fmt::format("{} events after its end", a.after_end));
      const bool cut = a.finish == FinishReason::kCancelled;
      ++(cut ? tally_.cancelled : tally_.finished);
      if (cut && !r->cancelled) return wrong("ended as cancelled, and nobody cancelled it");
      if (r->request.sampling.max_tokens == 0) continue;
      const Expected e = expected_answer(r->request, c, model_options_, tokenizer_, setup_.max_model_len);
      const bool begins = a.tokens.size() <= e.tokens.size() &&
                          std::equal(a.tokens.begin(), a.tokens.end(), e.tokens.begin());
      if (!begins || (!cut && a.tokens.size() != e.tokens.size()))
        return wrong(
            fmt::format("{} tokens, not those of the model alone ({})", a.tokens.size(), e.tokens.size()));
      if (!cut && (a.text != e.text || a.finish != e.finish))
        return wrong(fmt::format("\"{}\" instead of \"{}\"", a.text, e.text));
      if (c == 0 && r->arrival.scored && !cut &&
          (r->scored != 1 || r->prompt_logprobs.size() + 1 != r->request.prompt.size()))
        return wrong(fmt::format("{} prompt tokens scored, {} times", r->prompt_logprobs.size(), r->scored));
    }
  }
  return {};
}

}  // namespace kvasir::sim
