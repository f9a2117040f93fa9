// Every architecture on a small model with random weights (tests/data/tiny): the logits are those of
// transformers in f32, the same to the bit however they are computed, and nearly the same in every format of
// weights.

#include <cmath>
#include <numeric>
#include <set>

#include "base/aligned_buffer.h"
#include "models/weight_sizes.h"
#include "tests/model_runs.h"
#include "tests/tiny_fixture.h"
#include "tests/tiny_rewrite.h"

namespace kvasir {
namespace {

constexpr uint32_t kPositions = 64;

// KL divergence, in nats, that weights in a format may have from the same numbers in F32: what it costs to
// round activations (docs/numerics.md, rule 1). With random weights logits lie closer than a trained model's,
// and errors show more.
constexpr double kFloatBound = 1e-9;  // mean; nothing is rounded but sums
constexpr double kQuantisedBound =
    5e-3;  // mean (median with experts); a quarter above the worst, SmolLM3 in Q4_0
// A position's, from those numbers over activations that are rounded alike: nothing is left but the order of
// sums. Where that moves a value over the middle between two steps of an activation, a row goes on with
// another number, so not all positions can be held to it.
constexpr double kExactBound = 1e-9;
constexpr double kExactPart = 0.75;

LoadedModel load(const GgufFile& file, Isa isa = best_isa(), uint32_t threads = 1, uint32_t block_size = 32,
                 KvType kv_type = KvType::kF16) {
  return LoadedModel(file, isa, threads, block_size, kv_type, kPositions);
}

// In double. Of two rows of n values.
double cosine(const float* a, const float* b, uint32_t n) {
  double ab = 0, aa = 0, bb = 0;
  for (uint32_t i = 0; i < n; ++i) {
    ab += static_cast<double>(a[i]) * b[i];
    aa += static_cast<double>(a[i]) * a[i];
    bb += static_cast<double>(b[i]) * b[i];
  }
  return ab / std::sqrt(aa * bb);
}

double log_sum(const float* x, uint32_t n) {
  const double top = *std::max_element(x, x + n);
  double sum = 0;
  for (uint32_t i = 0; i < n; ++i) sum += std::exp(x[i] - top);
  return top + std::log(sum);
}

// KL(softmax(p) || softmax(q)) in nats, of two rows of n logits.
double kl_of(const float* p, const float* q, uint32_t n) {
  const double zp = log_sum(p, n), zq = log_sum(q, n);
  double total = 0;
  for (uint32_t i = 0; i < n; ++i) total += std::exp(p[i] - zp) * ((p[i] - zp) - (q[i] - zq));
  return total;
}

// Of each row, ascending.
std::vector<double> kl_of_rows(const std::vector<float>& p, const std::vector<float>& q, uint32_t n) {
  std::vector<double> out;
  for (size_t at = 0; at < p.size(); at += n) out.push_back(kl_of(p.data() + at, q.data() + at, n));
  std::sort(out.begin(), out.end());
  return out;
}

double mean(const std::vector<double>& x) {
  return std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
}

// KL of each position of `tested` from `truth`, ascending. Both read the K and V that `tested` has stored, so
// that what happens in one position stays there.
std::vector<double> kl_position_by_position(LoadedModel& truth, LoadedModel& tested,
                                            const std::vector<TokenId>& tokens) {
  const LoadedModel::Tables tables = tested.make_tables(0, 4);
  std::vector<double> out;
  for (int32_t at = 0; at < static_cast<int32_t>(tokens.size()); ++at) {
    std::vector<float> p(truth.vocab()), q(tested.vocab());
    const ForwardBatch::Sequence sequence = {0, 1, tables.pointers};
    const uint32_t row = 0;
    const ForwardBatch batch = {{&tokens[static_cast<size_t>(at)], 1}, {&at, 1}, {&sequence, 1}, {&row, 1}};
    truth.model().forward(batch, tested.store(), p);
    tested.model().forward(batch, tested.store(), q);
    out.push_back(kl_of(p.data(), q.data(), truth.vocab()));
  }
  std::sort(out.begin(), out.end());
  return out;
}

class EveryArchitecture : public testing::TestWithParam<std::string> {};

TEST_P(EveryArchitecture, LogitsAreThoseOfTransformers) {
  const GgufFile file = open_tiny(GetParam());
  const TinyGolden golden(GetParam());
  LoadedModel m = load(file);
  ASSERT_EQ(golden.tokens.size(), kPositions);
  ASSERT_EQ(m.vocab(), golden.vocab);
  const auto logits = run(m, golden.tokens, kPositions, 0);
  double least = 1;
  for (uint32_t r = 0; r < kPositions; ++r) {
    const float* ours = logits.data() + size_t{r} * golden.vocab;
    const float* theirs = golden.logits.data() + size_t{r} * golden.vocab;
    least = std::min(least, cosine(ours, theirs, golden.vocab));
    EXPECT_EQ(std::max_element(ours, ours + golden.vocab) - ours,
              std::max_element(theirs, theirs + golden.vocab) - theirs)
        << "position " << r;
  }
  std::printf("%s: cosine to transformers %.7f at least, mean KL %.1e nats\n", GetParam().c_str(), least,
              mean(kl_of_rows(golden.logits, logits, golden.vocab)));
  EXPECT_GE(least, 0.99999);
}

TEST_P(EveryArchitecture, LogitsDoNotDependOnHowTheyAreComputed) {
  const GgufFile file = open_tiny(GetParam());
  const auto tokens = TinyGolden(GetParam()).tokens;
  for (const KvType kv : {KvType::kF16, KvType::kInt8}) {
    LoadedModel m = load(file, best_isa(), 1, 32, kv);
    const auto whole = run(m, tokens, kPositions, 0);
    for (const uint32_t chunk : {1u, 2u, 3u, 5u, 7u, 9u, 40u})
      EXPECT_TRUE(same_bits(whole, run(m, tokens, chunk, 0))) << "chunks of " << chunk;
    EXPECT_TRUE(same_bits(whole, run(m, tokens, 40, 7))) << "beside seven others";
    EXPECT_TRUE(same_bits(whole, run(m, tokens, 1, 7))) << "token by token beside seven others";
    for (const Isa isa : all_isas()) {
      if (!isa_supported(isa)) continue;
      LoadedModel other = load(file, isa, 2, 16, kv);
      EXPECT_TRUE(same_bits(whole, run(other, tokens, kPositions, 0))) << isa_name(isa) << ", two threads";
      EXPECT_TRUE(same_bits(whole, run(other, tokens, 1, 1))) << isa_name(isa) << ", token by token";
    }
  }
}

// Logits and hidden states (behind the last layer, and normed) of some rows of a text whose first `silent`
// tokens were read before, wanting nothing; beside another text of which nothing is wanted.
std::vector<float> states_of(LoadedModel& m, const std::vector<TokenId>& tokens, uint32_t silent,
                             const std::vector<uint32_t>& wanted) {
  const LoadedModel::Tables tables = m.make_tables(0, 4), others = m.make_tables(4, 4);
  const auto other = random_tokens(9, m.vocab(), 4);
  const uint32_t width = m.model().config().hidden_dim;
  const uint32_t points[] = {m.model().config().layers, HiddenTap::kOutputNorm};
  std::vector<float> logits(wanted.size() * m.vocab()), hidden(wanted.size() * 2 * width);
  for (uint32_t first = 0; first < kPositions; first = first == 0 && silent > 0 ? silent : kPositions) {
    const uint32_t end = first == 0 && silent > 0 ? silent : kPositions;
    std::vector<TokenId> batch(other);
    std::vector<int32_t> positions;
    for (int32_t p = 0; p < 9; ++p) positions.push_back(p);
    for (uint32_t p = first; p < end; ++p) {
      batch.push_back(tokens[p]);
      positions.push_back(static_cast<int32_t>(p));
    }
    const ForwardBatch::Sequence sequences[] = {{0, 9, others.pointers}, {9, end - first, tables.pointers}};
    std::vector<uint32_t> rows;
    for (const uint32_t p : wanted)
      if (p >= first && p < end) rows.push_back(9 + p - first);
    m.model().forward({.tokens = batch,
                       .positions = positions,
                       .sequences = sequences,
                       .logit_rows = rows,
                       .hidden = {.rows = rows, .points = points, .out = hidden.data()}},
                      m.store(), logits);
  }
  logits.insert(logits.end(), hidden.begin(), hidden.end());
  return logits;
}

// Rows that want nothing end with the last layer's K and V: whether they do touches no bit of the others.
TEST_P(EveryArchitecture, ResultsDoNotDependOnWhoElseWantsSome) {
  const GgufFile file = open_tiny(GetParam());
  const auto tokens = TinyGolden(GetParam()).tokens;
  std::vector<uint32_t> every(kPositions);
  for (uint32_t p = 0; p < kPositions; ++p) every[p] = p;
  for (const uint32_t threads : {1u, 2u, 3u}) {
    LoadedModel m = load(file, best_isa(), threads);
    const uint32_t width = 2 * m.model().config().hidden_dim, vocab = m.vocab();
    const auto all = states_of(m, tokens, 0, every);
    for (const std::vector<uint32_t>& wanted :
         {std::vector<uint32_t>{63}, {40}, {41, 63}, {50, 51, 52, 53, 54}, {48, 63}}) {
      std::vector<float> expected;
      for (const uint32_t p : wanted) {
        const float* at = all.data() + size_t{p} * vocab;
        expected.insert(expected.end(), at, at + vocab);
      }
      for (const uint32_t p : wanted) {
        const float* at = all.data() + size_t{kPositions} * vocab + size_t{p} * width;
        expected.insert(expected.end(), at, at + width);
      }
      for (const uint32_t silent : {0u, 40u})
        EXPECT_TRUE(same_bits(expected, states_of(m, tokens, silent, wanted)))
            << wanted.size() << " from " << wanted[0] << " on, " << silent << " read before, " << threads
            << " threads";
    }
  }
}

// Weights in each format against the same numbers in F32: what is lost is what quantised activations lose.
// Matrices whose rows are no whole number of blocks stay as they are. Rounded activations may turn the choice
// between two experts that are nearly equal, which moves that position by much and those after it a little:
// luck, which is kept out of the next positions and out of the median.
TEST_P(EveryArchitecture, EveryFormatOfWeightsKeepsTheLogits) {
  const GgufFile file = open_tiny(GetParam());
  const auto tokens = TinyGolden(GetParam()).tokens;
  for (const DTypeInfo& format : dtype_table()) {
    const Rewritten quantised = rewrite(file, format.type, Stored::kFormat);
    if (quantised.matrices == 0) continue;
    const Rewritten plain = rewrite(file, format.type, Stored::kFloats);
    const auto a = GgufFile::parse(plain.bytes, "plain"), b = GgufFile::parse(quantised.bytes, "quantised");
    ASSERT_TRUE(a.ok() && b.ok());
    LoadedModel truth = load(*a), tested = load(*b);
    const auto p = run(truth, tokens, kPositions, 0), q = run(tested, tokens, kPositions, 0);
    const bool floats = format.block_elements == 1;
    const bool experts = truth.model().config().layers_with_experts() > 0;
    const auto kl = kl_of_rows(p, q, truth.vocab()),
               one_by_one = kl_position_by_position(truth, tested, tokens);
    const double median = one_by_one[kPositions / 2];
    std::printf(
        "%s: %u matrices in %s: KL %.1e nats in the mean; position by position median %.1e, most %.1e\n",
        GetParam().c_str(), quantised.matrices, std::string(format.name).c_str(), mean(kl), median,
        one_by_one.back());
    EXPECT_LE(experts && !floats ? median : mean(kl), floats ? kFloatBound : kQuantisedBound) << format.name;
    EXPECT_TRUE(same_bits(q, run(tested, tokens, 3, 1))) << format.name;
  }
}

// The product of F32 weights and rows as a quantised format reads them. Weights in F16 get them as they are.
void linear_of_rounded(const LinearArgs& args) {
  LinearArgs a = args;
  const size_t count = a.w->type == DType::kF32 ? size_t{a.rows} * a.w->k : 0;
  AlignedBuffer rounded(count * sizeof(float));
  const std::span<float> x = rounded.as<float>();
  for (size_t i = 0; i < count; ++i) x[i] = static_cast<float>(a.x->q[i]) * a.x->d[i / kGroup];
  if (count > 0) a.xf = x.data();
  kernel_table(best_isa()).linear(a);
}

// Quantised weights in every format are the numbers they stand for times the rounded activations, whatever a
// router then chooses. attn_kv_b is split before, for its keys' part is transposed in F32 and multiplies rows
// that are not rounded.
TEST_P(EveryArchitecture, EveryFormatOfWeightsIsMultipliedExactly) {
  const GgufFile original = open_tiny(GetParam());
  const auto config = read_model_config(original.metadata());
  ASSERT_TRUE(config.ok()) << config.message();
  const auto bytes = with_split_latents(original, *config);
  const auto split = GgufFile::parse(bytes, "split");
  ASSERT_TRUE(split.ok()) << split.message();
  const GgufFile& file = *split;
  const auto tokens = TinyGolden(GetParam()).tokens;
  LoadedModel together = load(original), apart = load(file);
  EXPECT_TRUE(same_bits(run(together, tokens, kPositions, 0), run(apart, tokens, kPositions, 0)));
  KernelTable rounding = kernel_table(best_isa());
  rounding.linear = linear_of_rounded;
  for (const DTypeInfo& format : dtype_table()) {
    if (format.block_elements == 1) continue;
    const Rewritten quantised = rewrite(file, format.type, Stored::kFormat);
    if (quantised.matrices == 0) continue;
    const Rewritten plain = rewrite(file, format.type, Stored::kMarkedFloats);
    const auto a = GgufFile::parse(plain.bytes, "plain"), b = GgufFile::parse(quantised.bytes, "quantised");
    ASSERT_TRUE(a.ok() && b.ok());
    LoadedModel truth(*a, rounding, 1, 32, KvType::kF16, kPositions), tested = load(*b);
    const std::vector<double> kl = kl_position_by_position(truth, tested, tokens);
    const auto exact = std::upper_bound(kl.begin(), kl.end(), kExactBound) - kl.begin();
    std::printf("%s: %s over rounded activations: %u of %u positions exact, median KL %.1e nats, most %.1e\n",
                GetParam().c_str(), std::string(format.name).c_str(), static_cast<uint32_t>(exact),
                kPositions, kl[kl.size() / 2], kl.back());
    EXPECT_GE(exact, kExactPart * kPositions) << format.name;
  }
}

// What is in bind_model.cc optional: biases, gates of shared experts, an own output head, divisors of RoPE;
// and StableLM's second norm, without which its parts are computed side by side.
bool may_be_missing(const std::string& model, const std::string& tensor) {
  return tensor.ends_with(".bias") || tensor == "output.weight" || tensor == "rope_freqs.weight" ||
         tensor.ends_with("ffn_gate_inp_shexp.weight") ||
         (model == "stablelm" && tensor.ends_with("ffn_norm.weight"));
}

// Without a fused matrix the first of its parts is looked for.
std::string name_of_missing(const GgufFile& file, std::string tensor) {
  if (const size_t at = tensor.find("attn_kv_b"); at != std::string::npos) tensor.replace(at, 9, "attn_k_b");
  if (const size_t at = tensor.find("attn_qkv"); at != std::string::npos) tensor.replace(at, 8, "attn_q");
  const TensorInfo* up = file.find_tensor("blk.1.ffn_up.weight");
  const TensorInfo* down = file.find_tensor("blk.1.ffn_down.weight");
  const bool fused = up != nullptr && up->view.shape[1] == 2 * down->view.shape[0];
  if (const size_t at = tensor.find("ffn_up."); fused && at != std::string::npos)
    tensor.replace(at, 7, "ffn_gate.");
  return tensor;
}

TEST_P(EveryArchitecture, AMissingOrMisshapenTensorIsNamed) {
  const GgufFile file = open_tiny(GetParam());
  for (const TensorInfo& t : file.tensors()) {
    if (t.name.starts_with("blk.") && !t.name.starts_with("blk.1.")) continue;
    for (const Damage damage : {Damage::kMissing, Damage::kMisshapen}) {
      const auto bytes = damaged(file, t.name, damage);
      const auto broken = GgufFile::parse(bytes, "broken");
      ASSERT_TRUE(broken.ok()) << broken.message();
      Result<ModelConfig> config = read_model_config(broken->metadata());
      ASSERT_TRUE(config.ok()) << config.message();
      const auto sizes = read_weight_sizes(*broken, *config);
      if (damage == Damage::kMissing && may_be_missing(GetParam(), t.name)) continue;
      // Rows without a token pad an embedding.
      if (damage == Damage::kMisshapen && t.name == "token_embd.weight" && sizes.ok()) continue;
      EXPECT_FALSE(sizes.ok()) << t.name;
      EXPECT_EQ(sizes.status().code(), ErrorCode::kCorrupt) << sizes.message();
      if (damage == Damage::kMissing) {
        EXPECT_EQ(sizes.message(), "tensor '" + name_of_missing(file, t.name) + "' is missing");
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, EveryArchitecture, testing::ValuesIn(tiny_names()), tiny_test_name);

TEST(TinyModels, ThereIsOneForEveryArchitecture) {
  std::set<std::string> shown;
  for (const std::string& name : tiny_names()) {
    const auto arch = open_tiny(name).metadata().require_string("general.architecture");
    ASSERT_TRUE(arch.ok());
    shown.insert(*arch);
  }
  for (const ArchSpec& spec : architectures()) EXPECT_TRUE(shown.contains(spec.name)) << spec.name;
}

}  // namespace
}  // namespace kvasir
