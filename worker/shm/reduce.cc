#include "worker/shm/reduce.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <type_traits>

#include "base/check.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace ddprun::worker::shm {
namespace {

constexpr uint32_t kFloat32Infinity = 0x7f800000;
constexpr uint16_t kFloat16Infinity = 0x7c00;

float ToFloat32(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t magnitude = half & 0x7fff;
  if (magnitude >= kFloat16Infinity) {  // infinity, or a NaN, made quiet as F16C does
    const uint32_t payload = (magnitude & 0x3ff) << 13;
    return std::bit_cast<float>(sign | kFloat32Infinity | payload |
                                (payload != 0 ? 0x400000U : 0U));
  }
  if (magnitude < 0x400) {  // subnormal: units of 2^-24
    const float value = static_cast<float>(magnitude) * 0x1p-24F;
    return sign != 0 ? -value : value;
  }
  return std::bit_cast<float>(sign | ((magnitude << 13) + (112U << 23)));
}

uint16_t ToFloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > kFloat32Infinity) {
    return static_cast<uint16_t>(sign | 0x7e00 | ((magnitude >> 13) & 0x3ff));
  }
  if (magnitude >= 0x477ff000) return sign | kFloat16Infinity;  // 65520 and more
  if (magnitude < 0x38800000) {  // below 2^-14: the addition rounds to units of 2^-24
    const float rounded = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(rounded) - 0x3f000000));
  }
  const uint32_t odd = (magnitude >> 13) & 1;
  return static_cast<uint16_t>(sign | ((magnitude - (112U << 23) + 0xfff + odd) >> 13));
}

uint16_t ToBFloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > kFloat32Infinity) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

#if defined(__x86_64__)
constexpr size_t kLanes = 8;

bool HasF16c() {
  static const bool has = [] {
    // Not every compiler's __builtin_cpu_supports() knows f16c; "avx" also asks the kernel.
    unsigned int eax = 0, ebx = 0, ecx = 0, edx = 0;
    return __builtin_cpu_supports("avx") && __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 &&
           (ecx & bit_F16C) != 0;
  }();
  return has;
}

__attribute__((target("avx,f16c"))) void F16cToFloat32(const uint16_t* from, float* to,
                                                       size_t count) {
  for (size_t i = 0; i + kLanes <= count; i += kLanes) {
    _mm256_storeu_ps(to + i,
                     _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
  }
}

__attribute__((target("avx,f16c"))) void F16cToFloat16(const float* from, uint16_t* to,
                                                       size_t count) {
  for (size_t i = 0; i + kLanes <= count; i += kLanes) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
  }
}
#endif

}  // namespace

void PortableFloat16ToFloat32(const uint16_t* from, float* to, size_t count) {
  for (size_t i = 0; i < count; ++i) to[i] = ToFloat32(from[i]);
}

void PortableFloat32ToFloat16(const float* from, uint16_t* to, size_t count) {
  for (size_t i = 0; i < count; ++i) to[i] = ToFloat16(from[i]);
}

void Float16ToFloat32(const uint16_t* from, float* to, size_t count) {
  size_t done = 0;
#if defined(__x86_64__)
  if (HasF16c()) {
    F16cToFloat32(from, to, count);
    done = count / kLanes * kLanes;
  }
#endif
  PortableFloat16ToFloat32(from + done, to + done, count - done);
}

void Float32ToFloat16(const float* from, uint16_t* to, size_t count) {
  size_t done = 0;
#if defined(__x86_64__)
  if (HasF16c()) {
    F16cToFloat16(from, to, count);
    done = count / kLanes * kLanes;
  }
#endif
  PortableFloat32ToFloat16(from + done, to + done, count - done);
}

void BFloat16ToFloat32(const uint16_t* from, float* to, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    to[i] = std::bit_cast<float>(static_cast<uint32_t>(from[i]) << 16);
  }
}

void Float32ToBFloat16(const float* from, uint16_t* to, size_t count) {
  for (size_t i = 0; i < count; ++i) to[i] = ToBFloat16(from[i]);
}

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
