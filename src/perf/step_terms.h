#pragma once

#include <vector>

#include "base/dtype.h"

namespace kvasir {

// What a prediction of PerfModel is the sum of, before drift: work times rates, of one step or added up over
// several (PerfModel::add_terms). seconds() is the sum of the steps' StepPrediction::unadapted.
struct StepTerms {
  // The matrices of one format, in the layers or as the output head.
  struct Linear {
    DType type = DType::kF32;
    bool head = false;
    uint32_t experts = 0;  // of a layer; the seconds are those of the ones that rows choose
    double values = 0;     // weights; panels count as if they were full
    double uneven = 1;     // what the thread with most panels takes over what it would if they went evenly
    double steps = 0;      // that multiplied them
    // Seconds per weight of a step, from cache and from memory, added up over the steps.
    double cached = 0, memory = 0;

    double seconds(double uncached) const {
      return values * uneven * (cached + uncached * (memory - cached));
    }
  };
  // Work that comes so many times and takes so long each time.
  struct Work {
    double count = 0;
    double each = 0;  // seconds
    double seconds() const { return count * each; }
  };

  std::vector<Linear> linear = {};
  double away = 0;      // part of the weights that the last cache does not hold
  Work logits = {};     // bytes of logits that memory takes
  Work scans = {};      // rows of logits of which the best are looked for
  Work calls = {};      // of attention's kernel, in thread-seconds: the mean over the calls,
  Work positions = {};  // and over the positions that they walk over
  double threads = 1;   // that share the calls
  double waiting = 0;   // seconds that threads wait for the longest of them
  Work norms = {};      // row-wise work on the rows of the thread that has most: norms,
  Work alone = {};      // and the rest of it
  Work shared = {};     // and of rows that all threads work on
  Work head_rows = {};  // of the rows that want logits
  Work phases = {};     // of matrices: what they take to begin and to end
  Work barriers = {};   // others
  Work left_out = {};   // rows that end with the last layer's K and V, and what each saves

  double linear_seconds() const;
  double attention_seconds() const { return (calls.seconds() + positions.seconds()) / threads + waiting; }
  double row_seconds() const {
    return norms.seconds() + alone.seconds() + shared.seconds() + head_rows.seconds();
  }
  double seconds() const;
};

}  // namespace kvasir
