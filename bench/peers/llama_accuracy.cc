// How far llama.cpp's logits are from the goldens, measured as tests/golden_test.cc measures Kvasir's.
// Prints one line of JSON. Usage: llama-accuracy MODEL.gguf FILE.golden [flash attention: 0 or 1]

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "llama.h"

namespace {

[[noreturn]] void die(const std::string& message) {
  std::fprintf(stderr, "llama-accuracy: %s\n", message.c_str());
  std::exit(1);
}

// The arrays of tests/data/golden/README.md.
struct Golden {
  uint32_t positions = 0, top = 0, vocab = 0;
  std::vector<uint32_t> tokens, ids;
  std::vector<float> logprobs, rest;
};

template <typename T>
void read_into(std::ifstream& in, T* out, size_t count, const std::string& path) {
  if (!in.read(reinterpret_cast<char*>(out), static_cast<std::streamsize>(count * sizeof(T)))) {
    die(path + " is too short");
  }
}

Golden read_golden(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  char magic[8];
  uint32_t header[4];
  read_into(in, magic, 8, path);
  if (std::memcmp(magic, "KVGOLD01", 8) != 0) die(path + " is not a golden file");
  read_into(in, header, 4, path);
  Golden golden;
  golden.positions = header[0];
  golden.top = header[1];
  golden.vocab = header[2];
  golden.tokens.resize(golden.positions);
  golden.ids.resize(size_t{golden.positions} * golden.top);
  golden.logprobs.resize(golden.ids.size());
  golden.rest.resize(golden.positions);
  read_into(in, golden.tokens.data(), golden.tokens.size(), path);
  read_into(in, golden.ids.data(), golden.ids.size(), path);
  read_into(in, golden.logprobs.data(), golden.logprobs.size(), path);
  read_into(in, golden.rest.data(), golden.rest.size(), path);
  return golden;
}

// KL(golden || softmax(logits)) of one position, over the kept tokens and one bucket of all others.
double divergence(const Golden& golden, size_t row, const float* logits) {
  const double highest = *std::max_element(logits, logits + golden.vocab);
  std::vector<double> p(golden.vocab);
  double sum = 0;
  for (uint32_t i = 0; i < golden.vocab; ++i) sum += p[i] = std::exp(logits[i] - highest);
  double kl = 0;
  for (size_t k = row * golden.top; k < (row + 1) * golden.top; ++k) {
    const double log_q = logits[golden.ids[k]] - highest - std::log(sum);
    kl += std::exp(golden.logprobs[k]) * (golden.logprobs[k] - log_q);
    p[golden.ids[k]] = 0;
  }
  double others = 0;
  for (const double value : p) others += value;
  return kl + std::exp(golden.rest[row]) * (golden.rest[row] - std::log(others / sum));
}

void decode(llama_context* context, const Golden& golden, uint32_t first, uint32_t count) {
  llama_batch batch = llama_batch_init(static_cast<int32_t>(count), 0, 1);
  batch.n_tokens = static_cast<int32_t>(count);
  for (uint32_t i = 0; i < count; ++i) {
    batch.token[i] = static_cast<llama_token>(golden.tokens[first + i]);
    batch.pos[i] = static_cast<llama_pos>(first + i);
    batch.n_seq_id[i] = 1;
    batch.seq_id[i][0] = 0;
    batch.logits[i] = 1;
  }
  if (llama_decode(context, batch) != 0) die("llama_decode failed");
  llama_batch_free(batch);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) die("usage: llama-accuracy MODEL.gguf FILE.golden [flash attention: 0 or 1]");
  constexpr uint32_t kChunk = 512;
  const Golden golden = read_golden(argv[2]);
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  llama_backend_init();
  llama_model* model = llama_model_load_from_file(argv[1], llama_model_default_params());
  if (model == nullptr) die(std::string("cannot load ") + argv[1]);
  llama_context_params params = llama_context_default_params();
  params.n_ctx = golden.positions;
  params.n_batch = params.n_ubatch = kChunk;
  params.n_threads = params.n_threads_batch = 2;
  params.flash_attn_type =
      argc > 3 && argv[3][0] == '1' ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
  llama_context* context = llama_init_from_model(model, params);
  if (context == nullptr) die("cannot make a context");

  std::vector<double> kl;
  uint32_t agreed = 0;
  for (uint32_t first = 0; first < golden.positions; first += kChunk) {
    const uint32_t count = std::min(kChunk, golden.positions - first);
    decode(context, golden, first, count);
    for (uint32_t i = 0; i < count; ++i) {
      const float* logits = llama_get_logits_ith(context, static_cast<int32_t>(i));
      const size_t row = first + i;
      kl.push_back(divergence(golden, row, logits));
      agreed += std::max_element(logits, logits + golden.vocab) - logits == golden.ids[row * golden.top];
    }
  }
  double sum = 0;
  for (const double value : kl) sum += value;
  std::sort(kl.begin(), kl.end());
  std::printf("{\"positions\": %zu, \"mean_kl\": %.4e, \"p99_kl\": %.4e, \"max_kl\": %.4e, \"top1\": %.4f}\n",
              kl.size(), sum / static_cast<double>(kl.size()), kl[kl.size() * 99 / 100], kl.back(),
              agreed / static_cast<double>(kl.size()));
  llama_free(context);
  llama_model_free(model);
}
