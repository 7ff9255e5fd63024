#include "worker/shm/reduce.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace ddprun::worker::shm {
namespace {

template <typename T>
std::vector<T> Reduced(DataType type, Reduction reduction,
                       const std::vector<std::vector<T>>& ranks) {
  std::vector<const std::byte*> sources;
  for (const std::vector<T>& rank : ranks) {
    sources.push_back(reinterpret_cast<const std::byte*>(rank.data()));
  }
  std::vector<T> out(ranks[0].size());
  Reduce(type, reduction, sources, reinterpret_cast<std::byte*>(out.data()), out.size());
  return out;
}

template <typename T>
using Values = std::vector<T>;

TEST(ReduceTest, EachReductionOfIntegers) {
  const std::vector<Values<int32_t>> ranks = {{1, -7, 12}, {3, 5, 10}, {2, 2, 9}};
  const auto reduced = [&](Reduction reduction) {
    return Reduced<int32_t>(DataType::kInt32, reduction, ranks);
  };
  EXPECT_EQ(reduced(Reduction::kSum), (Values<int32_t>{6, 0, 31}));
  EXPECT_EQ(reduced(Reduction::kProduct), (Values<int32_t>{6, -70, 1080}));
  EXPECT_EQ(reduced(Reduction::kMin), (Values<int32_t>{1, -7, 9}));
  EXPECT_EQ(reduced(Reduction::kMax), (Values<int32_t>{3, 5, 12}));
  EXPECT_EQ(reduced(Reduction::kBitAnd), (Values<int32_t>{0, -7 & 5 & 2, 8}));
  EXPECT_EQ(reduced(Reduction::kBitOr), (Values<int32_t>{3, -7 | 5 | 2, 15}));
  EXPECT_EQ(reduced(Reduction::kBitXor), (Values<int32_t>{0, -7 ^ 5 ^ 2, 15}));
}

TEST(ReduceTest, IntegersWrapAround) {
  const int64_t most = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(Reduced<int64_t>(DataType::kInt64, Reduction::kSum, {{most}, {1}})[0],
            std::numeric_limits<int64_t>::min());
  EXPECT_EQ(Reduced<int16_t>(DataType::kInt16, Reduction::kProduct, {{-300}, {300}})[0],
            static_cast<int16_t>(-90000));
  EXPECT_EQ(Reduced<int8_t>(DataType::kInt8, Reduction::kSum, {{100}, {100}})[0], -56);
  EXPECT_EQ(Reduced<uint8_t>(DataType::kUint8, Reduction::kSum, {{200}, {100}})[0], 44);
}

TEST(ReduceTest, TruthValuesStayTruthValues) {
  const std::vector<Values<uint8_t>> ranks = {{0, 1, 0, 1}, {0, 0, 1, 1}, {0, 1, 0, 1}};
  EXPECT_EQ(Reduced<uint8_t>(DataType::kBool, Reduction::kSum, ranks),
            (Values<uint8_t>{0, 1, 1, 1}));
  EXPECT_EQ(Reduced<uint8_t>(DataType::kBool, Reduction::kProduct, ranks),
            (Values<uint8_t>{0, 0, 0, 1}));
  EXPECT_EQ(Reduced<uint8_t>(DataType::kBool, Reduction::kBitXor, ranks),
            (Values<uint8_t>{0, 0, 1, 1}));
}

TEST(ReduceTest, FloatsInTheOrderOfRanksOverManyBlocks) {
  for (const size_t count : {size_t{1}, size_t{511}, size_t{512}, size_t{513}, size_t{5000}}) {
    std::vector<Values<float>> ranks(3, Values<float>(count));
    for (size_t i = 0; i < count; ++i) {
      ranks[0][i] = 1e8F + static_cast<float>(i);
      ranks[1][i] = -1e8F;
      ranks[2][i] = 0.25F;
    }
    const Values<float> sum = Reduced<float>(DataType::kFloat32, Reduction::kSum, ranks);
    const Values<float> mean = Reduced<float>(DataType::kFloat32, Reduction::kAverage, ranks);
    for (size_t i = 0; i < count; ++i) {
      const float expected = (ranks[0][i] + ranks[1][i]) + ranks[2][i];
      ASSERT_EQ(sum[i], expected) << i << " of " << count;
      ASSERT_EQ(mean[i], expected / 3) << i << " of " << count;
    }
  }
}

TEST(ReduceTest, TheResultMayTakeTheFirstOrTheLastSourcesPlace) {
  for (const size_t ranks : {2, 3}) {
    for (const size_t place : {size_t{0}, ranks - 1}) {
      std::vector<Values<double>> data(ranks, Values<double>(1000, 1.5));
      std::vector<const std::byte*> sources;
      for (auto& rank : data) sources.push_back(reinterpret_cast<const std::byte*>(rank.data()));
      Reduce(DataType::kFloat64, Reduction::kSum, sources,
             reinterpret_cast<std::byte*>(data[place].data()), 1000);
      EXPECT_EQ(data[place], Values<double>(1000, 1.5 * static_cast<double>(ranks)));
    }
  }
}

TEST(ReduceTest, HalvesAreAddedUpInFloat32AndRoundedOnce) {
  // 2048 + 1 + 1: in steps of float16, which counts by twos there, it would stay 2048.
  std::vector<Values<uint16_t>> ranks(3, Values<uint16_t>(1));
  const Values<float> values = {2048, 1, 1};
  for (size_t i = 0; i < 3; ++i) Float32ToFloat16(&values[i], ranks[i].data(), 1);
  const Values<uint16_t> sum = Reduced<uint16_t>(DataType::kFloat16, Reduction::kSum, ranks);
  float back = 0;
  Float16ToFloat32(sum.data(), &back, 1);
  EXPECT_EQ(back, 2050);
}

TEST(ReduceTest, KnowsWhatHasNoMeaning) {
  EXPECT_FALSE(IsReducible(DataType::kInt32, Reduction::kAverage));
  EXPECT_FALSE(IsReducible(DataType::kBool, Reduction::kAverage));
  EXPECT_FALSE(IsReducible(DataType::kFloat16, Reduction::kBitOr));
  EXPECT_TRUE(IsReducible(DataType::kBFloat16, Reduction::kAverage));
  EXPECT_TRUE(IsReducible(DataType::kBool, Reduction::kSum));
}

bool IsNan16(uint16_t half) { return (half & 0x7c00) == 0x7c00 && (half & 0x3ff) != 0; }

TEST(HalfFloatTest, EveryFloat16SurvivesTheWayThereAndBack) {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    float value = 0;
    uint16_t back = 0;
    PortableFloat16ToFloat32(&half, &value, 1);
    PortableFloat32ToFloat16(&value, &back, 1);
    if (IsNan16(half)) {
      ASSERT_TRUE(std::isnan(value) && IsNan16(back)) << bits;
    } else {
      ASSERT_EQ(back, half);
    }
  }
}

// Values around every border between two float16 numbers, where rounding decides.
TEST(HalfFloatTest, TheProcessorsInstructionsAndOursAgree) {
  std::vector<float> values;
  for (uint32_t bits = 0; bits < 0x7c00; ++bits) {
    const uint16_t pair[] = {static_cast<uint16_t>(bits), static_cast<uint16_t>(bits + 1)};
    float ends[2];
    PortableFloat16ToFloat32(pair, ends, 2);
    const float border = bits + 1 == 0x7c00 ? 65520.0F : (ends[0] + ends[1]) / 2;
    for (const float value : {ends[0], border, std::nextafter(border, 0.0F),
                              std::nextafter(border, std::numeric_limits<float>::infinity())}) {
      values.push_back(value);
      values.push_back(-value);
    }
  }
  values.push_back(std::numeric_limits<float>::infinity());
  values.push_back(std::numeric_limits<float>::denorm_min());
  while (values.size() % 8 != 0) values.push_back(0);
  std::vector<uint16_t> fast(values.size());
  std::vector<uint16_t> portable(values.size());
  Float32ToFloat16(values.data(), fast.data(), values.size());
  PortableFloat32ToFloat16(values.data(), portable.data(), values.size());
  EXPECT_EQ(fast, portable);
  std::vector<float> back_fast(values.size());
  std::vector<float> back_portable(values.size());
  Float16ToFloat32(fast.data(), back_fast.data(), values.size());
  PortableFloat16ToFloat32(fast.data(), back_portable.data(), values.size());
  EXPECT_EQ(back_fast, back_portable);
}

TEST(HalfFloatTest, BFloat16RoundsToTheNearestEven) {
  const auto rounded = [](uint32_t bits) {
    const auto value = std::bit_cast<float>(bits);
    uint16_t half = 0;
    Float32ToBFloat16(&value, &half, 1);
    return half;
  };
  EXPECT_EQ(rounded(0x3f808000), 0x3f80);  // half-way: to the even one below
  EXPECT_EQ(rounded(0x3f818000), 0x3f82);  // half-way: to the even one above
  EXPECT_EQ(rounded(0x3f808001), 0x3f81);
  EXPECT_EQ(rounded(0x7f7fffff), 0x7f80);  // the largest float32: infinity
  EXPECT_EQ(rounded(0xff800001), 0xffc0);  // a NaN stays one
}

}  // namespace
}  // namespace ddprun::worker::shm
