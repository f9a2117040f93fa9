#include "tokenizer/jinja_text.h"

#include <algorithm>

namespace kvasir::jinja {

size_t Text::edges_before(size_t pos) const {
  return static_cast<size_t>(std::upper_bound(edges_.begin(), edges_.end(), pos) - edges_.begin());
}

bool Text::from_template(size_t pos) const {
  return first_from_template_ != (edges_before(pos) % 2 == 1);
}

void Text::append(std::string_view bytes, bool from_template) {
  if (bytes.empty()) return;
  if (bytes_.empty())
    first_from_template_ = from_template;
  else if (from_template != last_from_template())
    edges_.push_back(bytes_.size());
  bytes_ += bytes;
}

void Text::append(const Text& other, size_t pos, size_t count) {
  other.for_each_run(pos, count, [&](std::string_view run, bool mark) { append(run, mark); });
}

Text Text::slice(size_t pos, size_t count) const {
  Text out;
  pos = std::min(pos, size());
  out.append(*this, pos, std::min(count, size() - pos));
  return out;
}

}  // namespace kvasir::jinja
