#include "base/rng.h"

#include <sys/random.h>

#include "base/check.h"

namespace ddprun {

uint64_t Rng::Next() {
  state_ += 0x9e3779b97f4a7c15U;
  uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

uint64_t Rng::Below(uint64_t bound) {
  DDPRUN_CHECK(bound > 0, "Below needs a positive bound");
  return Next() % bound;
}

uint64_t RandomNumber() {
  uint64_t number = 0;
  // Up to 256 bytes are never interrupted nor short (getrandom(2)).
  const ssize_t got = getrandom(&number, sizeof(number), 0);
  DDPRUN_CHECK(got == static_cast<ssize_t>(sizeof(number)), "getrandom failed");
  return number;
}

std::string RandomName(int length) {
  static constexpr char kAlphabet[] = "abcdefghijklmnopqrstuvwxyz0123456789";
  Rng rng(RandomNumber());
  std::string name;
  for (int i = 0; i < length; ++i) name += kAlphabet[rng.Below(sizeof(kAlphabet) - 1)];
  return name;
}

}  // namespace ddprun
