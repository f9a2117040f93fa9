#include "apps/kvasir/hidden_dump.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/json.hpp>
#include <charconv>
#include <cmath>
#include <map>
#include <utility>

#include "engine/collect_answers.h"
#include "kernels/quant_codec.h"
#include "kvcache/block_table.h"
#include "safetensors/safetensors_writer.h"
#include "server/prompt.h"

namespace kvasir {
namespace {

// A request for the answer to one message, or, of a model without a chat template, for what follows a text.
Result<Request> request_for(const ServedModel& model, const std::string& message) {
  GenerationRequest asked;
  asked.chat = model.chat_template != nullptr;
  asked.messages.push_back(boost::json::object{{"role", "user"}, {"content", message}});
  asked.prompt = boost::json::string(message);
  std::vector<Prompt> built;
  if (const Problem problem = PromptBuilder(model).build(&asked, &built))
    return invalid_argument(problem->message);
  Request request;
  request.prompt = std::move(built.front().tokens);
  request.sampling = asked.sampling;
  return request;
}

using Report = std::function<void(const char*, uint64_t, uint64_t)>;

// What is said, one sequence after the other.
struct Spoken {
  std::vector<TokenId> tokens;
  std::vector<int64_t> starts = {0}, answers;

  void add(const std::vector<TokenId>& prompt, const std::vector<TokenId>& answer) {
    answers.push_back(static_cast<int64_t>(tokens.size() + prompt.size()));
    tokens.insert(tokens.end(), prompt.begin(), prompt.end());
    tokens.insert(tokens.end(), answer.begin(), answer.end());
    starts.push_back(static_cast<int64_t>(tokens.size()));
  }
  std::span<const TokenId> sequence(size_t i) const {
    return std::span(tokens).subspan(static_cast<size_t>(starts[i]),
                                     static_cast<size_t>(starts[i + 1] - starts[i]));
  }
  uint32_t longest() const {
    size_t most = 0;
    for (size_t i = 0; i < answers.size(); ++i) most = std::max(most, sequence(i).size());
    return static_cast<uint32_t>(most);
  }
};

Result<Spoken> speak(Llm& llm, const ServedModel& served, const std::vector<std::string>& prompts,
                     const HiddenDumpOptions& options, const Report& report) {
  std::vector<Request> requests;
  for (size_t i = 0; i < prompts.size(); ++i) {
    auto request = request_for(served, prompts[i]);
    if (!request.ok()) return invalid_argument(fmt::format("prompt {}: {}", i + 1, request.message()));
    request->sampling.temperature = options.temperature;
    request->sampling.max_tokens = std::min(options.max_tokens, request->sampling.max_tokens);
    request->sampling.seed = options.seed + i;
    requests.push_back(std::move(request).value());
  }
  KVASIR_ASSIGN_OR_RETURN(const auto answers, collect_answers(llm.engine(), requests, [&](size_t done) {
                            report("answers", done, prompts.size());
                          }));
  Spoken spoken;
  for (size_t i = 0; i < requests.size(); ++i) spoken.add(requests[i].prompt, answers[i].tokens);
  return spoken;
}

// Passes over one sequence after the other, with a KV cache for the longest.
class Passes {
 public:
  Passes(Llm& llm, const KvLayout& layout, uint32_t longest, std::span<const uint32_t> points)
      : model_(llm.model()),
        layout_(layout),
        rows_(model_limits(llm.engine().config()).max_rows),
        points_(points),
        pool_(layout.blocks_for(uint64_t{longest} + rows_)),
        cache_(layout_, pool_, {.enabled = false}),
        store_(layout_, pool_.total()),
        row_values_(points.size() * model_.config().hidden_dim),
        hidden_(rows_ * row_values_),
        longest_(longest) {}

  // Calls take(values of some rows) front to back.
  Status run(std::span<const TokenId> tokens, const std::function<Status(std::span<const float>)>& take) {
    BlockTable table(layout_, pool_, cache_, "", longest_);
    for (uint32_t first = 0; first < tokens.size(); first += rows_) {
      const auto count = static_cast<uint32_t>(std::min<size_t>(rows_, tokens.size() - first));
      CHECK(table.prepare(first, count, &copies_));
      pass(table, tokens.subspan(first, count), first);
      table.commit(tokens, first + count);
      KVASIR_RETURN_IF_ERROR(take(std::span(hidden_).first(count * row_values_)));
    }
    return {};
  }

 private:
  void pass(const BlockTable& table, std::span<const TokenId> tokens, uint32_t first) {
    const auto count = static_cast<uint32_t>(tokens.size());
    positions_.clear();
    all_rows_.clear();
    for (uint32_t i = 0; i < count; ++i) {
      positions_.push_back(static_cast<int32_t>(first + i));
      all_rows_.push_back(i);
    }
    const ForwardBatch::Sequence sequence{0, count, table.tables()};
    model_.forward({.tokens = tokens,
                    .positions = positions_,
                    .sequences = {&sequence, 1},
                    .logit_rows = {},
                    .hidden = {.rows = all_rows_, .points = points_, .out = hidden_.data()}},
                   store_, {});
  }

  CausalLm& model_;
  KvLayout layout_;
  uint32_t rows_;
  std::span<const uint32_t> points_;
  BlockPool pool_;
  PrefixCache cache_;
  KvStore store_;
  size_t row_values_;
  std::vector<float> hidden_;
  std::vector<int32_t> positions_;
  std::vector<uint32_t> all_rows_;
  std::vector<BlockCopy> copies_;
  uint32_t longest_;
};

Status append_halves(SafetensorsWriter& writer, std::span<const float> values,
                     std::vector<uint16_t>& halves) {
  constexpr float kLargest = 65504;
  halves.resize(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    if (!(std::fabs(values[i]) <= kLargest))
      return invalid_argument(
          fmt::format("a hidden state of {} does not fit F16; --type f32 keeps it", values[i]));
    halves[i] = float_to_half(values[i]);
  }
  return writer.append_values(std::span<const uint16_t>(halves));
}

std::string points_text(std::span<const uint32_t> points) {
  std::vector<std::string> names;
  for (const uint32_t p : points) names.push_back(p == HiddenTap::kOutputNorm ? "output" : std::to_string(p));
  return fmt::format("{}", fmt::join(names, ","));
}

Result<SafetensorsWriter> create_file(const std::string& path, const Spoken& spoken, uint32_t width,
                                      const HiddenDumpOptions& options, const std::string& fingerprint) {
  const uint64_t tokens = spoken.tokens.size(), sequences = spoken.answers.size();
  const SafeType* type = find_safe_type(options.halves ? "F16" : "F32");
  return SafetensorsWriter::create(path,
                                   {{"tokens", find_safe_type("I32"), {tokens}},
                                    {"starts", find_safe_type("I64"), {sequences + 1}},
                                    {"answers", find_safe_type("I64"), {sequences}},
                                    {"hidden", type, {tokens, options.points.size(), width}}},
                                   {{"format", "kvasir hidden states 1"},
                                    {"model", fingerprint},
                                    {"points", points_text(options.points)},
                                    {"temperature", fmt::format("{}", options.temperature)},
                                    {"seed", std::to_string(options.seed)}});
}

}  // namespace

Result<std::vector<uint32_t>> parse_points(const std::string& text, uint32_t layers) {
  std::vector<uint32_t> points;
  for (std::string_view rest = text;;) {
    const size_t comma = rest.find(',');
    const std::string_view name = rest.substr(0, comma);
    uint32_t point = HiddenTap::kOutputNorm;
    if (name != "output") {
      const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), point);
      if (name.empty() || error != std::errc() || end != name.data() + name.size() || point > layers)
        return invalid_argument(
            fmt::format("'{}' is no point of this model; there are 0 to {}, and output", name, layers));
    }
    if (!points.empty() && point <= points.back())
      return invalid_argument(fmt::format("'{}': points ascend, output last", text));
    points.push_back(point);
    if (comma == std::string_view::npos) return points;
    rest.remove_prefix(comma + 1);
  }
}

Result<std::vector<std::string>> parse_prompts(const std::string& text) {
  std::vector<std::string> prompts;
  size_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    at = end + 1;
    ++number;
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty()) continue;
    if (line.front() == '"') {
      boost::system::error_code error;
      const boost::json::value value = boost::json::parse(line, error);
      if (error || !value.is_string())
        return invalid_argument(fmt::format("line {} begins with a double quote and is no JSON string: {}",
                                            number, error.message()));
      line = std::string(value.get_string());
    }
    prompts.push_back(std::move(line));
  }
  return prompts;
}

Result<HiddenDumpCounts> dump_hidden_states(Llm& llm, const ServedModel& served,
                                            const std::vector<std::string>& prompts,
                                            const HiddenDumpOptions& options,
                                            const std::string& model_fingerprint, const std::string& path,
                                            const Report& report) {
  KVASIR_ASSIGN_OR_RETURN(const Spoken spoken, speak(llm, served, prompts, options, report));
  const EngineConfig& config = llm.engine().config();
  KVASIR_ASSIGN_OR_RETURN(const KvLayout layout, KvLayout::make(llm.model().config().kv_layers(),
                                                                config.block_size, config.kv_type));
  Passes passes(llm, layout, spoken.longest(), options.points);
  const uint32_t width = llm.model().config().hidden_dim;
  KVASIR_ASSIGN_OR_RETURN(SafetensorsWriter writer,
                          create_file(path, spoken, width, options, model_fingerprint));
  KVASIR_RETURN_IF_ERROR(writer.append_values(std::span(spoken.tokens)));
  KVASIR_RETURN_IF_ERROR(writer.append_values(std::span(spoken.starts)));
  KVASIR_RETURN_IF_ERROR(writer.append_values(std::span(spoken.answers)));
  std::vector<uint16_t> halves;
  const auto take = [&](std::span<const float> values) {
    return options.halves ? append_halves(writer, values, halves) : writer.append_values(values);
  };
  HiddenDumpCounts counts{.prompts = prompts.size(), .tokens = spoken.tokens.size()};
  for (size_t i = 0; i < prompts.size(); ++i) {
    KVASIR_RETURN_IF_ERROR(passes.run(spoken.sequence(i), take));
    counts.answer_tokens += static_cast<uint64_t>(spoken.starts[i + 1] - spoken.answers[i]);
    report("hidden states", static_cast<uint64_t>(spoken.starts[i + 1]), counts.tokens);
  }
  KVASIR_RETURN_IF_ERROR(writer.finish());
  counts.bytes = counts.tokens * options.points.size() * width * (options.halves ? 2 : 4);
  return counts;
}

}  // namespace kvasir
