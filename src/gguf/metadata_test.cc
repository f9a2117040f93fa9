#include "gguf/metadata.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace kvasir {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

GgufMetadata sample() {
  GgufMetadata m;
  EXPECT_TRUE(m.insert("int", int64_t{7}));
  EXPECT_TRUE(m.insert("float", 0.5));
  EXPECT_TRUE(m.insert("nan", std::nan("")));
  EXPECT_TRUE(m.insert("infinity", std::numeric_limits<double>::infinity()));
  EXPECT_TRUE(m.insert("bool", true));
  EXPECT_TRUE(m.insert("string", std::string("text")));
  EXPECT_TRUE(m.insert("ints", std::vector<int64_t>{1, 2}));
  EXPECT_TRUE(m.insert("floats", std::vector<double>{0.25}));
  EXPECT_TRUE(m.insert("bools", std::vector<bool>{false, true}));
  EXPECT_TRUE(m.insert("strings", std::vector<std::string>{"a", "b"}));
  return m;
}

TEST(GgufMetadata, HoldsEachKind) {
  const GgufMetadata m = sample();
  EXPECT_TRUE(m.contains("int"));
  EXPECT_FALSE(m.contains("in"));
  EXPECT_EQ(m.require_int("int", 7, 7).value(), 7);
  EXPECT_EQ(m.require_float("float").value(), 0.5);
  EXPECT_EQ(m.require_string("string").value(), "text");
  EXPECT_THAT(*m.require_strings("strings").value(), ElementsAre("a", "b"));
  EXPECT_EQ(m.get_int("int", 0, 9).value(), 7);
  EXPECT_EQ(m.get_float("float").value(), 0.5);
  EXPECT_EQ(m.get_bool("bool").value(), true);
  EXPECT_EQ(m.get_string("string").value(), "text");
  EXPECT_THAT(*m.get_strings("strings").value(), ElementsAre("a", "b"));
  EXPECT_THAT(*m.get_ints("ints").value(), ElementsAre(1, 2));
  EXPECT_THAT(*m.get_bools("bools").value(), ElementsAre(false, true));
  EXPECT_THAT(*m.get_floats("floats").value(), ElementsAre(0.25));
  EXPECT_THAT(*m.get_floats("ints").value(), ElementsAre(1.0, 2.0));
}

TEST(GgufMetadata, AnOptionalKeyMayBeAbsent) {
  const GgufMetadata m;
  EXPECT_EQ(m.get_int("k", 0, 1).value(), std::nullopt);
  EXPECT_EQ(m.get_float("k").value(), std::nullopt);
  EXPECT_EQ(m.get_bool("k").value(), std::nullopt);
  EXPECT_EQ(m.get_string("k").value(), std::nullopt);
  EXPECT_EQ(m.get_floats("k").value(), std::nullopt);
  EXPECT_EQ(m.get_strings("k").value(), nullptr);
  EXPECT_EQ(m.get_ints("k").value(), nullptr);
  EXPECT_EQ(m.get_bools("k").value(), nullptr);
}

TEST(GgufMetadata, ARequiredKeyMayNot) {
  const GgufMetadata m;
  for (const Status& status : {m.require_int("k", 0, 1).status(), m.require_float("k").status(),
                               m.require_string("k").status(), m.require_strings("k").status()}) {
    EXPECT_EQ(status.code(), ErrorCode::kCorrupt);
    EXPECT_EQ(status.message(), "metadata key 'k' is missing");
  }
}

TEST(GgufMetadata, SaysWhatItFoundInstead) {
  const GgufMetadata m = sample();
  EXPECT_EQ(m.get_int("string", 0, 9).message(), "metadata key 'string' is a string, not an integer");
  EXPECT_EQ(m.get_int("bool", 0, 9).message(), "metadata key 'bool' is a boolean, not an integer");
  EXPECT_EQ(m.get_float("int").message(), "metadata key 'int' is an integer, not a floating-point number");
  EXPECT_EQ(m.get_bool("float").message(), "metadata key 'float' is a floating-point number, not a boolean");
  EXPECT_EQ(m.get_string("ints").message(), "metadata key 'ints' is an array of integers, not a string");
  EXPECT_EQ(m.get_strings("bools").message(),
            "metadata key 'bools' is an array of booleans, not an array of strings");
  EXPECT_EQ(m.get_ints("floats").message(),
            "metadata key 'floats' is an array of floating-point numbers, not an array of integers");
  EXPECT_FALSE(m.get_floats("strings").ok());
  EXPECT_FALSE(m.get_bools("ints").ok());
  EXPECT_FALSE(m.require_string("int").ok());
  EXPECT_FALSE(m.require_strings("string").ok());
}

TEST(GgufMetadata, ChecksRanges) {
  const GgufMetadata m = sample();
  EXPECT_EQ(m.require_int("int", 8, 64).message(), "metadata key 'int' is 7, which is outside 8 to 64");
  EXPECT_FALSE(m.get_int("int", 0, 6).ok());
  EXPECT_THAT(m.require_float("nan").message(), HasSubstr("'nan' is nan, which is not finite"));
  EXPECT_THAT(m.get_float("infinity").message(), HasSubstr("'infinity' is inf"));
}

TEST(GgufMetadata, KeepsTheFirstOfTwo) {
  GgufMetadata m = sample();
  EXPECT_FALSE(m.insert("int", 1.5));
  EXPECT_EQ(m.require_int("int", 0, 9).value(), 7);
}

}  // namespace
}  // namespace kvasir
