#include "perf/kv_formulas.h"
#include "perf/performance_report.h"
#include "perf/speculation_formulas.h"

namespace kvasir {
namespace {

constexpr const char* kPaging =
    "Kwon et al. 2023, PagedAttention, section 3: https://arxiv.org/abs/2309.06180";
constexpr const char* kLeviathan = "Leviathan, Kalman and Matias 2023: https://arxiv.org/abs/2211.17192";

}  // namespace

void derive_speculation(Derivation& derivation, double acceptance, uint32_t drafts, double draft_cost,
                        double verify_cost) {
  const QuantityInput a = given("a", "chance that a draft is accepted", acceptance);
  const QuantityInput k = given("k", "drafts per step", drafts);
  derivation.add({.id = "tokens_per_step",
                  .title = "tokens per step, on average",
                  .value = expected_tokens_per_step(acceptance, drafts),
                  .unit = "",
                  .formula = acceptance < 1 ? "(1 - a^(k + 1)) / (1 - a)" : "a * k + 1",
                  .inputs = {a, k},
                  .source = kLeviathan});
  derivation.add({.id = "accepted_drafts",
                  .title = "accepted drafts per step, on average",
                  .value = expected_accepted(acceptance, drafts),
                  .unit = "",
                  .formula = "t - 1",
                  .inputs = {of("t", "tokens_per_step")},
                  .source = kLeviathan});
  derivation.add({.id = "speculation_speedup",
                  .title = "times faster than one token per step",
                  .value = speculation_speedup(acceptance, drafts, draft_cost, verify_cost),
                  .unit = "",
                  .formula = "t / (V + k * c)",
                  .inputs = {of("t", "tokens_per_step"),
                             given("V", "cost of a step of k + 1 rows, in steps of one row", verify_cost), k,
                             given("c", "cost of a draft, in steps of one row", draft_cost)},
                  .source = kLeviathan});
}

void derive_paging(Derivation& derivation, uint64_t sequence, uint64_t reserved, uint64_t block) {
  const QuantityInput s = given("S", "positions of a sequence", static_cast<double>(sequence));
  const QuantityInput m = given("M", "positions reserved, contiguous", static_cast<double>(reserved));
  const QuantityInput b = given("b", "positions of a block", static_cast<double>(block));
  derivation.add({.id = "contiguous_waste",
                  .title = "part of contiguous KV memory that holds nothing",
                  .value = contiguous_waste(sequence, reserved),
                  .unit = "",
                  .formula = "max(0, 1 - S / M)",
                  .inputs = {s, m},
                  .source = kPaging});
  derivation.add({.id = "paged_waste",
                  .title = "part of paged KV memory that holds nothing",
                  .value = paged_waste(sequence, block),
                  .unit = "",
                  .formula = "1 - S / (ceil(S / b) * b)",
                  .inputs = {s, b},
                  .source = kPaging});
  derivation.add({.id = "paging_gain",
                  .title = "times as many sequences in paged KV memory",
                  .value = paging_gain(sequence, reserved, block),
                  .unit = "",
                  .formula = "M / (ceil(S / b) * b)",
                  .inputs = {m, s, b},
                  .source = kPaging});
}

}  // namespace kvasir
