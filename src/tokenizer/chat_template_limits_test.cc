// What hostile templates can and cannot do.

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <random>
#include <string>

#include "tokenizer/chat_template.h"

namespace kvasir {
namespace {

std::string repeated(std::string_view piece, size_t n) {
  std::string out;
  for (size_t i = 0; i < n; ++i) out += piece;
  return out;
}

TemplateValue context() {
  TemplateValue::Array messages;
  for (int i = 0; i < 4; ++i)
    messages.push_back(
        TemplateValue::Object{{"role", i % 2 ? "assistant" : "user"}, {"content", "héllo\n<|im_end|>"}});
  return TemplateValue::Object{
      {"messages", messages},
      {"add_generation_prompt", true},
      {"long", std::string(100000, 'a')},
      {"bos_token", TemplateValue::trusted("<s>")},
      {"tools", TemplateValue::Array{
                    TemplateValue::Object{{"function", TemplateValue::Object{{"name", "f"}, {"x", 1.5}}}}}}};
}

// The message a template fails with; "" when it does not. It must not take long either way.
std::string failure(const std::string& source, ChatTemplate::Limits limits = {}) {
  const auto start = std::chrono::steady_clock::now();
  auto parsed = ChatTemplate::parse(source);
  std::string message;
  if (!parsed.ok()) {
    message = parsed.message();
    EXPECT_EQ(parsed.status().code(), ErrorCode::kInvalidArgument);
  } else if (const auto r = parsed->render(context(), 0, limits); !r.ok()) {
    message = r.message();
    EXPECT_EQ(r.status().code(), ErrorCode::kInvalidArgument);
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_LT(took.count(), 20.0) << source.substr(0, 200);  // seconds, under sanitizers on a busy machine
  return message;
}

constexpr const char* kBudget = "budget of 2000000 steps";

TEST(ChatTemplateLimits, EndlessWorkEndsWithTheBudget) {
  const std::string loops = repeated("{% for a in range(100000) %}", 4), ends = repeated("{% endfor %}", 4);
  EXPECT_NE(failure(loops + ends).find(kBudget), std::string::npos);
  EXPECT_NE(failure(loops + "{% set x = a %}{% macro f() %}{% endmacro %}" + ends).find(kBudget),
            std::string::npos);
  EXPECT_NE(failure("{% set ns = namespace(s='x') %}{% for i in range(90000) %}{% set ns.s = ns.s ~ ns.s "
                    "%}{% endfor %}")
                .find(kBudget),
            std::string::npos);
  EXPECT_NE(
      failure(
          "{% set ns = namespace(s=[1]) %}{% for i in range(90) %}{% set ns.s = ns.s + ns.s %}{% endfor %}")
          .find(kBudget),
      std::string::npos);
}

TEST(ChatTemplateLimits, BytesAreChargedWhereverTheyAreMade) {
  ChatTemplate::Limits limits;
  limits.max_steps = 200'000;
  for (const char* e : {"'x' * 1000000000000",
                        "[1] * 1000000000000",
                        "long * 100000",
                        "'a'.center(1000000000000)",
                        "'a'.ljust(9223372036854775807)",
                        "'a'.zfill(9223372036854775807)",
                        "'a'|center(1000000000000)",
                        "(long ~ '\n')|indent(1000000000)",
                        "(long|list)|join(long)",
                        "long.replace('', long)",
                        "long.replace('a', long)",
                        "range(100000)|batch(9223372036854775807, 1)|list",
                        "[1]|slice(1000000000000)|list",
                        "([long] * 10000)|tojson",
                        "([long] * 100000)|string",
                        "([long] * 100000)|map('upper')|list",
                        "(range(100000)|list * 1000)|sort",
                        "'%s' % ([long] * 100000)",
                        "range(100000)|list|tojson(indent=100000)",
                        "([long] * 100000)|unique|list",
                        "long.split('a') * 100000"}) {
    EXPECT_NE(failure(std::string("{{ ") + e + " }}", limits), "") << e;
  }
}

TEST(ChatTemplateLimits, SearchesTakeLinearTime) {
  for (const char* e : {"long.find(long[:50000] ~ 'b')", "long.rfind('b' ~ long[:50000])",
                        "(long[:50000] ~ 'b') in long", "long.count(long[:50000] ~ 'b')",
                        "long.replace(long[:50000] ~ 'b', '')", "long.split('b' ~ long[:50000])|length",
                        "long.strip(long)", "long.rsplit(long[:50000] ~ 'b')|length"})
    EXPECT_EQ(failure(std::string("{{ ") + e + " }}"), "") << e;
}

TEST(ChatTemplateLimits, OutputIsCapped) {
  ChatTemplate::Limits limits;
  limits.max_output_bytes = 1000;
  EXPECT_EQ(failure(std::string(1000, 'x'), limits), "");
  EXPECT_NE(failure(std::string(1001, 'x'), limits).find("longer than 1000 bytes"), std::string::npos);
  EXPECT_NE(
      failure("{% for i in range(100) %}{{ '12345678901' }}{% endfor %}", limits).find("longer than 1000"),
      std::string::npos);
  EXPECT_NE(failure("{% set x %}{{ long }}{% endset %}", limits), "");
}

TEST(ChatTemplateLimits, DepthIsCapped) {
  EXPECT_NE(failure("{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}").find("deeper than"),
            std::string::npos);
  EXPECT_NE(failure("{% macro f() %}{% call f() %}{{ caller }}{% endcall %}{% endmacro %}{{ f() }}"), "");
  EXPECT_NE(failure("{{ " + repeated("(", 100000) + "1" + repeated(")", 100000) + " }}").find("nests"),
            std::string::npos);
  EXPECT_NE(failure("{{ " + repeated("[", 100000) + repeated("]", 100000) + " }}").find("nests"),
            std::string::npos);
  EXPECT_NE(failure("{{ " + repeated("not ", 100000) + "1 }}").find("nests"), std::string::npos);
  EXPECT_NE(failure("{{ " + repeated("-", 100000) + "1 }}").find("nests"), std::string::npos);
  EXPECT_NE(failure("{{ 1" + repeated(" if 1 else 2", 100000) + " }}").find("nests"), std::string::npos);
  EXPECT_NE(failure("{{ x" + repeated(".x", 100000) + " }}").find("nests"), std::string::npos);
  EXPECT_NE(failure("{{ x" + repeated("|upper", 100000) + " }}").find("nests"), std::string::npos);
  EXPECT_NE(failure(repeated("{% if 1 %}", 100000)).find("nests"), std::string::npos);
  EXPECT_NE(
      failure("{% for " + repeated("(", 100000) + "x" + repeated(")", 100000) + " in l %}").find("nests"),
      std::string::npos);
}

TEST(ChatTemplateLimits, LongFlatTemplatesAreFine) {
  EXPECT_EQ(failure("{{ 1" + repeated(" + 1", 10000) + " }}"), "");
  EXPECT_EQ(failure("{{ 'a'" + repeated(" ~ 'a'", 10000) + " }}"), "");
  EXPECT_EQ(failure("{{ 0" + repeated(" or 0", 10000) + " }}"), "");
  EXPECT_EQ(failure("{% if 0 %}" + repeated("{% elif 0 %}", 10000) + "{% endif %}"), "");
  EXPECT_EQ(failure(repeated("{{ 1 }}", 10000)), "");
}

TEST(ChatTemplateLimits, NestedValuesCanBeFreedAndPrinted) {
  const auto grow = [](const std::string& next) {
    return "{% set ns = namespace(v=1) %}{% for i in range(20000) %}{% set ns.v = " + next +
           " %}{% endfor %}";
  };
  for (const char* next : {"[ns.v]", "(ns.v,)", "{'a': ns.v}", "cycler(ns.v)", "dict(a=ns.v)", "[ns.v].index",
                           "cycler(ns.v).next", "[ns.v]|reverse"})
    EXPECT_NE(failure(grow(next)).find("nests deeper"), std::string::npos) << next;
  EXPECT_EQ(failure(grow("namespace(v=ns.v) if i < 100 else ns.v")), "");
  EXPECT_NE(
      failure(
          "{% set ns = namespace() %}{% for i in range(100000) %}{% for x in [ns.v] %}{% set ns.v = loop %}"
          "{% endfor %}{% endfor %}"),
      "");
  // Shared parts make a value that prints exponentially long.
  const std::string doubled =
      "{% set ns = namespace(v=1) %}{% for i in range(60) %}{% set ns.v = [ns.v, ns.v] %}{% endfor %}";
  for (const char* use : {"{{ ns.v }}", "{{ ns.v | tojson }}", "{{ ns.v == ns.v }}", "{{ ns.v < ns.v }}"})
    EXPECT_NE(failure(doubled + use), "") << use;
}

TEST(ChatTemplateLimits, ValuesThatHoldThemselvesAreFreed) {  // or LeakSanitizer speaks up
  EXPECT_EQ(
      failure(
          "{% set ns = namespace() %}{% set ns.a = ns %}{% set ns.b = [ns] %}{{ ns.a.a.b[0].a is defined }}"),
      "");
  EXPECT_EQ(
      failure(
          "{% set ns = namespace() %}{% macro f() %}{{ ns }}{% endmacro %}{% set ns.f = f %}{{ ns.f() }}"),
      "");
  EXPECT_EQ(failure("{% for x in [1] %}{% macro f() %}{{ loop.index }}{% endmacro %}{% set l = loop %}{{ f() "
                    "}}{% endfor %}"),
            "");
}

TEST(ChatTemplateLimits, IntegersStayInRange) {
  for (const char* e :
       {"9223372036854775807 + 1", "-9223372036854775807 - 2", "9223372036854775807 * 2", "10 ** 19",
        "(-9223372036854775807 - 1) // -1", "-(-9223372036854775807 - 1)", "99999999999999999999",
        "(-9223372036854775807 - 1)|abs", "range(-9223372036854775807, 9223372036854775807)"})
    EXPECT_NE(failure(std::string("{{ ") + e + " }}"), "") << e;
  for (const char* e :
       {"(-9223372036854775807 - 1) % -1", "1e308 * 10", "-1 // 9223372036854775807", "'9'*30|int",
        "long[9223372036854775807:-9223372036854775807:9223372036854775807]",
        "long[-9223372036854775807 - 1]", "long.find('a', -9223372036854775807, 9223372036854775807)",
        "range(9223372036854775800, 9223372036854775807, 5)|list",
        "'a'.split(maxsplit=-9223372036854775807)"})
    EXPECT_EQ(failure(std::string("{{ ") + e + " }}"), "") << e;
}

TEST(ChatTemplateLimits, BrokenUtf8IsHarmless) {
  for (const char* e :
       {"upper", "title", "reverse", "length", "tojson", "list", "wordcount", "urlencode", "trim"})
    EXPECT_EQ(failure("{{ '\xff\xe6\xad a\x80'|" + std::string(e) + " }}\xf0\x9f"), "") << e;
  EXPECT_EQ(
      failure("{{ ['\xff'] }}{{ '\xe6\xad'.strip('\x80') }}{{ '\xc3\xa9\xc3'[::-1] }}{{ '\xff' is lower }}"),
      "");
}

// --- mutations ---

std::vector<std::string> seeds() {
  std::vector<std::string> out;
  for (const char* name : {"chatml", "llama3", "mistral_tools", "gemma", "deepseek", "command_r", "thinking",
                           "channels", "granite", "hermes", "zephyr", "models/qwen2.5-coder-0.5b-instruct"}) {
    std::ifstream in(std::string(KVASIR_SOURCE_DIR) + "/tests/data/templates/" + name + ".jinja",
                     std::ios::binary);
    out.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    EXPECT_FALSE(out.back().empty()) << name;
  }
  return out;
}

std::string mutate(const std::vector<std::string>& pool, std::mt19937& rng) {
  static const char* const kPieces[] = {"{{",
                                        "}}",
                                        "{%",
                                        "%}",
                                        "{#",
                                        "#}",
                                        "-",
                                        "+",
                                        "(",
                                        ")",
                                        "[",
                                        "]",
                                        "{",
                                        "}",
                                        "|",
                                        ".",
                                        ",",
                                        ":",
                                        "~",
                                        "**",
                                        "//",
                                        "'",
                                        "\"",
                                        "\\",
                                        "0",
                                        "1e9",
                                        "-1",
                                        " in ",
                                        " is ",
                                        " not ",
                                        " if ",
                                        " else ",
                                        "for x in messages",
                                        "{% endfor %}",
                                        "{% endif %}",
                                        "loop.",
                                        "messages",
                                        "namespace()",
                                        "|tojson",
                                        "|length",
                                        "|map(",
                                        "*",
                                        "%",
                                        "\xff",
                                        "\n",
                                        "none",
                                        "range(99)",
                                        "{% break %}",
                                        "caller()",
                                        "[::-1]",
                                        "'%s' % ",
                                        ".format(",
                                        ".split(",
                                        "|sort",
                                        "{% set x = x ~ x %}"};
  const auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(rng); };
  std::string s = pool[below(pool.size())];
  for (size_t edits = 1 + below(6); edits > 0; --edits) {
    const size_t at = below(s.size() + 1), length = std::min(s.size() - at, below(20));
    switch (below(4)) {
      case 0:
        s.erase(at, length);
        break;
      case 1:
        s.insert(at, kPieces[below(std::size(kPieces))]);
        break;
      case 2:
        s.replace(at, length, kPieces[below(std::size(kPieces))]);
        break;
      default: {
        const std::string& other = pool[below(pool.size())];
        const size_t from = below(other.size());
        s.insert(at, other.substr(from, below(200)));
      }
    }
  }
  return s;
}

TEST(ChatTemplateLimits, MutatedTemplatesNeitherCrashNorHang) {
  const auto pool = seeds();
  std::mt19937 rng(20251129);
  ChatTemplate::Limits limits;
  limits.max_steps = 200'000;
  int rendered = 0, refused = 0;
  for (int i = 0; i < 4000; ++i) ++(failure(mutate(pool, rng), limits).empty() ? rendered : refused);
  EXPECT_GT(rendered, 200);  // the mutations must not all be nonsense
  EXPECT_GT(refused, 200);
}

}  // namespace
}  // namespace kvasir
