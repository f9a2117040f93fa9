// Draft heads in the layouts that people publish, made apart from Kvasir: what it drafts with them is what
// vLLM drafts, from the features that vLLM took and from its own. tools/head_goldens says how files and
// drafts were made.

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/text_file.h"
#include "decoding/sampler.h"
#include "engine/eagle_file.h"
#include "engine/medusa_drafter.h"
#include "engine/medusa_file.h"
#include "tests/heads/heads_fixture.h"

namespace kvasir {
namespace {

namespace fs = std::filesystem;

// Of the largest logit: weights and activations have eight bits here and 32 there, and each guess goes on
// from the one before (0.046 is the worst, of a fourth guess). The goldens' guesses lead by 0.1.
constexpr double kTolerance = 0.06;
constexpr double kFault = 4 * kTolerance;  // what a head that is read wrongly is off by, at least
constexpr double kStates = 1e-2;           // hidden states of the target, whose K and V have F16 here

// Which file, and whose golden.
struct PublicHead {
  const char* file;
  const char* golden;
};

std::string test_name(const testing::TestParamInfo<PublicHead>& info) {
  std::string name = info.param.file;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '-' || c == '.'; }, '_');
  return name;
}

Sampler greedy(uint32_t vocab, const KernelTable& kernels) {
  SamplingParams params;
  params.temperature = 0;
  return Sampler(params, 0, vocab, {}, kernels);
}

// What a drafter guesses for a golden's text, whose hidden states it is shown as the target has them.
std::vector<TokenId> drafts_of(Drafter& drafter, HeadsTarget& target, const HeadGolden& golden) {
  const std::vector<uint32_t> points = drafter.hidden_wish().points;
  const std::span<const TokenId> read(golden.tokens.data(), golden.rows());
  const std::vector<float> states = target.states(read, points);
  drafter.open(0, 64);
  drafter.see(0, {.first = 0,
                  .rows = golden.rows(),
                  .width = target.model->config().hidden_dim,
                  .points = points,
                  .values = states.data()});
  const Sampler sampler = greedy(target.vocab(), target.kernels);
  Draft draft;
  DraftJob job = {.slot = 0,
                  .known = golden.tokens,
                  .most = static_cast<uint32_t>(golden.drafts.size()),
                  .sampler = &sampler,
                  .draft = &draft};
  drafter.propose({&job, 1});
  return {draft.list().begin(), draft.list().end()};
}

void expect_logits(std::span<const float> got, const HeadGolden& golden) {
  const size_t vocab = golden.logits.size() / golden.drafts.size();
  for (uint32_t guess = 0; guess < golden.drafts.size(); ++guess) {
    const std::span<const float> row = got.subspan(guess * vocab, vocab);
    EXPECT_LT(worst_error(row, golden.logits_of(guess)), kTolerance) << "guess " << guess;
    EXPECT_EQ(best_of(row), static_cast<size_t>(golden.drafts[guess])) << "guess " << guess;
  }
}

class PublicEagle : public testing::TestWithParam<PublicHead> {};

TEST_P(PublicEagle, HasTheLogitsOfVllm) {
  HeadsTarget target;
  const HeadGolden golden(GetParam().golden);
  auto weights = load_eagle(heads_path(GetParam().file), *target.model, 0);
  ASSERT_TRUE(weights.ok()) << weights.message();
  ASSERT_EQ(weights->feature_width(), golden.inputs());
  expect_logits(eagle_logits(std::move(weights).value(), target, golden), golden);
}

TEST_P(PublicEagle, DraftsTheSameFromTheTargetsOwnStates) {
  HeadsTarget target;
  const HeadGolden golden(GetParam().golden);
  auto weights = load_eagle(heads_path(GetParam().file), *target.model, 0);
  ASSERT_TRUE(weights.ok()) << weights.message();
  const std::span<const TokenId> read(golden.tokens.data(), golden.rows());
  const std::vector<float> states = target.states(read, weights->points);
  ASSERT_EQ(states.size(), golden.features.size());
  for (size_t i = 0; i < states.size(); ++i)
    ASSERT_NEAR(states[i], golden.features[i], kStates * std::max(1.0f, std::fabs(golden.features[i])))
        << "token " << i / golden.inputs() << ", value " << i % golden.inputs();
  const KvLayout layout = KvLayout::make(weights->config.kv_layers(), 16).value();
  EagleDrafter drafter(std::move(weights).value(), *target.model, target.kernels, layout, target.pool,
                       {.slots = 1, .blocks = 8, .vocab = target.vocab(), .end_tokens = {}});
  EXPECT_EQ(drafts_of(drafter, target, golden), golden.drafts);
}

INSTANTIATE_TEST_SUITE_P(All, PublicEagle,
                         testing::Values(PublicHead{"eagle1", "eagle1"}, PublicHead{"eagle3", "eagle3"},
                                         PublicHead{"speculators", "speculators"},
                                         PublicHead{"specforge", "specforge"},
                                         PublicHead{"eagle3.gguf", "eagle3"},
                                         PublicHead{"speculators.gguf", "speculators"}),
                         test_name);

class PublicMedusa : public testing::TestWithParam<PublicHead> {};

TEST_P(PublicMedusa, HasTheLogitsOfVllm) {
  HeadsTarget target;
  const HeadGolden golden(GetParam().golden);
  const uint32_t width = golden.inputs(), vocab = target.vocab();
  auto weights = load_medusa(heads_path(GetParam().file), *target.model, 0);
  ASSERT_TRUE(weights.ok()) << weights.message();
  ASSERT_EQ(weights->heads.size(), golden.drafts.size());
  MedusaHeads heads(std::move(weights).value(), target.kernels, target.pool, 1);
  for (uint32_t i = 0; i < heads.count(); ++i)
    std::copy_n(golden.features.end() - width, width, heads.states() + size_t{i} * width);
  heads.run(std::vector<uint32_t>(heads.count(), 1));
  std::vector<float> logits(size_t{heads.count()} * vocab);
  for (uint32_t i = 0; i < heads.count(); ++i)
    heads.weights().outputs[i]->spread(heads.logits(i), std::span(logits).subspan(size_t{i} * vocab, vocab));
  expect_logits(logits, golden);
}

TEST_P(PublicMedusa, DraftsTheSameFromTheTargetsOwnStates) {
  HeadsTarget target;
  const HeadGolden golden(GetParam().golden);
  auto weights = load_medusa(heads_path(GetParam().file), *target.model, 0);
  ASSERT_TRUE(weights.ok()) << weights.message();
  MedusaDrafter drafter(std::move(weights).value(), target.kernels, target.pool,
                        {.slots = 1, .vocab = target.vocab(), .end_tokens = {}});
  EXPECT_EQ(drafts_of(drafter, target, golden), golden.drafts);
}

INSTANTIATE_TEST_SUITE_P(All, PublicMedusa,
                         testing::Values(PublicHead{"medusa", "medusa"},
                                         PublicHead{"medusa-authors", "medusa-authors"}),
                         test_name);

// A copy of a head in which something is otherwise, as if it were read otherwise.
class Altered {
 public:
  explicit Altered(const std::string& name)
      : folder_(fs::path(testing::TempDir()) / ("altered-" + name)), golden_(name) {
    fs::remove_all(folder_);
    fs::copy(heads_path(name), folder_);
  }
  ~Altered() { fs::remove_all(folder_); }

  // Values of each row of a matrix, of two bytes, begin `values` later, those at the end come first.
  void turn_rows(const std::string& tensor, size_t values) {
    change(tensor, [&](std::span<char> bytes, const SafeTensor& t) {
      const size_t row = t.shape[1] * 2;
      for (size_t at = 0; at < bytes.size(); at += row)
        std::rotate(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                    bytes.begin() + static_cast<std::ptrdiff_t>(at + values * 2),
                    bytes.begin() + static_cast<std::ptrdiff_t>(at + row));
    });
  }
  // Whole numbers less the place where they stand.
  void less_places(const std::string& tensor) {
    change(tensor, [](std::span<char> bytes, const SafeTensor& t) {
      for (size_t i = 0; i < t.elements(); ++i) {
        int64_t value = 0;
        std::memcpy(&value, bytes.data() + i * 8, 8);
        value -= static_cast<int64_t>(i);
        std::memcpy(bytes.data() + i * 8, &value, 8);
      }
    });
  }
  void replace_in_config(const std::string& from, const std::string& to) {
    const std::string path = (folder_ / "config.json").string();
    std::string text = read_text_file(path).value();
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    std::ofstream(path) << text.replace(at, from.size(), to);
  }
  // How far the guesses' logits are off; -1 where the head is refused.
  double error() {
    HeadsTarget target;
    auto weights = load_eagle(folder_.string(), *target.model, 0);
    if (!weights.ok()) return -1;
    const std::vector<float> got = eagle_logits(std::move(weights).value(), target, golden_);
    double worst = 0;
    for (uint32_t i = 0; i < golden_.drafts.size(); ++i)
      worst = std::max(worst, worst_error(std::span(got).subspan(i * target.vocab(), target.vocab()),
                                          golden_.logits_of(i)));
    return worst;
  }

 private:
  template <typename Change>
  void change(const std::string& tensor, Change&& how) {
    const std::string path = (folder_ / "model.safetensors").string();
    std::string bytes = read_text_file(path).value();
    const auto file = SafetensorsFile::parse(std::as_bytes(std::span(bytes)), path);
    ASSERT_TRUE(file.ok()) << file.message();
    const SafeTensor* t = file->find(tensor);
    ASSERT_NE(t, nullptr) << tensor;
    const auto begin = reinterpret_cast<const char*>(t->bytes.data()) - bytes.data();
    how(std::span(bytes).subspan(static_cast<size_t>(begin), t->bytes.size()), *t);
    std::ofstream(path, std::ios::binary) << bytes;
  }

  fs::path folder_;
  HeadGolden golden_;
};

constexpr size_t kWidth = 32;

TEST(AlteredHeads, AsTheyAreAreRight) {
  for (const char* name : {"eagle1", "eagle3", "speculators", "specforge"}) {
    const double error = Altered(name).error();
    EXPECT_TRUE(error >= 0 && error < kTolerance) << name << ": " << error;
  }
}

TEST(AlteredHeads, ShowInWhichOrderTheInputsStand) {
  Altered first("eagle1");
  first.turn_rows("fc.weight", kWidth);
  EXPECT_GT(first.error(), kFault) << "features, then the embedding";
  Altered layers("eagle3");
  layers.turn_rows("fc.weight", kWidth);
  EXPECT_GT(layers.error(), kFault) << "layers in another order";
  Altered pair("eagle3");
  for (const char* part : {"q", "k", "v"})
    pair.turn_rows(std::string("midlayer.self_attn.") + part + "_proj.weight", kWidth);
  EXPECT_GT(pair.error(), kFault) << "features, then the embedding";
}

TEST(AlteredHeads, ShowThatIdsAreOffsets) {
  Altered head("eagle3");
  head.less_places("d2t");
  EXPECT_FALSE(head.error() >= 0 && head.error() < kFault) << head.error();
}

TEST(AlteredHeads, ShowEachFlagAndNumber) {
  const auto off = [](const char* name, const char* from, const char* to) {
    Altered head(name);
    head.replace_in_config(from, to);
    return head.error();
  };
  // 300 is the target's, which a head that names no base does not take.
  EXPECT_GT(off("eagle1", "\"vocab_size\"", "\"rope_theta\": 300.0, \"vocab_size\""), kFault);
  EXPECT_GT(off("eagle3", "\"vocab_size\"", "\"rope_theta\": 300.0, \"vocab_size\""), kFault);
  EXPECT_GT(off("speculators", "\"norm_before_residual\": true", "\"norm_before_residual\": false"), kFault);
  EXPECT_GT(off("speculators", "\"norm_before_fc\": true", "\"norm_before_fc\": false"), kFault);
  EXPECT_GT(off("speculators", "\"factor\": 8.0", "\"factor\": 1.0"), kFault);
  EXPECT_GT(off("specforge", "\"norm_output\": true", "\"norm_output\": false"), kFault);
  EXPECT_GT(off("specforge", "\"sliding_window\": 8", "\"sliding_window\": 4"), kFault);
  EXPECT_GT(off("specforge", "\"factor\": 4.0", "\"factor\": 1.0"), kFault);
}

// A head that goes to vLLM drafts as before: its loaders want another file, not another head.
TEST(HeadsForVllm, DraftAsBefore) {
  const std::string source = KVASIR_SOURCE_DIR, python = source + "/.venv/bin/python";
  if (!fs::exists(python)) GTEST_SKIP() << python << " is absent: tools/setup.sh --python makes it";
  for (const std::string name : {"eagle1", "eagle3", "speculators", "specforge"}) {
    const std::string folder = testing::TempDir() + "/for-vllm-" + name;
    const std::string convert = python + " " + source + "/tools/head_to_vllm.py " + heads_path(name) + " " +
                                heads_path("target.gguf") + " " + folder;
    // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing else runs
    ASSERT_EQ(std::system(convert.c_str()), 0) << convert;
    HeadsTarget target;
    const HeadGolden golden(name);
    auto weights = load_eagle(folder, *target.model, 0);
    ASSERT_TRUE(weights.ok()) << weights.message();
    expect_logits(eagle_logits(std::move(weights).value(), target, golden), golden);
    fs::remove_all(folder);
  }
}

// The same tensors as a pickle, as most heads of Medusa's authors are.
TEST(PickledHeads, AreTheSameAsSafetensors) {
  const std::string source = KVASIR_SOURCE_DIR, python = source + "/.venv/bin/python";
  if (!fs::exists(python)) GTEST_SKIP() << python << " is absent: tools/setup.sh --python makes it";
  const fs::path folder = fs::path(testing::TempDir()) / "pickled-head";
  fs::create_directories(folder);
  fs::copy(heads_path("medusa-authors.pt"), folder / "medusa_lm_head.pt",
           fs::copy_options::overwrite_existing);
  HeadsTarget target;
  const std::string refused = load_medusa(folder.string(), *target.model, 0).message();
  EXPECT_NE(refused.find("tools/head_from_pickle.py"), std::string::npos) << refused;
  const std::string convert =
      python + " " + source + "/tools/head_from_pickle.py " + (folder / "medusa_lm_head.pt").string();
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing else runs
  ASSERT_EQ(std::system(convert.c_str()), 0) << convert;
  const auto got = SafetensorsFile::open((folder / "medusa_lm_head.safetensors").string());
  const auto want = SafetensorsFile::open(heads_path("medusa-authors/medusa_lm_head.safetensors"));
  ASSERT_TRUE(got.ok()) << got.message();
  ASSERT_TRUE(want.ok()) << want.message();
  EXPECT_EQ(got->tensors().size(), want->tensors().size());
  for (const SafeTensor& t : want->tensors()) {
    const SafeTensor* same = got->find(t.name);
    ASSERT_NE(same, nullptr) << t.name;
    EXPECT_EQ(same->type, t.type) << t.name;
    EXPECT_EQ(same->shape, t.shape) << t.name;
    EXPECT_TRUE(std::ranges::equal(same->bytes, t.bytes)) << t.name;
  }
  fs::remove_all(folder);
}

}  // namespace
}  // namespace kvasir
