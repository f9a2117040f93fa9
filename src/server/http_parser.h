#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "server/http_types.h"

namespace kvasir {

struct HttpLimits {
  size_t target_bytes = 8 << 10;
  size_t head_bytes = 16 << 10;  // request line and headers; trailers too, by themselves
  size_t fields = 64;
  size_t body_bytes = 8 << 20;
};

// Reads one HTTP/1.1 request (RFC 9112) from bytes as they come. Framing that two parsers could read
// differently (Content-Length beside Transfer-Encoding, differing lengths, folded lines, unknown codings) is
// an error. A few empty lines in front are skipped, as section 2.2 asks.
class HttpParser {
 public:
  enum class State : uint8_t { kHead, kHeadDone, kBody, kDone, kError };

  explicit HttpParser(const HttpLimits& limits);
  ~HttpParser();

  // Reads from the front of `data` and returns how many bytes were used; call again with the rest and more.
  // What is left the caller keeps; of an unfinished request it is at most limits.head_bytes. Stops at
  // kHeadDone until read_body().
  size_t feed(std::string_view data);
  State state() const;
  bool begun() const;  // more than empty lines has come
  void read_body();

  // The head from kHeadDone on, the body at kDone.
  HttpRequest& request();
  bool expects_continue() const;
  bool has_body() const;

  // What is wrong, at kError.
  int error_status() const;
  const std::string& error_message() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvasir
