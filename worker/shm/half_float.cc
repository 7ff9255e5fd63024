#include "worker/shm/half_float.h"

#include <bit>

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

}  // namespace ddprun::worker::shm
