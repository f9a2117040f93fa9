#include "apps/kvasir/cli.h"

#include <fmt/format.h>

#include <algorithm>

#include "apps/kvasir/output.h"

namespace kvasir {
namespace {

// Edit distance in which swapping two neighbours counts once (optimal string alignment).
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, change});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

int fail(int code, std::string_view message, std::string_view hint) {
  tell("kvasir: {}\n", message);
  if (!hint.empty()) tell("{}\n", hint);
  return code;
}

void warn(std::string_view message) {
  tell("kvasir: warning: {}\n", message);
}

int fail_to_open(const Status& status, bool described) {
  switch (status.code()) {
    case ErrorCode::kResourceExhausted:
      return fail(kExitMemory, status.message(),
                  "`kvasir inspect MODEL` says what weights and KV cache need; a smaller --kv-memory or "
                  "--max-model-len makes the cache smaller.");
    case ErrorCode::kNotFound:
      return fail(kExitModel, status.message(),
                  "Is the path right, and are all parts of a split model there? `python3 "
                  "tools/fetch_models.py` fetches small models to try.");
    case ErrorCode::kInvalidArgument:
      return fail(kExitUsage, status.message());
    case ErrorCode::kInternal:
    case ErrorCode::kUnavailable:
      return fail(kExitFailure, status.message());
    default:
      return fail(
          kExitModel, status.message(),
          described && status.field().empty() ? "`kvasir inspect MODEL` shows what a file holds." : "");
  }
}

Status require_model(const std::string& model, std::string_view verb) {
  if (!model.empty()) return {};
  return invalid_argument(
      fmt::format("which model? `kvasir {} MODEL`, where MODEL is the path of a GGUF file", verb));
}

std::string nearest_word(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  size_t least = std::max<size_t>(word.size() / 3, 1) + 1;
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(word, candidate);
    if (distance < least) {
      least = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace kvasir
