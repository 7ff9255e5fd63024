#ifndef DDPRUN_WORKER_CUDA_ADAMW_MATH_H_
#define DDPRUN_WORKER_CUDA_ADAMW_MATH_H_

#include <cmath>

#include "worker/cuda/flat_adamw.h"

// One formula for GPU and CPU: compiled by nvcc and by the C++ compiler.
#ifdef __CUDACC__
#define DDPRUN_HOST_DEVICE __host__ __device__
#else
#define DDPRUN_HOST_DEVICE
#endif

namespace ddprun::worker::cuda {

// The factors that are the same for all elements of a step.
struct AdamWFactors {
  float gradient = 1;  // unscales and clips
  float decay = 1;     // 1 - learning rate x weight decay
  float one_less_beta1 = 0;
  float beta2 = 0;
  float one_less_beta2 = 0;  // in double precision: 1 - 0.999F is off by 1e-5 of itself
  float step_size = 0;       // learning rate over the correction of exp_avg
  float root_of_correction2 = 1;
  float epsilon = 0;
};

// The factor that clips gradients to `max_norm` (0 = no clipping), as in
// torch.nn.utils.clip_grad_norm_.
DDPRUN_HOST_DEVICE inline double ClipFactor(double sum_of_squares, double max_norm) {
  if (max_norm <= 0) return 1;
  const double factor = max_norm / (sqrt(sum_of_squares) + 1e-6);
  return factor < 1 ? factor : 1;
}

DDPRUN_HOST_DEVICE inline AdamWFactors FactorsOf(const AdamWStep& step, double sum_of_squares) {
  const double correction1 = 1 - pow(step.beta1, static_cast<double>(step.step));
  const double correction2 = 1 - pow(step.beta2, static_cast<double>(step.step));
  AdamWFactors factors;
  factors.gradient =
      static_cast<float>(step.inverse_scale * ClipFactor(sum_of_squares, step.max_norm));
  factors.decay = static_cast<float>(1 - step.learning_rate * step.weight_decay);
  factors.one_less_beta1 = static_cast<float>(1 - step.beta1);
  factors.beta2 = static_cast<float>(step.beta2);
  factors.one_less_beta2 = static_cast<float>(1 - step.beta2);
  factors.step_size = static_cast<float>(step.learning_rate / correction1);
  factors.root_of_correction2 = static_cast<float>(sqrt(correction2));
  factors.epsilon = static_cast<float>(step.epsilon);
  return factors;
}

DDPRUN_HOST_DEVICE inline void UpdateElement(const AdamWFactors& factors, float gradient,
                                             float& parameter, float& exp_avg, float& exp_avg_sq) {
  gradient *= factors.gradient;
  exp_avg += factors.one_less_beta1 * (gradient - exp_avg);
  exp_avg_sq = factors.beta2 * exp_avg_sq + factors.one_less_beta2 * gradient * gradient;
  const float divisor = sqrtf(exp_avg_sq) / factors.root_of_correction2 + factors.epsilon;
  parameter = parameter * factors.decay - factors.step_size * exp_avg / divisor;
}

}  // namespace ddprun::worker::cuda

#endif  // DDPRUN_WORKER_CUDA_ADAMW_MATH_H_
