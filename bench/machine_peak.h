#pragma once

#include <cstddef>

// What one thread of this machine can do, measured in the run that states a fraction of it. Both need AVX-512
// VNNI.
namespace kvasir::bench {

// Seconds of CPU time this thread has used: other people's time slices do not count.
double thread_seconds();

// int8 multiply-adds per second of VPDPBUSD on registers alone; about 5 ms.
double int8_peak();

// Bytes per second of one forward pass over memory.
double read_bandwidth(const std::byte* data, size_t bytes);

}  // namespace kvasir::bench
