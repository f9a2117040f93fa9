// What --speculate and a request's `speculate` say, and what is wrong with them.

#include "engine/drafters.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace kvasir {
namespace {

std::string list_of(const std::string& text) {
  const auto specs = parse_drafters(text);
  if (!specs.ok()) return specs.message();
  std::string list;
  for (const DrafterSpec& s : *specs) list += (list.empty() ? "" : " ") + s.name + ":" + s.argument;
  return list;
}

TEST(DrafterList, NamesDraftersInOrder) {
  EXPECT_EQ(list_of("off"), "");
  EXPECT_EQ(list_of("auto"), "ngram: suffix:");
  EXPECT_EQ(list_of("suffix,draft=a.gguf:100,layers=0-3+7"), "suffix: draft:a.gguf:100 layers:0-3+7");
  EXPECT_EQ(list_of("medusa=a=b"), "medusa:a=b");
}

TEST(DrafterList, WhoIsNamedAgainIsThereOnce) {
  EXPECT_EQ(list_of("ngram,auto,suffix"), "ngram: suffix:");
  EXPECT_EQ(list_of("draft=a.gguf,draft=a.gguf"), "draft:a.gguf");
}

TEST(DrafterList, TwoOfAKindAreRefused) {
  EXPECT_EQ(list_of("draft=a.gguf,ngram,draft=b.gguf"),
            "draft=a.gguf and draft=b.gguf: there can be one drafter of a kind");
  EXPECT_EQ(list_of("outputs=1,outputs=2"), "outputs=1 and outputs=2: there can be one drafter of a kind");
}

TEST(DrafterList, SaysWhatIsWrong) {
  EXPECT_EQ(list_of("ngram,off"), "'off' stands alone, not as in 'ngram,off'");
  EXPECT_EQ(list_of("off,auto"), "'off' stands alone, not as in 'off,auto'");
  EXPECT_EQ(list_of("ngram=3"), "the drafter 'ngram' takes no value");
  EXPECT_EQ(list_of("layers"), "the drafter 'layers' needs a value: layers=N");
  EXPECT_EQ(list_of("eagle="), "the drafter 'eagle' needs a value: eagle=FILE");
  for (const std::string unknown : {"magic", "Auto", " ngram", ""}) {
    const std::string refused = list_of("suffix," + unknown);
    EXPECT_EQ(refused.rfind("'" + unknown + "' is no drafter; there are off, auto, ngram,", 0), 0u)
        << refused;
  }
}

std::string mask_of(const std::string& wish) {
  const auto mask = drafter_mask({"ngram", "draft"}, wish);
  return mask.ok() ? std::to_string(*mask) : mask.message();
}

TEST(DrafterWish, ChoosesAmongTheServers) {
  EXPECT_EQ(mask_of("auto"), std::to_string(~0u));
  EXPECT_EQ(mask_of("auto,ngram"), std::to_string(~0u));
  EXPECT_EQ(mask_of("off"), "0");
  EXPECT_EQ(mask_of("draft"), "2");
  EXPECT_EQ(mask_of("draft,ngram,draft"), "3");
}

TEST(DrafterWish, SaysWhatIsWrong) {
  EXPECT_EQ(mask_of("suffix"), "'suffix' is no drafter of this server; there are auto, off, ngram, draft");
  EXPECT_EQ(mask_of("ngram,"), "'' is no drafter of this server; there are auto, off, ngram, draft");
  EXPECT_EQ(mask_of("draft=x"), "'draft=x' is no drafter of this server; there are auto, off, ngram, draft");
  EXPECT_EQ(mask_of("auto,off"), "'off' stands alone, not as in 'auto,off'");
  EXPECT_EQ(mask_of("ngram,off"), "'off' stands alone, not as in 'ngram,off'");
  EXPECT_EQ(drafter_mask({}, "ngram").message(), "'ngram' is no drafter of this server; there are auto, off");
}

}  // namespace
}  // namespace kvasir
