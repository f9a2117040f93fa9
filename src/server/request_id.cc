#include "server/request_id.h"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>

#include "base/check.h"

namespace kvasir {

uint64_t random_bits() {
  uint64_t bits = 0;
  ssize_t got = -1;
  do {
    got = ::getrandom(&bits, sizeof(bits), 0);
  } while (got < 0 && errno == EINTR);
  CHECK(got == sizeof(bits));
  return bits;
}

std::string random_id(std::string_view prefix) {
  constexpr std::string_view kAlphabet = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  std::string id(prefix);
  for (int word = 0; word < 3; ++word) {
    uint64_t bits = random_bits();
    for (int i = 0; i < 8; ++i, bits >>= 6) id += kAlphabet[(bits & 63) % kAlphabet.size()];
  }
  return id;
}

std::string request_id_or_fresh(std::string_view from_client) {
  const bool sane =
      !from_client.empty() && from_client.size() <= 128 &&
      std::all_of(from_client.begin(), from_client.end(), [](char c) { return c > ' ' && c <= '~'; });
  return sane ? std::string(from_client) : random_id("req_");
}

}  // namespace kvasir
