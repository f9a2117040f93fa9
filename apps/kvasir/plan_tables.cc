#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "apps/kvasir/plan_printer.h"
#include "apps/kvasir/plan_report.h"
#include "perf/parameter_formulas.h"
#include "perf/plan_derivation.h"

namespace kvasir {
namespace {

using Row = std::vector<PlanCell>;
using Printer = PlanPrinter;

// What all experts take, and what of them is used.
template <class Add>
void add_experts(const PlanReport& report, const Add& add) {
  const Printer p{report.derivation};
  const ModelShape& s = report.request.input.shape;
  const uint64_t batch = report.request.goals.batch();
  add("parameters that one token uses", p.count("active_parameters"));
  add(fmt::format("{} routed experts in each of {} layers", s.moe->experts, s.moe_layers()),
      p.size("expert_bytes"));
  add(fmt::format("the {} of them that one token uses", s.moe->experts_used), p.size("active_expert_bytes"));
  if (batch > 1)
    add(fmt::format("those that {} at once use, chosen evenly", batch), p.size("touched_expert_bytes"));
}

PlanTable model_table(const PlanReport& report) {
  const Printer p{report.derivation};
  const PlanInput& in = report.request.input;
  PlanTable t{.title = "What it takes",
              .columns = {{"", false}, {"", true}, {"exactly", true}, {"id", false}}};
  const auto add = [&](std::string what, PlanCell cell) {
    const std::string id = cell.quantity;
    t.rows.push_back({{std::move(what)}, std::move(cell), p.whole(id), {id}});
  };
  add("parameters", p.count("exact_parameters"));
  add("parameters by the formula", p.count("parameters"));
  add(fmt::format("weights as {}", in.weight_format().name), p.size("parameter_bytes"));
  if (in.shape.moe) add_experts(report, add);
  if (in.shape.moe || !in.shape.tied_embeddings)
    add("weights that one token alone reads", p.size("weight_bytes_read"));
  add(fmt::format("KV cache per token as {}", in.kv.name), p.size("kv_bytes_per_token"));
  if (const AttentionKind kind = in.shape.attention(); kind != AttentionKind::kMha)
    add(fmt::format("without {}, with K and V of {} heads", attention_kind_name(kind), in.shape.heads),
        p.size("mha_bytes_per_token"));
  add(fmt::format("KV cache of a conversation of {}", in.context), p.size("kv_bytes_per_sequence"));
  if (in.shared_prefix > 0) add("the shared prefix, kept once", p.size("shared_prefix_bytes"));
  if (in.machine.memory_bytes > 0) {
    add("memory", p.size("memory_available"));
    add("conversations that fit", p.whole("conversations"));
  }
  add("at once when matrices turn compute-bound",
      {fmt::format("{:.1f}", p.d.value("critical_batch")), "critical_batch"});
  return t;
}

PlanTable format_table(const PlanReport& report) {
  const Printer p{report.derivation};
  const PlanInput& in = report.request.input;
  PlanTable t{.title = "By format",
              .note = "The first of each kind is what this plan uses.",
              .columns = {{"weights", false},
                          {"bits", true},
                          {"bytes", true},
                          {"KV cache", false},
                          {"per token", true},
                          {"per conversation", true}}};
  const auto weights = plan_weight_formats(in);
  const auto caches = plan_kv_formats(in);
  for (size_t i = 0; i < std::max(weights.size(), caches.size()); ++i) {
    Row row(t.columns.size());
    if (i < weights.size()) {
      row[0] = {weights[i].name};
      row[1] = {fmt::format("{:.3g}", weights[i].bits)};
      row[2] = p.size(i == 0 ? "parameter_bytes" : "weights_as_" + id_part(weights[i].name));
    }
    if (i < caches.size()) {
      const std::string id = "kv_as_" + id_part(caches[i].name);
      row[3] = {caches[i].name};
      row[4] = p.size(id + "_token");
      row[5] = p.size(id + "_conversation");
    }
    t.rows.push_back(std::move(row));
  }
  return t;
}

std::string met_text(const PlanReport& report, const PlanPoint& point) {
  const PlanGoals& goals = report.request.goals;
  if (point.bound == PlanBound::kMemorySize) return "does not fit";
  if (!goals.tpot_seconds) return "";
  return point.seconds <= *goals.tpot_seconds ? "yes" : "no";
}

// What the largest part of a predicted step is, for people.
std::string_view mostly_text(StepPart part) {
  switch (part) {
    case StepPart::kStream:
      return "reading weights";
    case StepPart::kCompute:
      return "multiplying weights";
    case StepPart::kAttention:
      return "attention";
    case StepPart::kRest:
      return "the rest";
  }
  return "";
}

std::string first_token_text(const PlanReport& report) {
  const Printer p{report.derivation};
  const std::string_view bound = p.d.value("prefill_read_seconds") >= p.d.value("prefill_compute_seconds")
                                     ? "memory bandwidth"
                                     : "compute";
  const uint64_t prompt = report.request.input.prompt;
  if (!report.request.input.predictor)
    return fmt::format("First token of a prompt of {}: {} at least, bound by {}.", prompt,
                       duration_text(p.d.value("ttft")), bound);
  return fmt::format(
      "First token of a prompt of {}: {} predicted; {} at least, bound by {}; {:.0f} % reached.", prompt,
      duration_text(p.d.value("predicted_ttft")), duration_text(p.d.value("ttft")), bound,
      100 * p.d.value("ttft_reached"));
}

// The floors alone, or predictions and, beside them, the floors.
PlanTable speed_table(const PlanReport& report) {
  const Printer p{report.derivation};
  const PlanInput& in = report.request.input;
  const bool predicted = in.predictor != nullptr;
  PlanTable t{.title = "Speed, at the limits of the machine"};
  const bool judged = report.request.goals.tpot_seconds.has_value();
  t.columns = {{"at once", true}, {"per token", true}, {"tokens/s", true}, {"each", true}};
  t.columns.push_back({predicted ? "mostly" : "bound by", false});
  if (judged) t.columns.push_back({"in goal", false});
  if (predicted) {
    t.title = "Speed, predicted from the kernels' rates, and at the limits of the machine";
    t.columns.insert(t.columns.end(),
                     {{"floor", true}, {"at most", true}, {"reached", true}, {"floor bound by", false}});
  }
  t.columns.push_back({"memory", true});
  t.note = first_token_text(report) + " \"each\": tokens/s of one conversation.";
  if (predicted)
    t.note += " \"floor\" and \"at most\": time per token and tokens/s at the limits of the machine.";
  for (const uint64_t batch : report.batches) {
    const PlanPoint point = plan_point(in, batch);
    const std::string floor = batch_id(batch, "tpot"), rate = batch_id(batch, "throughput");
    const std::string best = best_id(p.d, floor);
    const double each = 1 / p.d.value(best);
    const PlanCell bound{std::string(plan_bound_name(point.bound))};
    Row row = {{std::to_string(batch)},
               p.duration(best),
               p.rate(best_id(p.d, rate)),
               {fmt::format("{:.{}f}", each, Printer::digits(each)), best},
               predicted ? PlanCell{std::string(mostly_text(*point.mostly))} : bound};
    if (judged) row.push_back({met_text(report, point)});
    if (predicted)
      row.insert(row.end(), {p.duration(floor), p.rate(rate), p.percent(reached_id(floor)), bound});
    row.push_back(p.size(batch_id(batch, "memory")));
    t.rows.push_back(std::move(row));
  }
  return t;
}

PlanTable context_table(const PlanReport& report) {
  const Printer p{report.derivation};
  const PlanInput& in = report.request.input;
  const uint64_t batch = report.outcome.batch;
  PlanTable t{
      .title = "By context",
      .note = fmt::format("{} at once, each that long; the first token of a prompt of that length on an "
                          "idle machine.",
                          batch),
      .columns = {{"context", true}, {"first token", true}, {"per token", true}, {"tokens/s", true}}};
  if (in.predictor) t.columns.insert(t.columns.end(), {{"first, floor", true}, {"token, floor", true}});
  for (const uint64_t context : plan_contexts(in)) {
    const std::string ttft = context_id(context, "ttft"), tpot = context_id(context, "tpot");
    Row row = {{std::to_string(context)},
               p.best_duration(ttft),
               p.best_duration(tpot),
               p.rate(best_id(p.d, context_id(context, "throughput")))};
    if (in.predictor) row.insert(row.end(), {p.duration(ttft), p.duration(tpot)});
    t.rows.push_back(std::move(row));
  }
  return t;
}

PlanTable goal_table(const PlanReport& report) {
  const Printer p{report.derivation};
  const PlanGoals& goals = report.request.goals;
  const PlanOutcome& o = report.outcome;
  PlanTable t{.title = "What was asked",
              .columns = {{"goal", false},
                          {"asked", true},
                          {o.predicted ? "predicted" : "at best", true},
                          {"met", false},
                          {"limit", false}}};
  if (goals.users) {
    const PlanCell fits = o.conversations ? p.whole("conversations") : PlanCell{"not known"};
    const char* met = !o.conversations ? "not known" : o.users_met ? "yes" : "no";
    t.rows.push_back(
        {{"conversations that fit"},
         {std::to_string(*goals.users)},
         fits,
         {met},
         {fmt::format("last first token, all at once: {}", duration_text(p.d.value("users_ttft"))),
          "users_ttft"}});
  }
  if (goals.ttft_seconds) {
    const auto longest = static_cast<uint64_t>(p.d.value("longest_prompt"));
    t.rows.push_back(
        {{"time to first token"},
         {duration_text(*goals.ttft_seconds)},
         p.best_duration("ttft"),
         {o.ttft_met ? "yes" : "no"},
         {longest > 0 ? fmt::format("prompts of up to {} tokens", longest) : "no prompt is short enough",
          "longest_prompt"}});
  }
  if (goals.tpot_seconds) {
    const auto most = static_cast<uint64_t>(p.d.value("batch_limit"));
    t.rows.push_back(
        {{fmt::format("time per output token of {}", goals.batch())},
         {duration_text(*goals.tpot_seconds)},
         p.best_duration(batch_id(goals.batch(), "tpot")),
         {o.tpot_met ? "yes" : "no"},
         {most > 0 ? fmt::format("up to {} at once", most) : "not even one alone", "batch_limit"}});
  }
  return t;
}

}  // namespace

std::vector<PlanTable> plan_tables(const PlanReport& report) {
  std::vector<PlanTable> tables = {model_table(report), format_table(report), speed_table(report),
                                   context_table(report)};
  if (report.request.goals.any()) tables.push_back(goal_table(report));
  tables.push_back(plan_speculation_table(report));
  tables.push_back(plan_advice_table(report));
  return tables;
}

std::vector<std::string> plan_head(const PlanReport& report) {
  const PlanInput& in = report.request.input;
  const ModelShape& s = in.shape;
  const MachineSpec& m = in.machine;
  std::vector<std::string> lines;
  const std::string heads = s.mla ? fmt::format("{} heads over a latent of {}", s.heads, s.mla->kv_lora_rank)
                                  : fmt::format("{} of {} heads", s.kv_heads, s.heads);
  lines.push_back(fmt::format("{}: {}, {} layers of width {}, {} with {}, weights as {}", s.name,
                              s.architecture, s.layers, s.hidden, attention_kind_name(s.attention()), heads,
                              in.weight_format().name));
  lines.push_back(fmt::format(
      "on {}: {} to read, {:.3g} TFLOP/s for the matrices ({} bits), {:.3g} for attention ({} bits){}",
      m.name, fmt::format("{:.4g} GB/s", m.bandwidth * m.reachable_bandwidth / 1e9),
      reachable_flops(m, matrix_bits(in)) / 1e12, matrix_bits(in),
      reachable_flops(m, attention_bits(in)) / 1e12, attention_bits(in),
      m.memory_bytes > 0 ? fmt::format(", {} of memory", size_text(m.memory_bytes)) : ""));
  lines.push_back(fmt::format("  {} ({})", m.note, m.source));
  lines.push_back(
      fmt::format("context {} of {}, prompt {}{}", in.context,
                  s.max_context > 0 ? std::to_string(s.max_context) : "an unknown most", in.prompt,
                  in.shared_prefix > 0 ? fmt::format(", its first {} shared", in.shared_prefix) : ""));
  lines.push_back(
      in.predictor
          ? "times: predicted from what the kernels reach there, as the engine does; beside them "
            "the floors of the machine"
          : fmt::format("times: floors of the machine, not predictions: {}", report.request.no_prediction));
  return lines;
}

std::vector<std::string> plan_notes(const PlanReport& report) {
  const PlanInput& in = report.request.input;
  std::vector<std::string> notes;
  if (in.predictor)
    notes.push_back(
        "Predicted times are those of forward passes of the kernels on an idle machine, prompts in pieces as "
        "kvasir serve takes them; `kvasir plan MODEL --check` measures how far off they are.");
  else
    notes.push_back(
        "Times are floors, the least that the machine's rates allow; kernels reach a part of that. A GGUF "
        "file "
        "on a machine that `kvasir bench machine` measured is predicted instead.");
  const auto beaten = [&](uint64_t batch) {
    return report.derivation.value(reached_id(batch_id(batch, "tpot"))) > 1;
  };
  if (in.predictor && std::any_of(report.batches.begin(), report.batches.end(), beaten))
    notes.push_back(
        "Where more than 100 % is reached, the kernels were measured to read faster than the plain reading "
        "that "
        "the floor is made from.");
  if (in.machine.profile)
    notes.push_back(
        "This machine's rates were measured, those of others are their data sheets', which are higher.");
  if (report.outcome.conversations && *report.outcome.conversations == 0)
    notes.push_back("Not even one conversation fits beside the weights: times are as if it did.");
  notes.push_back("`--explain` lists every number's id, `--explain ID` says how it came about.");
  return notes;
}

}  // namespace kvasir
