#include "ddprun/keyed_permutation.h"

#include <cmath>

#include "base/check.h"

// python/ddprun/data.py computes the same order, so a change here must be made there. After a
// change every kept checkpoint would be in the middle of another order
// (tests/unit/worker/data/orders.txt).
namespace ddprun {
namespace {

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15U;
constexpr uint64_t kEpochSalt = 0x5851f42d4c957f2dU;
// Halves of few values mix slowly: below this size 24 rounds, else 12. With 8 rounds the chi-square
// of how often each order of six samples comes is out of bounds, with 12 within; large sizes are
// bounded by time, a microsecond for a place. A table of 10^12 numbers would take 8 TB a rank, and
// a linear congruence leaves neighbors a constant apart.
constexpr uint64_t kSmallSize = 65536;
constexpr size_t kRoundsOfSmall = 24;
constexpr size_t kRounds = 12;

// SplitMix64's output function.
constexpr uint64_t Mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

// The smallest number whose square is at least `size`. Requires: size <= 2^62.
uint64_t RootAbove(uint64_t size) {
  auto root = static_cast<uint64_t>(std::sqrt(static_cast<double>(size)));
  while (root * root < size) ++root;
  while ((root - 1) * (root - 1) >= size) --root;
  return root;
}

}  // namespace

KeyedPermutation::KeyedPermutation(uint64_t size, uint64_t seed, uint64_t epoch)
    : size_(size), rounds_(size < kSmallSize ? kRoundsOfSmall : kRounds) {
  DDPRUN_CHECK(size >= 1 && size <= kSizeMax, "a permutation has 1 to 2^62 numbers");
  high_ = RootAbove(size);
  // Cycles of odd lengths are even permutations: with two odd halves the other half of all orders
  // could never come.
  high_ += high_ % 2;
  low_ = (size + high_ - 1) / high_;
  const uint64_t key = Mix(Mix(seed + kGolden) ^ Mix((epoch + 1) * kGolden + kEpochSalt));
  for (size_t round = 0; round < rounds_; ++round) {
    keys_[round] = Mix(key + (round + 1) * kGolden);
  }
}

uint64_t KeyedPermutation::Addend(size_t round, uint64_t half, uint64_t bound) const {
  // The upper 32 bits, scaled: halves have at most 2^31 + 1 values.
  return ((Mix(keys_[round] + half * kGolden) >> 32) * bound) >> 32;
}

uint64_t KeyedPermutation::Forward(uint64_t value) const {
  uint64_t high = value / low_;
  uint64_t low = value % low_;
  for (size_t round = 0; round < rounds_; round += 2) {
    high += Addend(round, low, high_);
    if (high >= high_) high -= high_;
    low += Addend(round + 1, high, low_);
    if (low >= low_) low -= low_;
  }
  return high * low_ + low;
}

uint64_t KeyedPermutation::Backward(uint64_t value) const {
  uint64_t high = value / low_;
  uint64_t low = value % low_;
  for (size_t round = rounds_; round > 0; round -= 2) {
    const uint64_t from_low = Addend(round - 1, high, low_);
    low = low >= from_low ? low - from_low : low + low_ - from_low;
    const uint64_t from_high = Addend(round - 2, low, high_);
    high = high >= from_high ? high - from_high : high + high_ - from_high;
  }
  return high * low_ + low;
}

// Cycle walking: repeats the network until the number is below `size`. This ends, because the
// network permutes its whole domain, so the cycle of a number below `size` returns to one. It ends
// soon, because the domain is hardly larger than `size`.
uint64_t KeyedPermutation::At(uint64_t place) const {
  DDPRUN_CHECK(place < size_, "a place beyond the end");
  uint64_t number = Forward(place);
  while (number >= size_) number = Forward(number);
  return number;
}

uint64_t KeyedPermutation::PlaceOf(uint64_t number) const {
  DDPRUN_CHECK(number < size_, "a number that isn't in the order");
  uint64_t place = Backward(number);
  while (place >= size_) place = Backward(place);
  return place;
}

}  // namespace ddprun
