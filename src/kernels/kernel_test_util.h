#pragma once

#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/table.h"

// Shared by the kernel tests.
namespace kvasir {

// The instruction sets this machine can run, the scalar reference first.
inline std::vector<Isa> runnable_isas() {
  std::vector<Isa> isas;
  for (const Isa isa : all_isas()) {
    if (isa_supported(isa)) isas.push_back(isa);
  }
  return isas;
}

// Names a parametrised test after its instruction set.
inline std::string isa_test_name(const testing::TestParamInfo<Isa>& info) {
  std::string name(isa_name(info.param));
  std::erase(name, '-');
  return name;
}

// n values around zero; reproducible.
inline std::vector<float> normal_values(size_t n, float deviation, uint32_t seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> values(n);
  for (float& v : values) v = normal(engine);
  return values;
}

inline bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

}  // namespace kvasir
