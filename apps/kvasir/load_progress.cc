#include "apps/kvasir/load_progress.h"

#include <unistd.h>

#include <cstdlib>
#include <string_view>
#include <utility>

#include "apps/kvasir/human_size.h"
#include "apps/kvasir/output.h"

namespace kvasir {

bool wants_colour(int descriptor) {
  const char* off = std::getenv("NO_COLOR");
  return ::isatty(descriptor) == 1 && (off == nullptr || *off == '\0');
}

LoadProgress::LoadProgress(std::string name)
    : name_(std::move(name)),
      colour_(wants_colour(STDERR_FILENO)),
      begun_(std::chrono::steady_clock::now()) {}

void LoadProgress::draw(uint64_t done_bytes, uint64_t total_bytes) const {
  constexpr size_t kWidth = 30;
  const double share =
      total_bytes > 0 ? static_cast<double>(done_bytes) / static_cast<double>(total_bytes) : 0.0;
  const auto filled = static_cast<size_t>(share * kWidth);
  const std::string bar = std::string(filled, '#') + std::string(kWidth - filled, '.');
  show_progress(fmt::format("Loading {} {}[{}]{} {:3.0f} %  {} of {}", name_, colour_ ? "\x1b[36m" : "", bar,
                            colour_ ? "\x1b[0m" : "", share * 100, size_text(done_bytes),
                            size_text(total_bytes)));
}

void LoadProgress::update(uint64_t done_bytes, uint64_t total_bytes) {
  total_bytes_ = total_bytes;
  const auto now = std::chrono::steady_clock::now();
  if (now - drawn_ < std::chrono::milliseconds(100)) return;
  drawn_ = now;
  draw(done_bytes, total_bytes);
}

void LoadProgress::finish() {
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun_;
  end_progress();
  tell("Loaded {} ({}) in {:.1f} s\n", name_, size_text(total_bytes_), took.count());
}

}  // namespace kvasir
