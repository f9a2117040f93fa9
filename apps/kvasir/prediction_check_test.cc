#include "apps/kvasir/prediction_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <boost/json.hpp>

#include <algorithm>

namespace kvasir {
namespace {

using testing::HasSubstr;

std::vector<std::string> names(uint32_t context) {
  std::vector<std::string> out;
  for (const BenchShape& shape : prediction_shapes(context)) out.push_back(shape.name());
  return out;
}

TEST(PredictionCheck, ShapesReachFromOneDecodeToLongContexts) {
  const auto all = names(8192);
  for (const char* name : {"pp128", "pp2048", "tg8@d128", "tg8@b32@d128", "tg8@d4096", "pp256@d3840"})
    EXPECT_NE(std::find(all.begin(), all.end(), name), all.end()) << name;
}

TEST(PredictionCheck, ShapesStayWithinTheContext) {
  for (const BenchShape& s : prediction_shapes(600))
    EXPECT_LE(s.depth + s.prompt + s.generate, 600u) << s.name();
  EXPECT_EQ(names(600).size(), 2u + 6u);
  EXPECT_TRUE(prediction_shapes(100).empty());
}

PredictionCheck one_test() {
  PredictionCheck check;
  check.rows = {{.test = "pp128",
                 .measured = 0.100,
                 .predicted = 0.110,
                 .by_profile = 0.050,
                 .bound = StepPart::kCompute}};
  check.predicted.median = 0.1;
  check.steps = {.count = 3, .median = 0.02, .p90 = 0.06, .bias = -0.01};
  check.passes = 7;
  check.bytes = 93 << 20;
  check.drift = {1.5, 1, 1, 1};
  check.stolen = 0.04;
  return check;
}

TEST(PredictionCheck, TableHasSignedErrors) {
  const std::string table = prediction_md({.model = "m", .machine = "file", .isa = "scalar"}, one_test());
  EXPECT_THAT(table, HasSubstr("m, 1 threads, scalar; machine file\n"));
  EXPECT_THAT(table, HasSubstr("110.000 ms"));
  EXPECT_THAT(table, HasSubstr("+10.0 %"));
  EXPECT_THAT(table, HasSubstr("-50.0 %"));
  EXPECT_THAT(table, HasSubstr("compute"));
  EXPECT_THAT(table, HasSubstr("bias -1.0 %"));
  EXPECT_THAT(table, HasSubstr("timed 7 times between the tests over 93 MiB"));
  EXPECT_THAT(table, HasSubstr("stream 1.50x"));
  EXPECT_THAT(table, HasSubstr("other machines 4 %"));
}

TEST(PredictionCheck, SaysWhenOthersHadTheCpus) {
  PredictionCheck check = one_test();
  EXPECT_THAT(prediction_md({}, check), testing::Not(HasSubstr("Check again")));
  EXPECT_EQ(boost::json::parse(prediction_json({}, check)).at("calibration").at("disturbed"), false);
  check.others = 0.07;  // and 0.04 stolen
  EXPECT_THAT(prediction_md({}, check), HasSubstr("Check again when the CPUs are idle."));
  EXPECT_EQ(boost::json::parse(prediction_json({}, check)).at("calibration").at("disturbed"), true);
}

TEST(PredictionCheck, JsonHasEveryNumber) {
  const boost::json::value json = boost::json::parse(prediction_json({.model = "m"}, one_test()));
  EXPECT_EQ(json.at("model"), "m");
  const boost::json::value& test = json.at("tests").at(0);
  EXPECT_EQ(test.at("test"), "pp128");
  EXPECT_EQ(test.at("measured_seconds"), 0.1);
  EXPECT_EQ(test.at("predicted_seconds"), 0.11);
  EXPECT_NEAR(test.at("error").as_double(), 0.1, 1e-12);
  EXPECT_EQ(test.at("profile_error"), -0.5);
  EXPECT_EQ(json.at("median_error"), 0.1);
  EXPECT_EQ(json.at("steps").at("bias"), -0.01);
  EXPECT_EQ(json.at("calibration").at("time_over_profile").at("stream"), 1.5);
}

}  // namespace
}  // namespace kvasir
