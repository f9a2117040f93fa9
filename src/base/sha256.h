#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace kvasir {

using Sha256Digest = std::array<uint8_t, 32>;

// SHA-256 as FIPS 180-4 defines it, fed in pieces.
class Sha256 {
 public:
  void update(std::span<const std::byte> bytes);
  void update(std::string_view text) { update(std::as_bytes(std::span(text.data(), text.size()))); }
  // The digest of all that was fed. Once only.
  Sha256Digest finish();

 private:
  void compress(const uint8_t* block);

  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> buffer_{};
  size_t buffered_ = 0;
  uint64_t total_ = 0;  // bytes
};

// The digest of `text` for one purpose: `domain` names it (at most 255 bytes), and its length comes first, so
// that no text of one domain gives the digest of another's.
Sha256Digest domain_digest(std::string_view domain, std::string_view text);

// Two digits a byte, lower case.
std::string hex_text(std::span<const uint8_t> bytes);

}  // namespace kvasir
