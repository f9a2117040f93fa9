#include "apps/kvasir/model_facts.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "apps/kvasir/serve_process.h"
#include "apps/kvasir/test_file.h"
#include "models/tiny_model.h"

namespace kvasir {
namespace {

TEST(ModelFacts, CountTheVocabulary) {
  const TestFile plain(TinyModel{}.bytes());
  const TestFile padded(TinyModel{.tokens = 20, .rows = 32}.bytes());
  const TestFile without_tokenizer(TinyModel{.tokens = 0, .rows = 24}.bytes());
  EXPECT_EQ(read_model_facts(plain.path(), KvType::kF16).value().config.vocab_size, 20u);
  EXPECT_EQ(read_model_facts(padded.path(), KvType::kF16).value().config.vocab_size, 20u);
  EXPECT_EQ(read_model_facts(without_tokenizer.path(), KvType::kF16).value().config.vocab_size, 24u);
}

TEST(ChatTemplateFile, IsReadAndParsed) {
  const TestFile file("{% for m in messages %}{{ m.content }}{% endfor %}");
  const auto loaded = read_chat_template(file.path());
  ASSERT_TRUE(loaded.ok()) << loaded.message();
  EXPECT_NE(loaded->parsed, nullptr);
  EXPECT_EQ(loaded->source, "{% for m in messages %}{{ m.content }}{% endfor %}");
  const auto none = read_chat_template("");
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(none->parsed, nullptr);
}

TEST(ChatTemplateFile, SaysWhatIsWrongWithIt) {
  const auto refusal = [](const std::string& path) {
    const auto loaded = read_chat_template(path);
    return loaded.ok() ? "" : loaded.message();
  };
  EXPECT_EQ(refusal("/"), "--chat-template: cannot read '/': Is a directory");
  EXPECT_EQ(refusal("/no-such-file"),
            "--chat-template: cannot read '/no-such-file': No such file or directory");
  const TestFile empty(""), blank(" \n\n"), broken("{% for %}");
  EXPECT_EQ(refusal(empty.path()), "--chat-template: '" + empty.path() + "' is empty");
  EXPECT_EQ(refusal(blank.path()), "--chat-template: '" + blank.path() + "' is empty");
  EXPECT_EQ(refusal(broken.path()).rfind("--chat-template: '" + broken.path() + "': ", 0), 0u);
  EXPECT_EQ(refusal("/dev/zero"),
            "--chat-template: cannot read '/dev/zero': it is longer than 16777216 bytes");
}

TEST(KeyFile, HoldsOneKeyPerLine) {
  const TestFile file(" one\r\n\n\ttwo \n   \nthree");
  AccessPolicy access;
  access.api_keys = {"zero"};
  ASSERT_TRUE(read_key_file(file.path(), &access).ok());
  EXPECT_EQ(access.api_keys, (std::vector<std::string>{"zero", "one", "two", "three"}));
  EXPECT_TRUE(access.terms.empty());
}

TEST(KeyFile, SaysWhatAKeyIsEntitledTo) {
  const TestFile file("plain\nheavy weight=2.5\nbatch\tbest-priority=-3  weight=0.5\r\n");
  AccessPolicy access;
  ASSERT_TRUE(read_key_file(file.path(), &access).ok());
  EXPECT_EQ(access.api_keys, (std::vector<std::string>{"plain", "heavy", "batch"}));
  ASSERT_EQ(access.terms.size(), 2u);
  EXPECT_EQ(access.terms["heavy"].weight, 2.5);
  EXPECT_EQ(access.terms["heavy"].best_priority, INT32_MIN);
  EXPECT_EQ(access.terms["batch"].weight, 0.5);
  EXPECT_EQ(access.terms["batch"].best_priority, -3);
}

TEST(KeyFile, HasComments) {
  const TestFile file("# of the app\nplain weight=2\n  #retired weight=3\n#\n");
  AccessPolicy access;
  ASSERT_TRUE(read_key_file(file.path(), &access).ok());
  EXPECT_EQ(access.api_keys, std::vector<std::string>{"plain"});
  EXPECT_EQ(access.terms.size(), 1u);
}

TEST(KeyFile, MayBeginWithAByteOrderMark) {
  for (const char* rest : {"one\ntwo\n", "# a comment\none\ntwo\n"}) {
    const TestFile file(std::string("\xef\xbb\xbf") + rest);
    AccessPolicy access;
    ASSERT_TRUE(read_key_file(file.path(), &access).ok());
    EXPECT_EQ(access.api_keys, (std::vector<std::string>{"one", "two"}));
  }
}

TEST(KeyFile, AKeyStandsThereOnce) {
  const TestFile file("secret weight=2\nother\n\nsecret weight=3\n");
  AccessPolicy access;
  EXPECT_EQ(read_key_file(file.path(), &access).message(),
            "--api-key-file: '" + file.path() + "', line 4: the key stands in line 1 already");
}

TEST(KeyFile, SaysWhatIsWrongWithIt) {
  AccessPolicy access;
  EXPECT_TRUE(read_key_file("", &access).ok());
  EXPECT_EQ(read_key_file("/", &access).message(), "--api-key-file: cannot read '/': Is a directory");
  const TestFile blank(" \n\n");
  EXPECT_EQ(read_key_file(blank.path(), &access).message(),
            "--api-key-file: '" + blank.path() + "' holds no key");
  EXPECT_TRUE(access.api_keys.empty());
  const TestFile control("good\nse\x01cret\n");
  EXPECT_EQ(
      read_key_file(control.path(), &access)
          .message()
          .rfind("--api-key-file: '" + control.path() + "', line 2: of the key there, no client can send it",
                 0),
      0u);
  for (const char* bad :
       {"weight=0", "weight=-1", "weight=1e9", "weight=", "weight=nan", "weight=2x", "wait=2", "two words",
        "best-priority=1.5", "best-priority=9999999999", "best-priority="}) {
    const TestFile file(std::string("good\nsecret ") + bad);
    const Status status = read_key_file(file.path(), &access);
    EXPECT_EQ(status.message().rfind("--api-key-file: '" + file.path() + "', line 2: behind the key", 0), 0u)
        << bad;
    EXPECT_EQ(status.message().find("secret"), std::string::npos);
  }
}

}  // namespace
}  // namespace kvasir
