#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace kvasir::jinja {

// A string that knows of each byte whether the template's author wrote it (a literal of the template) or it
// came from elsewhere: a caller's value, a number, punctuation of a filter.
class Text {
 public:
  Text() = default;
  explicit Text(std::string bytes, bool from_template = false)
      : bytes_(std::move(bytes)), first_from_template_(from_template) {}

  const std::string& bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  bool from_template(size_t pos) const;

  void append(std::string_view bytes, bool from_template);
  void append(const Text& other) { append(other, 0, other.size()); }
  void append(const Text& other, size_t pos, size_t count);  // a slice of `other`, which is not *this
  Text slice(size_t pos, size_t count = std::string::npos) const;

  // Calls f(bytes, from_template) for each maximal run of [pos, pos + count).
  template <class F>
  void for_each_run(size_t pos, size_t count, F&& f) const {
    const size_t end = pos + count;
    size_t edge = edges_before(pos);
    while (pos < end) {
      const size_t stop = edge < edges_.size() && edges_[edge] < end ? edges_[edge] : end;
      f(std::string_view(bytes_).substr(pos, stop - pos), first_from_template_ != (edge % 2 == 1));
      pos = stop;
      ++edge;
    }
  }

 private:
  size_t edges_before(size_t pos) const;  // how many edges lie at or before pos
  bool last_from_template() const { return first_from_template_ != (edges_.size() % 2 == 1); }

  std::string bytes_;
  bool first_from_template_ = false;
  std::vector<size_t> edges_;  // ascending places where the mark flips, each inside the text
};

}  // namespace kvasir::jinja
