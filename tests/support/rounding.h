#ifndef DDPRUN_TESTS_SUPPORT_ROUNDING_H_
#define DDPRUN_TESTS_SUPPORT_ROUNDING_H_

#include <cmath>

namespace ddprun::testing {

// How far a correct optimizer's parameters may be from what real numbers would give, on any CPU:
// kernels differ in which products and sums they fuse, and in what they do with the elements that
// don't fill a vector register. Two correct ones are up to twice that apart. All is to the first
// order in u, half a unit in the last place of 1, for float32. Gradients don't depend on the
// parameters, and no step enlarges what the one before left, so that the errors of steps add up.
inline constexpr double kUnit = 1.0 / (1 << 24);

struct AdamWPath {
  double rate = 1e-3;  // the largest
  double largest = 0;  // that any parameter ever is, its sign aside
  double steps = 1;    // T
  double beta1 = 0.9;  // less than beta2
  double beta2 = 0.999;
  double gradient_error = 0;  // of each gradient, in u of itself
};

// One element; G is the greatest of its gradients:
// - m' = m + (1 - beta1) (g - m), in whatever form, is rounded at most three times by u G. Over t
//   steps that adds up to 3 u G (1 - beta1^t) / (1 - beta1); the correction takes the power away.
// - v' = beta2 v + (1 - beta2) g g: 3 u of the old part and 4 u of the new, so (3 t + 1) u of v.
//   The root halves that; root, correction and epsilon add 5 u.
// - The quotient is multiplied by the rate: 3 u.
// - An error of the gradients goes into m unchanged, and into the root of v.
// G / sqrt(v^) is at most `root`, because no gradient has a smaller weight in v^ than the first,
// and m^ / sqrt(v^) at most `lean`, by Cauchy and Schwarz: the newest gradient is the one whose
// weight in m^ exceeds that in v^ most. The parameter is rounded by 3 u of itself, for decay and
// sum.
inline double AdamWRounding(const AdamWPath& path) {
  const double sum1 = (1 - std::pow(path.beta1, path.steps)) / (1 - path.beta1);
  const double sum2 = (1 - std::pow(path.beta2, path.steps)) / (1 - path.beta2);
  const double root = std::sqrt(sum2 / std::pow(path.beta2, path.steps - 1));
  const double lean = std::sqrt(sum2 / sum1);
  const double step = 3 / (1 - path.beta1) * root + lean * (1.5 * path.steps + 8.5) +
                      path.gradient_error * (root + lean);
  return path.steps * kUnit * (3 * path.largest + path.rate * step);
}

struct SgdPath {
  double rate = 1e-2;
  double largest = 0;   // that any parameter ever is, its sign aside
  double gradient = 1;  // the largest, with the decay's share
  double steps = 1;
  double momentum = 0;
};

// b' = momentum b + g is rounded by at most 5 u of the largest b, a decay's share of g and
// Nesterov's sum included, and errors of b add up as b itself does; the product with the rate adds
// 2 u of b, the sum u of the parameter.
inline double SgdRounding(const SgdPath& path) {
  const double sum = 1 / (1 - path.momentum);
  const double buffer = path.gradient * sum;
  return path.steps * kUnit * (path.largest + path.rate * buffer * (5 * sum + 2));
}

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SUPPORT_ROUNDING_H_
