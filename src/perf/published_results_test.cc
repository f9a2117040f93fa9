#include "perf/published_results.h"

#include <gtest/gtest.h>

#include <cmath>

namespace kvasir {
namespace {

TEST(PublishedResults, AreReproducedOrTheGapIsExplained) {
  size_t within = 0;
  for (const PublishedResult& r : published_results()) {
    EXPECT_TRUE(std::abs(r.error()) <= 0.2 || !r.gap.empty())
        << r.what << ": " << r.predicted << " against " << r.published;
    EXPECT_NE(r.source.find("https://"), std::string::npos) << r.what;
    if (std::abs(r.error()) <= 0.05) ++within;
  }
  EXPECT_GE(within, 15u);
}

TEST(PublishedResults, BoundsAreNeverBeaten) {
  for (const PublishedResult& r : published_results()) {
    if (r.unit != "tokens/s") continue;
    EXPECT_GT(r.predicted, 0.98 * r.published) << r.what;
  }
}

}  // namespace
}  // namespace kvasir
