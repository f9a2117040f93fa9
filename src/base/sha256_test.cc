#include "base/sha256.h"

#include <gtest/gtest.h>

namespace kvasir {
namespace {

std::string hex_of(std::string_view text) {
  Sha256 hash;
  hash.update(text);
  return hex_text(hash.finish());
}

// The examples of FIPS 180-4 (csrc.nist.gov, SHA256.pdf) and lengths around a block's end, these against
// Python's hashlib.
TEST(Sha256, KnownDigests) {
  EXPECT_EQ(hex_of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex_of(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  EXPECT_EQ(hex_of(std::string(55, 'x')), "d5e285683cd4efc02d021a5c62014694958901005d6f71e89e0989fac77e4072");
  EXPECT_EQ(hex_of(std::string(56, 'x')), "04c26261370ee7541549d16dee320c723e3fd14671e66a099afe0a377c16888e");
  EXPECT_EQ(hex_of(std::string(64, 'x')), "7ce100971f64e7001e8fe5a51973ecdfe1ced42befe7ee8d5fd6219506b5393c");
}

TEST(Sha256, PiecesGiveTheDigestOfTheWhole) {
  const std::string text(300, 'q');
  for (const size_t piece : {1u, 7u, 63u, 64u, 65u, 299u}) {
    Sha256 hash;
    for (size_t at = 0; at < text.size(); at += piece) hash.update(std::string_view(text).substr(at, piece));
    EXPECT_EQ(hex_text(hash.finish()), hex_of(text)) << piece;
  }
}

TEST(Sha256, DomainsNeverMeet) {
  EXPECT_EQ(domain_digest("a", "bc"), domain_digest("a", "bc"));
  EXPECT_NE(domain_digest("a", "bc"), domain_digest("ab", "c"));
  EXPECT_NE(domain_digest("", "abc"), domain_digest("abc", ""));
  EXPECT_NE(domain_digest("a", "b"), domain_digest("b", "b"));
}

}  // namespace
}  // namespace kvasir
