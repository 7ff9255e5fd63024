#ifndef DDPRUN_WORKER_INCLUDE_DDPRUN_KEYED_PERMUTATION_H_
#define DDPRUN_WORKER_INCLUDE_DDPRUN_KEYED_PERMUTATION_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace ddprun {

// A random-looking order of the numbers 0 to size - 1 without a table: any place is computed in
// constant time, at any size. Each (seed, epoch) has an order of its own, the same on every machine
// and in Python (ddprun.data). Not for cryptography. Threads: any.
// Source: a Feistel network over a × b >= size with cycle walking (J. Black, P. Rogaway, "Ciphers
// with Arbitrary Finite Domains", CT-RSA 2002, methods 2 and 3); its round functions are SplitMix64
// (Steele, Lea, Flood, OOPSLA 2014).
class KeyedPermutation {
 public:
  static constexpr uint64_t kSizeMax = uint64_t{1} << 62;

  // Requires: 1 <= size <= kSizeMax.
  KeyedPermutation(uint64_t size, uint64_t seed, uint64_t epoch);

  uint64_t size() const { return size_; }

  // The number at a place. Requires: place < size.
  uint64_t At(uint64_t place) const;

  // The place of a number; the inverse of At(). Requires: number < size.
  uint64_t PlaceOf(uint64_t number) const;

 private:
  static constexpr size_t kRoundsMax = 24;

  // One pass through the network, and its inverse. The results are below high_ * low_.
  uint64_t Forward(uint64_t value) const;
  uint64_t Backward(uint64_t value) const;
  // The number below `bound` that a round adds to one half, computed from the other half.
  uint64_t Addend(size_t round, uint64_t half, uint64_t bound) const;

  uint64_t size_;
  uint64_t high_;  // values of the upper half, even
  uint64_t low_;   // values of the lower half
  size_t rounds_;
  std::array<uint64_t, kRoundsMax> keys_{};
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_INCLUDE_DDPRUN_KEYED_PERMUTATION_H_
