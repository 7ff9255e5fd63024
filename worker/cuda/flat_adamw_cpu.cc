#include <cmath>

#include "worker/cuda/adamw_math.h"
#include "worker/cuda/flat_adamw.h"

namespace ddprun::worker::cuda {
namespace {

const char* AddSquares(const float* gradients, uint64_t count, double inverse_scale, double* sum,
                       void* /*stream*/) {
  double added = 0;
  for (uint64_t i = 0; i < count; ++i) {
    const double gradient = gradients[i] * inverse_scale;
    added += gradient * gradient;
  }
  *sum += added;
  return nullptr;
}

const char* Update(const FlatShard& shard, const AdamWStep& step, const double* sum_of_squares,
                   void* /*stream*/) {
  if (!std::isfinite(*sum_of_squares)) return nullptr;
  const AdamWFactors factors = FactorsOf(step, *sum_of_squares);
  for (uint64_t i = 0; i < shard.count; ++i) {
    UpdateElement(factors, shard.gradients[i], shard.parameters[i], shard.exp_avg[i],
                  shard.exp_avg_sq[i]);
  }
  return nullptr;
}

}  // namespace

const FlatAdamW& CpuFlatAdamW() {
  static constexpr FlatAdamW kFunctions = {.add_squares = AddSquares, .update = Update};
  return kFunctions;
}

}  // namespace ddprun::worker::cuda
