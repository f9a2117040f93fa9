#include "server/generation.h"

#include <algorithm>
#include <ctime>
#include <numeric>

#include "base/log.h"
#include "engine/drafters.h"
#include "server/json_writer.h"
#include "server/request_id.h"

namespace kvasir {
namespace {

// Fresh seeds stay below 2^53, so that every JSON reader can give them back exactly.
int64_t fresh_seed() {
  return static_cast<int64_t>(random_bits() >> 11);
}

std::string json_of(const TokenEvent& event) {
  JsonWriter json;
  if (event.stop_string)
    json.value(*event.stop_string);
  else if (event.stop_token)
    json.value(*event.stop_token);
  return json.take();
}

// The names of checked tools.
std::vector<std::string> tool_names(const boost::json::array& tools) {
  std::vector<std::string> names;
  for (const boost::json::value& tool : tools) names.emplace_back(tool.at("function").at("name").as_string());
  return names;
}

}  // namespace

Generation::Generation(const ServedModel& model, std::shared_ptr<HttpExchange> exchange,
                       GenerationRequest request, std::vector<Prompt> prompts)
    : model_(model),
      exchange_(std::move(exchange)),
      request_(std::move(request)),
      prompts_(std::move(prompts)),
      prompt_logprobs_(prompts_.size()),
      choices_(prompts_.size() * drawn()),
      logprob_json_(*model.tokenizer, request_.tokens_as_ids) {
  head_.chat = request_.chat;
  head_.id = random_id(request_.chat ? "chatcmpl-" : "cmpl-");
  head_.model = model.name;
  head_.created = std::time(nullptr);
  if (!request_.request_id.empty())
    spdlog::info("{} is request_id {}", exchange_->request().id, request_.request_id);
  head_.seed = request_.seed ? *request_.seed : fresh_seed();
  if (request_.chat && request_.use_tools && !request_.tools.empty()) {
    const size_t most = request_.parallel_tool_calls ? SIZE_MAX : 1;
    for (Choice& choice : choices_) choice.parser.emplace(tool_names(request_.tools), most);
  }
}

Request Generation::engine_request(size_t prompt) {
  Request r;
  r.external_id = request_.request_id.empty() ? exchange_->request().id : request_.request_id;
  r.prompt = prompts_[prompt].tokens;
  r.sampling = request_.sampling;
  r.sampling.seed = static_cast<uint64_t>(head_.seed);
  r.sampling.logprobs = chooses() ? 0 : -1;
  if (request_.wants_logprobs()) {
    r.sampling.logprobs = static_cast<int32_t>(request_.chat ? request_.top_logprobs : request_.logprobs);
  }
  r.n = static_cast<uint32_t>(request_.drawn());
  r.stop = request_.stop;
  r.include_stop = request_.include_stop;
  r.special_text = !request_.skip_special_tokens;
  r.cache_salt = request_.cache_salt;
  r.drafters = drafters_;
  r.priority = request_.priority.value_or(0);
  r.user = request_.owner;
  r.weight = request_.weight;
  const int64_t echoed = request_.echo ? request_.logprobs : -1;
  r.prompt_logprobs = static_cast<int32_t>(std::max(echoed, request_.prompt_logprobs));
  if (r.prompt_logprobs >= 0) {
    r.prompt_logprobs_sink = [self = shared_from_this(), prompt](std::vector<SampledToken>&& logprobs) {
      self->deliver({prompt, std::move(logprobs)});
    };
  }
  return r;
}

void Generation::start() {
  started_ = std::chrono::steady_clock::now();
  const auto drafters = drafter_mask(model_.engine->drafters(), request_.speculate);
  if (!drafters.ok()) return fail(bad_field("speculate", "'speculate': " + drafters.message()));
  drafters_ = *drafters;
  exchange_->on_disconnect([self = shared_from_this()] {
    self->ended_ = true;
    self->cancel_all();
  });
  for (size_t i = 0; i < prompts_.size(); ++i) {
    auto id = model_.engine->submit(engine_request(i), [self = shared_from_this(), i](TokenEvent&& event) {
      self->deliver({i, std::move(event)});
    });
    if (!id.ok()) return fail(refusal(id.status()));
    ids_.push_back(*id);
  }
  if (request_.stream) {
    streaming_ = true;
    exchange_->start_stream(
        {200, "text/event-stream", {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}}, ""},
        std::string(kSseKeepAlive));
  }
}

// Who finds the queue full is told when, by the engine's estimate, what waits now will have begun.
ApiError Generation::refusal(const Status& status) const {
  ApiError error = api_error_of(status);
  if (status.code() == ErrorCode::kResourceExhausted)
    error.retry_after_seconds = retry_after(model_.engine->stats().queue_seconds);
  return error;
}

void Generation::cancel_all() {
  for (const RequestId id : ids_) model_.engine->cancel(id);
}

void Generation::fail(const ApiError& error) {
  if (std::exchange(ended_, true)) return;
  cancel_all();
  if (!streaming_) return exchange_->respond(error_response(error));
  exchange_->write(sse_event(error_json(error)) + std::string(kSseDone));
  exchange_->finish();
}

void Generation::deliver(Mail mail) {
  const std::lock_guard lock(mail_mutex_);
  mail_.push_back(std::move(mail));
  if (!std::exchange(mail_posted_, true)) exchange_->post([self = shared_from_this()] { self->read_mail(); });
}

void Generation::read_mail() {
  std::vector<Mail> mail;
  {
    const std::lock_guard lock(mail_mutex_);
    mail.swap(mail_);
    mail_posted_ = false;
  }
  for (Mail& m : mail) {
    if (ended_) return;
    if (auto* event = std::get_if<TokenEvent>(&m.content))
      on_event(m.prompt, std::move(*event));
    else
      prompt_logprobs_[m.prompt] = std::move(std::get<std::vector<SampledToken>>(m.content));
  }
}

void Generation::on_event(size_t prompt, TokenEvent&& event) {
  if (event.finish == FinishReason::kError) {
    ApiError error = api_error_of(event.error);
    spdlog::error("request {} failed: {}", exchange_->request().id, error.message);
    if (error.status >= 500) error.message += " (request " + exchange_->request().id + ")";
    return fail(error);
  }
  if (event.finish == FinishReason::kCancelled)
    return fail(api_error_of(unavailable("the request was cancelled")));
  last_token_ = std::chrono::steady_clock::now();
  if (first_token_ == std::chrono::steady_clock::time_point{}) first_token_ = last_token_;
  const size_t index = prompt * drawn() + event.choice;
  collect(choices_[index], std::move(event));
  if (streaming_) send_part(index);
  if (!all_finished()) return;
  if (streaming_)
    end_stream();
  else
    send_whole();
}

void Generation::collect(Choice& choice, TokenEvent&& event) {
  choice.cached_tokens = event.cached_tokens;
  choice.finish = event.finish;
  choice.output_tokens = event.output_tokens;
  choice.drafting = event.drafting;
  choice.stop_reason = json_of(event);
  if (chooses()) {
    for (const SampledToken& token : event.logprobs) choice.logprob += token.logprob;
  }
  if (request_.wants_logprobs()) {
    choice.logprobs.insert(choice.logprobs.end(), std::make_move_iterator(event.logprobs.begin()),
                           std::make_move_iterator(event.logprobs.end()));
  }
  if (request_.token_ids) choice.tokens.insert(choice.tokens.end(), event.tokens.begin(), event.tokens.end());
  if (!choice.parser) {
    choice.text += event.text;
    return;
  }
  choice.parser->push(event.text, &choice.text, &choice.calls);
  if (event.finish != FinishReason::kNone) choice.parser->finish(&choice.text, &choice.calls);
}

std::string Generation::finish_word(const Choice& choice) const {
  switch (choice.finish) {
    case FinishReason::kNone:
      return "";
    case FinishReason::kLength:
      return "length";
    default:
      break;
  }
  return choice.parser && choice.parser->any() ? "tool_calls" : "stop";
}

std::span<const SampledToken> Generation::prompt_logprobs(size_t prompt, int64_t top,
                                                          std::vector<SampledToken>* storage) const {
  if (!prompt_logprobs_[prompt]) return {};
  *storage = *prompt_logprobs_[prompt];
  for (SampledToken& token : *storage) {
    if (token.top.size() > static_cast<size_t>(top)) token.top.resize(static_cast<size_t>(top));
  }
  return *storage;
}

std::string Generation::take_logprobs(size_t index, bool with_prompt) {
  Choice& choice = choices_[index];
  const size_t prompt = index / drawn();
  std::vector<SampledToken> tokens = std::move(choice.logprobs);
  choice.logprobs.clear();
  if (request_.chat) return logprob_json_.chat(tokens);
  const bool special = with_prompt || !request_.skip_special_tokens;
  if (!with_prompt) return logprob_json_.legacy(tokens, false, special, &choice.text_offset);
  choice.text_offset = -prompts_[prompt].hidden_characters;
  std::vector<SampledToken> storage;
  const auto after_first = prompt_logprobs(prompt, request_.logprobs, &storage);
  std::vector<SampledToken> all(1);
  all[0].token = prompts_[prompt].tokens.front();
  all.insert(all.end(), after_first.begin(), after_first.end());
  all.insert(all.end(), std::make_move_iterator(tokens.begin()), std::make_move_iterator(tokens.end()));
  return logprob_json_.legacy(all, true, special, &choice.text_offset);
}

// What the first part of a choice says about its prompt.
void Generation::add_prompt(size_t prompt, ChoicePart* part) {
  if (request_.echo) part->text = prompts_[prompt].text + part->text;
  if (request_.token_ids) part->prompt_token_ids = prompts_[prompt].tokens;
  if (request_.prompt_logprobs >= 0) {
    std::vector<SampledToken> storage;
    part->prompt_logprobs = logprob_json_.prompt(prompt_logprobs(prompt, request_.prompt_logprobs, &storage));
  }
}

ChoicePart Generation::take_part(size_t index) {
  Choice& choice = choices_[index];
  ChoicePart part;
  part.index = static_cast<uint32_t>(index);
  part.first = !std::exchange(choice.started, true);
  part.text = std::exchange(choice.text, {});
  part.calls = std::exchange(choice.calls, {});
  part.first_call = choice.calls_sent;
  choice.calls_sent += part.calls.size();
  if (request_.token_ids) part.token_ids = std::exchange(choice.tokens, {});
  if (part.first) add_prompt(index / drawn(), &part);
  const bool with_prompt = part.first && request_.echo;
  if (request_.wants_logprobs() && (with_prompt || !choice.logprobs.empty())) {
    part.logprobs = take_logprobs(index, with_prompt);
  }
  part.finish_reason = finish_word(choice);
  part.stop_reason = choice.stop_reason;
  return part;
}

void Generation::send_part(size_t index) {
  const Choice& choice = choices_[index];
  const bool worth_it = !choice.text.empty() || !choice.calls.empty() || !choice.logprobs.empty() ||
                        !choice.tokens.empty() || choice.finish != FinishReason::kNone;
  if (!worth_it) return;
  UsageField field = UsageField::kAbsent;
  if (request_.include_usage) field = request_.continuous_usage ? UsageField::kPresent : UsageField::kNull;
  const bool last = choice.finish != FinishReason::kNone;
  exchange_->write(
      sse_event(stream_chunk_json(head_, take_part(index), field, usage(), last ? timings() : std::nullopt)));
}

void Generation::end_stream() {
  if (std::exchange(ended_, true)) return;
  std::string end;
  if (request_.include_usage) end = sse_event(usage_chunk_json(head_, usage()));
  exchange_->write(end + std::string(kSseDone));
  exchange_->finish();
}

void Generation::send_whole() {
  if (std::exchange(ended_, true)) return;
  std::vector<ChoicePart> parts;
  for (const size_t index : given_choices()) {
    parts.push_back(take_part(index));
    parts.back().index = static_cast<uint32_t>(parts.size() - 1);
  }
  HttpResponse response;
  response.body = answer_json(head_, parts, usage(), timings());
  exchange_->respond(std::move(response));
}

// The choices of the answer in their order: of each prompt all, or the best.
std::vector<size_t> Generation::given_choices() const {
  std::vector<size_t> all(choices_.size());
  std::iota(all.begin(), all.end(), size_t{0});
  if (!chooses()) return all;
  std::vector<size_t> given;
  for (auto of_prompt = all.begin(); of_prompt != all.end(); of_prompt += request_.drawn()) {
    std::stable_sort(of_prompt, of_prompt + request_.drawn(), [this](size_t a, size_t b) {
      return choices_[a].mean_logprob() > choices_[b].mean_logprob();
    });
    given.insert(given.end(), of_prompt, of_prompt + request_.n);
  }
  return given;
}

bool Generation::all_finished() const {
  return std::all_of(choices_.begin(), choices_.end(),
                     [](const Choice& c) { return c.finish != FinishReason::kNone; });
}

Usage Generation::usage() const {
  Usage usage;
  for (size_t i = 0; i < prompts_.size(); ++i) {
    usage.prompt_tokens += prompts_[i].tokens.size();
    usage.cached_tokens += choices_[i * drawn()].cached_tokens;
  }
  for (const Choice& choice : choices_) {
    usage.completion_tokens += choice.output_tokens;
    usage.drafting += choice.drafting;
  }
  return usage;
}

std::optional<Timings> Generation::timings() const {
  if (!request_.timings) return std::nullopt;
  const auto seconds = [](auto duration) { return std::chrono::duration<double>(duration).count(); };
  return Timings{seconds(first_token_ - started_), seconds(last_token_ - first_token_)};
}

}  // namespace kvasir
