#include "ddprun/keyed_permutation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "tests/support/trees.h"

namespace ddprun {
namespace {

constexpr uint64_t kLargeSizes[] = {65535,
                                    65536,
                                    65537,
                                    (uint64_t{1} << 32) - 1,
                                    uint64_t{1} << 32,
                                    (uint64_t{1} << 32) + 1,
                                    1'000'000'000'000,
                                    (uint64_t{1} << 62) - 1,
                                    uint64_t{1} << 62};

std::vector<uint64_t> OrderOf(uint64_t size, uint64_t seed, uint64_t epoch) {
  const KeyedPermutation order(size, seed, epoch);
  std::vector<uint64_t> numbers(size);
  for (uint64_t place = 0; place < size; ++place) numbers[place] = order.At(place);
  return numbers;
}

// χ² of counts that should be alike.
double ChiSquare(const std::vector<uint64_t>& counts) {
  uint64_t total = 0;
  for (const uint64_t count : counts) total += count;
  const double expected = static_cast<double>(total) / static_cast<double>(counts.size());
  double sum = 0;
  for (const uint64_t count : counts) {
    const double off = static_cast<double>(count) - expected;
    sum += off * off / expected;
  }
  return sum;
}

// What χ² of `cells` cells exceeds with a probability of at most e^-20, 2 in 10^9: Laurent and
// Massart, Annals of Statistics 28 (2000), lemma 1.
double ChiSquareBound(size_t cells) {
  const double freedom = static_cast<double>(cells) - 1;
  return freedom + 2 * std::sqrt(freedom * 20) + 2 * 20;
}

TEST(KeyedPermutation, EachNumberOnceAtEachSize) {
  for (uint64_t size = 1; size <= 3000; ++size) {
    const KeyedPermutation order(size, size * 7, size % 5);
    std::vector<bool> seen(size);
    for (uint64_t place = 0; place < size; ++place) {
      const uint64_t number = order.At(place);
      ASSERT_LT(number, size);
      ASSERT_FALSE(seen[number]) << size;
      seen[number] = true;
      ASSERT_EQ(place, order.PlaceOf(number)) << size;
    }
  }
}

TEST(KeyedPermutation, ThereAndBackAtLargeSizes) {
  for (const uint64_t size : kLargeSizes) {
    const KeyedPermutation order(size, 3, 4);
    const KeyedPermutation places(size, 99, 0);  // some that are scattered
    for (uint64_t i = 0; i < 2000; ++i) {
      const uint64_t place = i < 4 ? size - 1 - i : places.At(i);
      ASSERT_LT(order.At(place), size);
      ASSERT_EQ(place, order.PlaceOf(order.At(place)));
      ASSERT_EQ(place, order.At(order.PlaceOf(place)));
    }
  }
}

TEST(KeyedPermutation, OrdersAreThoseOfTheFile) {
  std::ifstream file(InSourceTree("tests/unit/worker/data/orders.txt"));
  int checked = 0;
  for (std::string line; std::getline(file, line);) {
    if (line[0] == '#') continue;
    const std::vector<std::string> halves = absl::StrSplit(line, ": ");
    std::vector<uint64_t> key;
    std::vector<uint64_t> numbers;
    for (const auto word : absl::StrSplit(halves.at(0), ' ')) {
      ASSERT_TRUE(absl::SimpleAtoi(word, &key.emplace_back()));
    }
    for (const auto word : absl::StrSplit(halves.at(1), ' ')) {
      ASSERT_TRUE(absl::SimpleAtoi(word, &numbers.emplace_back()));
    }
    const KeyedPermutation order(key.at(0), key.at(1), key.at(2));
    EXPECT_EQ(numbers.back(), order.At(key[0] - 1)) << line;
    for (size_t i = 0; i + 1 < numbers.size(); ++i) EXPECT_EQ(numbers[i], order.At(i)) << line;
    ++checked;
  }
  EXPECT_GT(checked, 90);
}

// With few samples every order must occur, and all equally often.
TEST(KeyedPermutation, AllOrdersOfAFewAreAsLikely) {
  size_t orders = 1;
  for (uint64_t size = 2; size <= 7; ++size) {
    orders *= size;
    std::map<std::vector<uint64_t>, uint64_t> seen;
    for (uint64_t seed = 0; seed < 20 * orders; ++seed) ++seen[OrderOf(size, seed, 3)];
    std::vector<uint64_t> counts(orders);
    size_t next = 0;
    for (const auto& [order, count] : seen) counts.at(next++) = count;
    EXPECT_LT(ChiSquare(counts), ChiSquareBound(orders)) << size;
  }
}

TEST(KeyedPermutation, EachPlaceGetsEachNumberAsOften) {
  for (const uint64_t size : {50U, 97U, 256U}) {
    std::vector<std::vector<uint64_t>> counts(3, std::vector<uint64_t>(size));
    for (uint64_t epoch = 0; epoch < 50 * size; ++epoch) {
      const KeyedPermutation order(size, 11, epoch);
      ++counts[0][order.At(0)];
      ++counts[1][order.At(size / 2)];
      ++counts[2][order.At(size - 1)];
    }
    for (const auto& of_place : counts) EXPECT_LT(ChiSquare(of_place), ChiSquareBound(size));
  }
}

// Neighbours in the order, and what one place holds in epochs that follow each other, say nothing
// of each other: each pair of 32 × 32 ranges comes as often.
TEST(KeyedPermutation, NeighboursAreIndependent) {
  constexpr uint64_t kRanges = 32;
  for (const uint64_t size : {uint64_t{1'000'000}, uint64_t{1'000'000'000'000}}) {
    const KeyedPermutation order(size, 5, 0);
    const KeyedPermutation next_epoch(size, 5, 1);
    const KeyedPermutation next_seed(size, 6, 0);
    std::vector<std::vector<uint64_t>> counts(3, std::vector<uint64_t>(kRanges * kRanges));
    const auto range = [size](uint64_t number) { return number / (size / kRanges + 1); };
    for (uint64_t place = 0; place < 100'000; ++place) {
      const uint64_t row = range(order.At(place)) * kRanges;
      ++counts[0][row + range(order.At(place + 1))];
      ++counts[1][row + range(next_epoch.At(place))];
      ++counts[2][row + range(next_seed.At(place))];
    }
    for (const auto& pairs : counts) EXPECT_LT(ChiSquare(pairs), ChiSquareBound(pairs.size()));
  }
}

// Two random orders agree at one place on average, about as Poisson says.
TEST(KeyedPermutation, EpochsAgreeByChanceOnly) {
  constexpr uint64_t kEpochs = 2000;
  uint64_t agreeing = 0;
  std::vector<uint64_t> before = OrderOf(100, 8, 0);
  for (uint64_t epoch = 1; epoch <= kEpochs; ++epoch) {
    std::vector<uint64_t> after = OrderOf(100, 8, epoch);
    for (size_t place = 0; place < 100; ++place) agreeing += before[place] == after[place];
    before = std::move(after);
  }
  EXPECT_NEAR(static_cast<double>(agreeing), kEpochs, 6 * std::sqrt(kEpochs));
}

}  // namespace
}  // namespace ddprun
