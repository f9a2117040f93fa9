#include "apps/kvasir/speculation_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "decoding/test_drafters.h"
#include "engine/collect_answers.h"
#include "engine/drafters.h"
#include "server/prompt.h"

namespace kvasir {
namespace {

using Clock = std::chrono::steady_clock;

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}

}  // namespace

std::string SpeculationVariant::name() const {
  if (k) return fmt::format("{} k={}", drafter, *k);
  return drafter == "off" || drafter == kAdversary ? drafter : "auto";
}

double SpeculationRow::tokens_per_draft() const {
  return drafts == 0 ? 1 : 1 + static_cast<double>(accepted) / static_cast<double>(drafts);
}

double SpeculationRow::acceptance() const {
  // Of each draft that was not right to the end, one wrong guess was looked at.
  const uint64_t looked_at = accepted + (drafts - whole);
  return looked_at == 0 ? 0 : static_cast<double>(accepted) / static_cast<double>(looked_at);
}

SpeculationBench::~SpeculationBench() = default;

Result<std::unique_ptr<SpeculationBench>> SpeculationBench::open(const std::string& path,
                                                                 const Options& options,
                                                                 uint32_t largest_batch) {
  std::unique_ptr<SpeculationBench> bench(new SpeculationBench);
  bench->options_ = options;
  Llm::Options llm = options.llm;
  llm.engine.max_num_seqs = std::max(largest_batch, 1u);
  llm.engine.speculation = {};
  bench->options_.llm.engine = llm.engine;
  KVASIR_ASSIGN_OR_RETURN(const ModelFacts facts, read_model_facts(path, llm.engine.kv_type));
  KVASIR_ASSIGN_OR_RETURN(bench->llm_, Llm::open(path, llm));
  bench->chat_template_ = model_chat_template(bench->llm_->tokenizer());
  bench->served_ = served_model(*bench->llm_, facts, bench->chat_template_, "");
  return bench;
}

Result<Engine*> SpeculationBench::engine_for(const SpeculationVariant& variant) {
  for (const auto& [name, engine] : engines_) {
    if (name == variant.name()) return engine.get();
  }
  EngineConfig config = options_.llm.engine;
  std::vector<std::unique_ptr<Drafter>> more;
  if (variant.drafter == kAdversary) {
    const auto nothing = [](uint32_t, std::span<const TokenId>, uint32_t) { return std::vector<TokenId>(); };
    const uint32_t vocab = llm_->model().config().vocab_size;
    more.push_back(std::make_unique<testing_drafters::AdversarialDrafter>(nothing, vocab));
  } else {
    KVASIR_ASSIGN_OR_RETURN(config.speculation.drafters, parse_drafters(variant.drafter));
  }
  config.speculation.always = variant.k.value_or(0) > 0;
  config.speculation.never = variant.k == 0u;
  config.speculation.most = variant.k.value_or(0) == 0 ? Draft::kMost : *variant.k;
  KVASIR_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine, llm_->start_engine(config, std::move(more)));
  return engines_.emplace_back(variant.name(), std::move(engine)).second.get();
}

// `batch` requests, the prompts over and over, beginning with the one of that number.
Result<std::vector<Request>> SpeculationBench::requests(const std::vector<SpeculationPrompt>& prompts,
                                                        uint32_t first, uint32_t batch) const {
  const PromptBuilder builder(served_);
  std::vector<Request> out;
  for (uint32_t i = first; i < first + batch; ++i) {
    const SpeculationPrompt& prompt = prompts[i % prompts.size()];
    GenerationRequest asked;
    asked.chat = served_.chat_template != nullptr;
    boost::json::object message{{"role", "user"}, {"content", prompt.ask}};
    asked.messages.push_back(std::move(message));
    asked.prompt = boost::json::string(prompt.ask);
    asked.max_tokens = options_.tokens;
    asked.sampling.temperature = static_cast<float>(options_.temperature);
    std::vector<Prompt> built;
    if (const Problem problem = builder.build(&asked, &built))
      return invalid_argument(fmt::format("prompt '{}': {}", prompt.name, problem->message));
    Request request;
    request.prompt = std::move(built.front().tokens);
    request.sampling = asked.sampling;
    request.sampling.seed = i;
    out.push_back(std::move(request));
  }
  return out;
}

Status SpeculationBench::run_round(Engine& engine, const std::vector<Request>& requests,
                                   SpeculationRow& row) {
  std::vector<Request> prompts = requests;
  for (Request& r : prompts) r.sampling.max_tokens = 1;
  KVASIR_RETURN_IF_ERROR(collect_answers(engine, prompts).status());
  const EngineStats before = stats_when_idle(engine);
  const auto start = Clock::now();
  KVASIR_ASSIGN_OR_RETURN(const auto answers, collect_answers(engine, requests));
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  uint64_t tokens = 0;
  for (const auto& answer : answers) tokens += answer.tokens.size();
  row.tokens += tokens;
  row.tokens_per_second.push_back(static_cast<double>(tokens) / seconds);
  if (row.variant.drafter == "off") {
    expected_.clear();
    for (const auto& answer : answers) expected_.push_back(answer.tokens);
  }
  for (size_t i = 0; i < answers.size(); ++i) row.differing += answers[i].tokens != expected_[i];
  const EngineStats after = stats_when_idle(engine);
  for (size_t d = 0; d < after.speculation.drafters.size(); ++d) {
    const DrafterStats& now = after.speculation.drafters[d];
    const DrafterStats& then = before.speculation.drafters[d];
    row.drafts += now.drafts - then.drafts;
    row.whole += now.whole - then.whole;
    row.drafted += now.drafted - then.drafted;
    row.accepted += now.accepted - then.accepted;
    for (size_t p = 0; p < Draft::kMost; ++p) row.accepted_at[p] += now.accepted_at[p] - then.accepted_at[p];
  }
  for (size_t reason = 0; reason < kNoDrafts; ++reason)
    row.without[reason] += after.speculation.without_draft[reason] - before.speculation.without_draft[reason];
  return {};
}

Status SpeculationBench::prepare(const std::vector<SpeculationVariant>& variants) {
  for (const SpeculationVariant& variant : variants) {
    if (const auto engine = engine_for(variant); !engine.ok()) return engine.status();
  }
  return {};
}

Result<std::vector<SpeculationRow>> SpeculationBench::measure(
    const std::string& workload, const std::vector<SpeculationPrompt>& prompts, uint32_t batch,
    const std::vector<SpeculationVariant>& variants) {
  std::vector<SpeculationRow> rows;
  rows.reserve(variants.size());
  for (const SpeculationVariant& v : variants)
    rows.push_back({.workload = workload, .batch = batch, .variant = v});
  for (uint32_t round = 0; round < options_.rounds; ++round) {
    KVASIR_ASSIGN_OR_RETURN(const std::vector<Request> asked, requests(prompts, round * batch, batch));
    for (SpeculationRow& row : rows) {
      KVASIR_ASSIGN_OR_RETURN(Engine * engine, engine_for(row.variant));
      KVASIR_RETURN_IF_ERROR(run_round(*engine, asked, row));
    }
  }
  for (SpeculationRow& row : rows) {
    row.median = median_of(row.tokens_per_second);
    std::vector<double> gains = row.tokens_per_second;
    for (size_t i = 0; i < gains.size(); ++i) gains[i] /= rows.front().tokens_per_second[i];
    row.gain = median_of(std::move(gains));
  }
  return rows;
}

}  // namespace kvasir
