#ifndef DDPRUN_BASE_RNG_H_
#define DDPRUN_BASE_RNG_H_

#include <cstdint>
#include <string>

namespace ddprun {

// A small seeded generator (SplitMix64, Steele et al. 2014): the same seed gives the same numbers
// on every platform, which std::uniform_int_distribution does not promise. Not for secrets.
class Rng {
 public:
  explicit Rng(uint64_t seed) : state_(seed) {}

  uint64_t Next();
  // Uniform in [0, bound). Requires: bound > 0.
  uint64_t Below(uint64_t bound);
  // True with the probability `percent` / 100.
  bool Chance(uint32_t percent) { return Below(100) < percent; }

 private:
  uint64_t state_;
};

// `length` random lower-case letters and digits from the kernel's generator (getrandom(2)); for
// names of directories and run ids.
std::string RandomName(int length);

// A random 64-bit number from the kernel's generator; for terms and incarnations.
uint64_t RandomNumber();

}  // namespace ddprun

#endif  // DDPRUN_BASE_RNG_H_
