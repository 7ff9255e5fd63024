#include "worker/shm/reduce.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "base/check.h"
#include "worker/shm/half_float.h"

namespace ddprun::worker::shm {
namespace {

// Elements that are reduced at a time: their accumulators stay in the first-level cache.
constexpr size_t kBlock = 512;

// Signed sums and products wrap around instead of being undefined.
template <typename T>
auto Wrapping(T value) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<std::make_unsigned_t<std::common_type_t<T, int>>>(value);
  } else {
    return value;
  }
}

struct Sum {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(Wrapping(a) + Wrapping(b));
  }
};
struct Product {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(Wrapping(a) * Wrapping(b));
  }
};
struct Min {
  template <typename T>
  T operator()(T a, T b) const {
    return b < a ? b : a;
  }
};
struct Max {
  template <typename T>
  T operator()(T a, T b) const {
    return a < b ? b : a;
  }
};
struct BitAnd {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(a & b);
  }
};
struct BitOr {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(a | b);
  }
};
struct BitXor {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(a ^ b);
  }
};

// How elements of a type are read, accumulated and written. Generic: as the type itself.
template <typename T>
struct Plain {
  using Stored = T;
  using Accumulator = T;
  static void Load(const T* from, T* to, size_t count) { std::copy_n(from, count, to); }
  static void Store(const T* from, T* to, size_t count) { std::copy_n(from, count, to); }
};
struct Half {
  using Stored = uint16_t;
  using Accumulator = float;
  static constexpr auto Load = &Float16ToFloat32;
  static constexpr auto Store = &Float32ToFloat16;
};
struct Brain {
  using Stored = uint16_t;
  using Accumulator = float;
  static constexpr auto Load = &BFloat16ToFloat32;
  static constexpr auto Store = &Float32ToBFloat16;
};

using Sources = std::vector<const std::byte*>;

template <typename Format>
const typename Format::Stored* At(const std::byte* bytes) {
  return reinterpret_cast<const typename Format::Stored*>(bytes);
}

// Sources are read in blocks before `out` is written, so that it may be one of them.
template <typename Format, typename Operation>
void ReduceBlocks(const Sources& sources, std::byte* out, size_t count, Operation operation,
                  bool average) {
  using Accumulator = typename Format::Accumulator;
  std::array<Accumulator, kBlock> total;
  std::array<Accumulator, kBlock> next;
  for (size_t start = 0; start < count; start += kBlock) {
    const size_t size = std::min(kBlock, count - start);
    Format::Load(At<Format>(sources[0]) + start, total.data(), size);
    for (size_t rank = 1; rank < sources.size(); ++rank) {
      Format::Load(At<Format>(sources[rank]) + start, next.data(), size);
      for (size_t i = 0; i < size; ++i) total[i] = operation(total[i], next[i]);
    }
    if constexpr (std::is_floating_point_v<Accumulator>) {
      const auto ranks = static_cast<Accumulator>(sources.size());
      if (average) {
        for (size_t i = 0; i < size; ++i) total[i] /= ranks;
      }
    }
    Format::Store(total.data(), reinterpret_cast<typename Format::Stored*>(out) + start, size);
  }
}

// The most frequent case, two ranks' float32 or float64, in one pass without accumulators.
template <typename T>
void SumOfTwo(const Sources& sources, std::byte* out, size_t count) {
  const T* a = At<Plain<T>>(sources[0]);
  const T* b = At<Plain<T>>(sources[1]);
  T* sum = reinterpret_cast<T*>(out);
  for (size_t i = 0; i < count; ++i) sum[i] = a[i] + b[i];
}

template <typename Format>
void ReduceNumbers(Reduction reduction, const Sources& sources, std::byte* out, size_t count) {
  switch (reduction) {
    case Reduction::kSum:
    case Reduction::kAverage:
      return ReduceBlocks<Format>(sources, out, count, Sum(), reduction == Reduction::kAverage);
    case Reduction::kProduct:
      return ReduceBlocks<Format>(sources, out, count, Product(), false);
    case Reduction::kMin:
      return ReduceBlocks<Format>(sources, out, count, Min(), false);
    case Reduction::kMax:
      return ReduceBlocks<Format>(sources, out, count, Max(), false);
    case Reduction::kBitAnd:
    case Reduction::kBitOr:
    case Reduction::kBitXor:
      break;
  }
  DDPRUN_CHECK(false, "bit operations are for integers");
}

template <typename T>
void ReduceIntegers(Reduction reduction, const Sources& sources, std::byte* out, size_t count) {
  using Format = Plain<T>;
  if (reduction == Reduction::kBitAnd) {
    return ReduceBlocks<Format>(sources, out, count, BitAnd(), false);
  }
  if (reduction == Reduction::kBitOr) {
    return ReduceBlocks<Format>(sources, out, count, BitOr(), false);
  }
  if (reduction == Reduction::kBitXor) {
    return ReduceBlocks<Format>(sources, out, count, BitXor(), false);
  }
  ReduceNumbers<Format>(reduction, sources, out, count);
}

template <typename T>
void ReduceFloats(Reduction reduction, const Sources& sources, std::byte* out, size_t count) {
  if (reduction == Reduction::kSum && sources.size() == 2) {
    return SumOfTwo<T>(sources, out, count);
  }
  ReduceNumbers<Plain<T>>(reduction, sources, out, count);
}

Reduction OfTruthValues(Reduction reduction) {
  if (reduction == Reduction::kSum) return Reduction::kBitOr;
  if (reduction == Reduction::kProduct) return Reduction::kBitAnd;
  return reduction;
}

bool IsFloatingPoint(DataType type) {
  return type == DataType::kFloat16 || type == DataType::kBFloat16 || type == DataType::kFloat32 ||
         type == DataType::kFloat64;
}

}  // namespace

size_t SizeOf(DataType type) {
  switch (type) {
    case DataType::kBool:
    case DataType::kUint8:
    case DataType::kInt8:
      return 1;
    case DataType::kInt16:
    case DataType::kFloat16:
    case DataType::kBFloat16:
      return 2;
    case DataType::kInt32:
    case DataType::kFloat32:
      return 4;
    case DataType::kInt64:
    case DataType::kFloat64:
      return 8;
  }
  return 1;
}

const char* NameOf(DataType type) {
  constexpr const char* kNames[] = {"bool",  "uint8",   "int8",     "int16",   "int32",
                                    "int64", "float16", "bfloat16", "float32", "float64"};
  return kNames[static_cast<size_t>(type)];
}

const char* NameOf(Reduction reduction) {
  constexpr const char* kNames[] = {"sum", "average", "product", "min", "max", "and", "or", "xor"};
  return kNames[static_cast<size_t>(reduction)];
}

bool IsReducible(DataType type, Reduction reduction) {
  const bool bits = reduction == Reduction::kBitAnd || reduction == Reduction::kBitOr ||
                    reduction == Reduction::kBitXor;
  if (IsFloatingPoint(type)) return !bits;
  return reduction != Reduction::kAverage;
}

void Reduce(DataType type, Reduction reduction, const Sources& sources, std::byte* out,
            size_t count) {
  switch (type) {
    case DataType::kBool:
      return ReduceIntegers<uint8_t>(OfTruthValues(reduction), sources, out, count);
    case DataType::kUint8:
      return ReduceIntegers<uint8_t>(reduction, sources, out, count);
    case DataType::kInt8:
      return ReduceIntegers<int8_t>(reduction, sources, out, count);
    case DataType::kInt16:
      return ReduceIntegers<int16_t>(reduction, sources, out, count);
    case DataType::kInt32:
      return ReduceIntegers<int32_t>(reduction, sources, out, count);
    case DataType::kInt64:
      return ReduceIntegers<int64_t>(reduction, sources, out, count);
    case DataType::kFloat16:
      return ReduceNumbers<Half>(reduction, sources, out, count);
    case DataType::kBFloat16:
      return ReduceNumbers<Brain>(reduction, sources, out, count);
    case DataType::kFloat32:
      return ReduceFloats<float>(reduction, sources, out, count);
    case DataType::kFloat64:
      return ReduceFloats<double>(reduction, sources, out, count);
  }
}

}  // namespace ddprun::worker::shm
