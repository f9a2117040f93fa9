#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "perf/kv_formulas.h"
#include "perf/parameter_formulas.h"
#include "perf/plan_derivation.h"
#include "perf/plan_parts.h"
#include "perf/step_cost.h"

namespace kvasir {

std::string kind_id(std::string_view kind) {
  if (kind == "attention projections") return "projections";
  if (kind == "feed-forward") return "ffn";
  if (kind == "output head") return "head";
  return std::string(kind);
}

namespace plan_parts {
namespace {

using Inputs = std::vector<QuantityInput>;

QuantityInput weight_bits(const Parts& p) {
  const WeightFormat& format = p.input.weight_format();
  return given("w", fmt::format("bits per weight as {}", format.name), format.bits);
}

QuantityInput sequences(const Step& step) {
  return given("B", "conversations", static_cast<double>(step.shape.sequences));
}

// Dimensions of MLA by their symbols.
Inputs mla_inputs(const ModelShape& s) {
  const ModelShape::Mla& m = *s.mla;
  return {given("N", "query heads", s.heads),
          given("L", "layers", s.layers),
          given("C", "rank of the latent", m.kv_lora_rank),
          given("R", "rotated part of a key", m.qk_rope_head_dim),
          given("P", "other part of a key", m.qk_nope_head_dim),
          given("U", "value size", m.v_head_dim)};
}

void add_projections(const Parts& p) {
  const ModelShape& s = p.input.shape;
  Quantity q{.id = "projections_weights",
             .title = "weights of the attention projections",
             .value = static_cast<double>(count_parameters(s).attention),
             .formula = "(2 * D * N * H + 2 * D * K * H) * L",
             .inputs = {given("D", "width", s.hidden), given("N", "query heads", s.heads),
                        given("H", "head size", s.head_dim), given("K", "KV heads", s.kv_heads),
                        given("L", "layers", s.layers)},
             .source = kBook};
  if (s.mla) {
    const ModelShape::Mla& m = *s.mla;
    const bool compressed = m.q_lora_rank > 0;
    // What attention multiplies itself (perf/work_formulas.h) is counted there.
    q.title += ", without the decompression of keys and values";
    q.value -= static_cast<double>(s.layers) * m.kv_lora_rank * s.heads *
               (static_cast<double>(m.qk_nope_head_dim) + m.v_head_dim);
    q.formula = fmt::format("({} + D * (C + R) + N * U * D) * L",
                            compressed ? "D * Q + Q * N * (P + R)" : "D * N * (P + R)");
    q.inputs = mla_inputs(s);
    q.inputs.push_back(given("D", "width", s.hidden));
    if (compressed) q.inputs.push_back(given("Q", "rank of the queries", m.q_lora_rank));
    q.source = kDeepSeek;
  }
  p.out.add(std::move(q));
}

Inputs expert_inputs(const ModelShape& s) {
  const ModelShape::Moe& moe = *s.moe;
  return {given("M", "layers with experts", s.moe_layers()),
          given("D", "width", s.hidden),
          given("m", "matrices of a feed-forward part", s.ffn_matrices),
          given("X", "width of an expert", moe.expert_ffn_dim),
          given("E", "experts of a layer", moe.experts),
          given("A", "experts per token", moe.experts_used),
          given("g", "gates of the shared experts", moe.shared_gate ? 1 : 0),
          given("Y", "width of the shared experts", moe.shared_ffn_dim)};
}

// What a kind's quantities say about its work.
struct Formulas {
  std::string flops;
  std::string bytes;
  Inputs inputs;
  const char* source = kKaplan;
};

Formulas attention_formulas(const Parts& p, const Step& step) {
  const ModelShape& s = p.input.shape;
  Formulas f{.flops = "4 * N * H * v", .bytes = "b * n", .inputs = {}, .source = kBook};
  if (!s.mla) {
    f.inputs = {given("N", "query heads", s.heads), given("H", "head size", s.head_dim)};
  } else if (absorbs(*s.mla, step.shape.rows)) {
    f = {"2 * N * (2 * C + R) * v + r * L * 2 * N * C * (P + U)", "b * n", mla_inputs(s), kDeepSeek};
    f.inputs.push_back(given("r", "rows of a sequence", static_cast<double>(step.shape.rows)));
  } else {
    f = {"2 * N * (P + R + U) * v + 2 * C * N * (P + U) * n", "b * n", mla_inputs(s), kDeepSeek};
  }
  if (step.decode) {  // a row sees what is kept: n is v
    f.flops = fmt::format("B * ({})", f.flops);
    f.bytes = "B * b * v";
    f.inputs.push_back(sequences(step));
    f.inputs.push_back(of("v", "kv_positions"));
  } else {
    f.inputs.push_back(of("v", "prefill_pairs"));
    f.inputs.push_back(of("n", "prefill_seen"));
  }
  f.inputs.push_back(of("b", "kv_bytes_per_token_layer"));
  if (s.mla) {
    f.bytes += " + L * C * N * (P + U) * w / 8";
    f.inputs.push_back(weight_bits(p));
  }
  return f;
}

Formulas formulas_of(const Parts& p, const Step& step, const std::string& kind) {
  if (kind == "attention") return attention_formulas(p, step);
  const double rows = kind == "head" ? static_cast<double>(step.shape.sequences * step.shape.logit_rows)
                                     : step.shape.tokens();
  const QuantityInput tokens = given("t", kind == "head" ? "rows that want logits" : "tokens", rows);
  if (kind != "experts")
    return {"2 * t * n", "n * w / 8", {tokens, of("n", kind + "_weights"), weight_bits(p)}};
  Formulas f{.flops = "2 * t * M * D * (A * m * X + E + g + m * Y)",
             .bytes = "M * D * (m * X * E * (1 - (1 - A / E)^t) + E + g + m * Y) * w / 8",
             .inputs = expert_inputs(p.input.shape)};
  f.inputs.push_back(tokens);
  f.inputs.push_back(weight_bits(p));
  return f;
}

// Of the inputs those that a formula names; symbols are letters and digits.
Inputs used(const std::string& formula, const Inputs& inputs) {
  Inputs kept;
  for (const QuantityInput& input : inputs) {
    const auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
    for (size_t at = formula.find(input.symbol); at != std::string::npos;
         at = formula.find(input.symbol, at + 1)) {
      const size_t end = at + input.symbol.size();
      if ((at > 0 && is_word(formula[at - 1])) || (end < formula.size() && is_word(formula[end]))) continue;
      kept.push_back(input);
      break;
    }
  }
  return kept;
}

void add_kind(const Parts& p, const Step& step, const KindTime& kind) {
  const std::string id = kind_id(kind.name);
  const Formulas f = formulas_of(p, step, id);
  p.out.add({.id = step.prefix + id + "_flops",
             .title = fmt::format("FLOPs of {} in {}", kind.name, step.name),
             .value = kind.work.flops,
             .formula = f.flops,
             .inputs = used(f.flops, f.inputs),
             .source = f.source});
  p.out.add({.id = step.prefix + id + "_bytes",
             .title = fmt::format("bytes read for {} in {}", kind.name, step.name),
             .value = kind.work.bytes(),
             .unit = "bytes",
             .formula = f.bytes,
             .inputs = used(f.bytes, f.inputs),
             .source = kBook});
}

const char* rate_of(const std::string& kind) {
  return kind == "attention" ? "attention_rate" : "matrix_rate";
}

void add_kind_seconds(const Parts& p, const Step& step, const KindTime& kind) {
  const std::string id = step.prefix + kind_id(kind.name);
  p.out.add({.id = id + "_seconds",
             .title = fmt::format("time of {} in {}", kind.name, step.name),
             .value = kind.seconds(),
             .unit = "s",
             .formula = "max(F / f, b / w)",
             .inputs = {of("F", id + "_flops"), of("f", rate_of(kind_id(kind.name))), of("b", id + "_bytes"),
                        of("w", step.prefix + "bandwidth")},
             .source = kRoofline});
}

// "a + b + c" of one quantity per kind.
Quantity sum_of(const Step& step, const StepTime& time, const char* suffix) {
  Quantity q;
  char symbol = 'a';
  for (const KindTime& kind : time.kinds) {
    q.formula += q.formula.empty() ? "" : " + ";
    q.formula += symbol;
    q.inputs.push_back(of(std::string(1, symbol++), step.prefix + kind_id(kind.name) + suffix));
  }
  return q;
}

void add_bandwidth(const Parts& p, const Step& step, const StepTime& time) {
  const MachineSpec& m = p.input.machine;
  double bytes = 0;
  for (const KindTime& kind : time.kinds) bytes += kind.work.bytes();
  Quantity all = sum_of(step, time, "_bytes");
  all.id = step.prefix + "bytes";
  all.title = fmt::format("bytes that {} reads", step.name);
  all.value = bytes;
  all.unit = "bytes";
  all.source = "the sum of the kinds";
  p.out.add(std::move(all));
  p.out.add({.id = step.prefix + "bandwidth",
             .title = fmt::format("memory bandwidth in {}", step.name),
             .value = reachable_bandwidth(m, bytes),
             .unit = "bytes/s",
             .formula = "r * a",
             .inputs = {given("r",
                              fmt::format("{} rate of {} for so many bytes",
                                          m.profile ? "measured read" : "published read", m.name),
                              m.read_rate(static_cast<uint64_t>(bytes)), "bytes/s"),
                        given("a", "part that is reachable", m.reachable_bandwidth)},
             .source = m.source});
}

void add_limits(const Parts& p, const Step& step, const StepTime& time) {
  p.out.add({.id = step.prefix + "read_seconds",
             .title = fmt::format("{} at the limit of memory bandwidth", step.name),
             .value = time.read_seconds(),
             .unit = "s",
             .formula = "b / w",
             .inputs = {of("b", step.prefix + "bytes"), of("w", step.prefix + "bandwidth")},
             .source = kRoofline});
  Quantity compute{.id = step.prefix + "compute_seconds",
                   .title = fmt::format("{} at the limit of computing", step.name),
                   .value = time.compute_seconds(),
                   .unit = "s",
                   .formula = "",
                   .inputs = {of("m", "matrix_rate")},
                   .source = kRoofline};
  char symbol = 'a';
  for (const KindTime& kind : time.kinds) {
    const bool attention = kind_id(kind.name) == "attention";
    compute.formula += compute.formula.empty() ? "" : " + ";
    compute.formula += fmt::format("{} / {}", symbol, attention ? "q" : "m");
    compute.inputs.push_back(of(std::string(1, symbol++), step.prefix + kind_id(kind.name) + "_flops"));
    if (attention) compute.inputs.push_back(of("q", "attention_rate"));
  }
  p.out.add(std::move(compute));
}

}  // namespace

void add_weights(const Parts& p) {
  const ModelShape& s = p.input.shape;
  add_projections(p);
  if (s.dense_layers() > 0)
    p.out.add({.id = "ffn_weights",
               .title = "weights of the dense feed-forward parts",
               .value = static_cast<double>(count_parameters(s).dense_ffn),
               .formula = "m * D * F * l",
               .inputs = {given("m", "matrices of a feed-forward part", s.ffn_matrices),
                          given("D", "width", s.hidden), given("F", "feed-forward width", s.ffn),
                          given("l", "dense layers", s.dense_layers())},
               .source = kBook});
  p.out.add({.id = "head_weights",
             .title = "weights of the output head",
             .value = static_cast<double>(s.vocab) * s.hidden,
             .formula = "V * D",
             .inputs = {given("V", "vocabulary", s.vocab), given("D", "width", s.hidden)},
             .source = kBook});
}

void add_prefill_positions(const Parts& p) {
  const StepShape step = prefill_step(p.input);
  const StepRows rows{static_cast<uint32_t>(step.rows), static_cast<uint32_t>(step.context)};
  Quantity pairs{.id = "prefill_pairs",
                 .title = "pairs of a token and a position it sees, summed over the layers",
                 .formula = "",
                 .inputs = {given("r", "tokens to compute", rows.rows),
                            given("c", "tokens computed before: the shared prefix", rows.context)},
                 .source = "causal attention"};
  Quantity seen = pairs;
  seen.id = "prefill_seen";
  seen.title = "positions that the prompt reads, summed over the layers";
  for (const WindowGroup& group : window_groups(p.input.shape)) {
    const std::string count = group.window == 0 ? "L" : fmt::format("L{}", group.window);
    const QuantityInput layers =
        given(count, group.window == 0 ? "layers that see everything" : "layers with a window", group.layers);
    pairs.value += group.layers * static_cast<double>(visible_pairs(rows, group.window));
    seen.value += group.layers * static_cast<double>(seen_positions(rows, group.window));
    for (Quantity* q : {&pairs, &seen}) {
      q->formula += q->formula.empty() ? "" : " + ";
      q->inputs.push_back(layers);
    }
    if (group.window == 0) {
      pairs.formula += fmt::format("{} * (r * c + r * (r + 1) / 2)", count);
      seen.formula += fmt::format("{} * (c + r)", count);
      continue;
    }
    const std::string window = fmt::format("W{}", group.window), inside = fmt::format("a{}", group.window);
    const double before = group.window > rows.context ? group.window - rows.context : 0;
    pairs.formula +=
        fmt::format("{0} * ({1} * c + {1} * ({1} + 1) / 2 + (r - {1}) * {2})", count, inside, window);
    pairs.inputs.push_back(
        given(inside, "tokens that see all before them", std::min<double>(before, rows.rows)));
    seen.formula += fmt::format("{} * min(c + r, r + {} - 1)", count, window);
    for (Quantity* q : {&pairs, &seen}) q->inputs.push_back(given(window, "window", group.window));
  }
  pairs.inputs = used(pairs.formula, pairs.inputs);
  seen.inputs = used(seen.formula, seen.inputs);
  p.out.add(std::move(pairs));
  p.out.add(std::move(seen));
}

void add_step(const Parts& p, const Step& step, std::string total, std::string title) {
  const StepTime time = step_time(p.input, step.shape);
  for (const KindTime& kind : time.kinds) add_kind(p, step, kind);
  add_bandwidth(p, step, time);
  for (const KindTime& kind : time.kinds) add_kind_seconds(p, step, kind);
  add_limits(p, step, time);
  Quantity sum = sum_of(step, time, "_seconds");
  sum.id = std::move(total);
  sum.title = std::move(title);
  sum.value = time.seconds();
  sum.unit = "s";
  sum.source = kBook;
  p.out.add(std::move(sum));
}

}  // namespace plan_parts
}  // namespace kvasir
