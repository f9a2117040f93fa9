#include "perf/derivation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "perf/performance_report.h"

namespace kvasir {
namespace {

using testing::HasSubstr;

// The text of a quantity says what its value is: the formula exactly, the substituted numbers as far as their
// six digits go.
void expect_true(const Quantity& q) {
  const auto exact = evaluate(q.formula, q.inputs);
  ASSERT_TRUE(exact.ok()) << q.id << ": " << exact.message();
  EXPECT_NEAR(*exact, q.value, 1e-12 * std::fabs(q.value)) << q.id;
  const auto shown = evaluate(substituted(q), {});
  ASSERT_TRUE(shown.ok()) << q.id << ": " << shown.message();
  EXPECT_NEAR(*shown, q.value, 1e-4 * std::fabs(q.value)) << q.id << ": " << substituted(q);
  EXPECT_FALSE(q.source.empty()) << q.id;
  EXPECT_FALSE(q.title.empty()) << q.id;
}

TEST(Derivation, TextsOfEveryReportAreTrue) {
  size_t checked = 0;
  for (const std::string& model : known_shape_names()) {
    for (const char* machine : {"H100", "8480+", "M1"}) {
      for (const char* kv : {"f16", "int8"}) {
        const MachineSpec m = *machine_by_name(machine);
        PerformanceOptions o{.batch = 12, .sequence = 5000, .weights = {}, .kv = *parse_kv_format(kv)};
        if (kv[0] == 'i') o.weights = *parse_weight_format("Q4_K_M");
        auto d = derive_performance(*shape_by_name(model), o, &m);
        ASSERT_TRUE(d.ok()) << d.message();
        derive_speculation(*d, 0.7, 4, 0.08, 1.3);
        derive_paging(*d, 700, 4096, 16);
        for (const Quantity& q : d->quantities()) expect_true(q);
        checked += d->quantities().size();
      }
    }
  }
  EXPECT_GT(checked, 1000u);
}

TEST(Derivation, ShowsTheNumbersOfTheFormulas) {
  const MachineSpec h100 = *machine_by_name("H100 SXM");
  const auto d = derive_performance(*shape_by_name("Llama 2 13B"), {.batch = 64}, &h100);
  ASSERT_TRUE(d.ok());
  EXPECT_EQ(d->value("parameters"), 13015449600);
  EXPECT_NEAR(d->value("latency_seconds"), 23.8e-3, 0.05e-3);
  EXPECT_EQ(d->value("largest_batch"), 64);
  EXPECT_EQ(substituted(*d->find("kv_bytes_per_token_layer")), "2 * 40 * 128 * 2");
  const auto text = d->explain("kv_bytes_per_sequence", true);
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(
      *text,
      "KV cache of one sequence = t * n\n"
      "  = 20,480 * 40,960\n"
      "  = 838,860,800 bytes\n"
      "  t  KV cache of a token in one layer        20,480 bytes\n"
      "  n  positions kept, summed over the layers  40,960\n"
      "  source: How to Scale Your Model, \"Inference\": https://jax-ml.github.io/scaling-book/inference\n"
      "  KV cache of a token in one layer = 2 * K * H * e\n"
      "    = 2 * 40 * 128 * 2\n"
      "    = 20,480 bytes\n"
      "    e  bytes per value as f16  2\n"
      "    K  KV heads                40\n"
      "    H  head size               128\n"
      "    source: How to Scale Your Model, \"Inference\": https://jax-ml.github.io/scaling-book/inference\n"
      "  positions kept, summed over the layers = L * S\n"
      "    = 40 * 1,024\n"
      "    = 40,960\n"
      "    S  positions of a sequence     1,024\n"
      "    L  layers that see everything  40\n"
      "    source: How to Scale Your Model, \"Inference\": "
      "https://jax-ml.github.io/scaling-book/inference\n");
  EXPECT_THAT(d->explain("throughputs", false).message(), HasSubstr("did you mean throughput"));
}

TEST(Derivation, NeedsABandwidth) {
  EXPECT_THAT(derive_performance(*shape_by_name("Llama 2 7B"), {}, nullptr).message(),
              HasSubstr("bandwidth"));
}

TEST(Derivation, InputsTakeTheValuesOfQuantities) {
  Derivation d;
  d.add({.id = "a",
         .title = "first",
         .value = 6,
         .unit = "bytes",
         .formula = "2 * x",
         .inputs = {given("x", "x", 3)},
         .source = "s"});
  const Quantity& b = d.add({.id = "b",
                             .title = "second",
                             .value = 7,
                             .unit = "",
                             .formula = "y + 1",
                             .inputs = {of("y", "a")},
                             .source = "s"});
  EXPECT_EQ(b.inputs[0].value, 6);
  EXPECT_EQ(b.inputs[0].title, "first");
  EXPECT_EQ(b.inputs[0].unit, "bytes");
  EXPECT_EQ(substituted(b), "6 + 1");
}

TEST(DerivationDeathTest, RefusesWhatItCannotShow) {
  Derivation d;
  EXPECT_DEATH(
      d.add({.id = "a", .title = "", .value = 0, .unit = "", .formula = "x", .inputs = {}, .source = ""}),
      "");
  EXPECT_DEATH(d.add({.id = "a",
                      .title = "",
                      .value = 0,
                      .unit = "",
                      .formula = "x",
                      .inputs = {of("x", "no")},
                      .source = ""}),
               "");
}

TEST(FormulaText, Numbers) {
  EXPECT_EQ(number_text(0), "0");
  EXPECT_EQ(number_text(999), "999");
  EXPECT_EQ(number_text(-1234567), "-1,234,567");
  EXPECT_EQ(number_text(3.35e12), "3,350,000,000,000");
  EXPECT_EQ(number_text(0.008020), "0.00802");
  EXPECT_EQ(number_text(1234.5678), "1234.57");
  EXPECT_EQ(number_text(12503203456.7), "12,503,203,457");
  EXPECT_EQ(number_text(1.5e300), "1.5e+300");
}

TEST(FormulaText, Evaluates) {
  const std::vector<QuantityInput> xy = {given("x", "", 3), given("y1", "", -2)};
  const auto value = [&](const char* text) { return *evaluate(text, xy); };
  EXPECT_EQ(value("1 + 2 * 3"), 7);
  EXPECT_EQ(value("(1 + 2) * 3 - 8 / 4"), 7);
  EXPECT_EQ(value("2^x^2"), 512);
  EXPECT_EQ(value("-x^2"), -9);
  EXPECT_EQ(value("x * y1"), -6);
  EXPECT_EQ(value("min(1,234, 5,000)"), 1234);
  EXPECT_EQ(value("max(x, y1) + floor(2.5) + ceil(2.5)"), 8);
  EXPECT_EQ(value("1.5e+3 + 2e-1"), 1500.2);
  for (const char* wrong : {"", "1 +", "(1", "1 2", "z", "sin(1)", "floor(1, 2)", "1)", "*"})
    EXPECT_FALSE(evaluate(wrong, xy).ok()) << wrong;
  EXPECT_FALSE(evaluate(std::string(100000, '('), {}).ok());
  EXPECT_FALSE(evaluate(std::string(100000, '-') + "1", {}).ok());
}

}  // namespace
}  // namespace kvasir
