#include "worker/torch/optim/not_finite.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/view_as_real.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace ddprun::worker {
namespace {

// A number of IEEE 754's form isn't finite when all bits of its exponent are set. One more at the
// exponent's lowest bit then carries into the sign bit, and only then: float32's 0x7f800000 +
// 0x00800000 = 0x80000000. The or of all sums has the sign bit where any number isn't finite; that
// needs no branch, so that a processor does several at a time. A sum of the values times 0 would be
// as short, but -O2 doesn't reorder additions of floating point.
template <typename Bits, Bits kExponent, Bits kLowestOfExponent>
bool AreFinite(const void* values, size_t count) {
  // Constant, for the vectorizer at -O2. A larger block would read more behind the first bad value.
  constexpr size_t kBlock = 4096;
  const char* bytes = static_cast<const char*>(values);
  const auto sum = [](const char* at) {
    Bits bits;
    std::memcpy(&bits, at, sizeof(bits));
    return static_cast<Bits>(static_cast<Bits>(bits & kExponent) + kLowestOfExponent);
  };
  const auto is_fine = [](Bits any) {
    return (any & static_cast<Bits>(~kExponent) & static_cast<Bits>(~(kLowestOfExponent - 1))) == 0;
  };
  size_t done = 0;
  for (; done + kBlock <= count; done += kBlock, bytes += kBlock * sizeof(Bits)) {
    Bits any = 0;
    for (size_t i = 0; i < kBlock; ++i) any |= sum(bytes + i * sizeof(Bits));
    if (!is_fine(any)) return false;
  }
  Bits any = 0;
  for (; done < count; ++done, bytes += sizeof(Bits)) any |= sum(bytes);
  return is_fine(any);
}

bool IsOfKnownType(const torch::Tensor& tensor) {
  const torch::ScalarType type = tensor.scalar_type();
  return type == torch::kDouble || type == torch::kFloat || type == torch::kBFloat16 ||
         type == torch::kHalf;
}

// Requires: contiguous, in CPU memory, of a known type.
bool IsFiniteOnCpu(const torch::Tensor& tensor) {
  const void* values = tensor.const_data_ptr();
  const auto count = static_cast<size_t>(tensor.numel());
  const torch::ScalarType type = tensor.scalar_type();
  if (type == torch::kDouble) {
    return AreFinite<uint64_t, 0x7ff0000000000000, 0x0010000000000000>(values, count);
  }
  if (type == torch::kFloat) return AreFinite<uint32_t, 0x7f800000, 0x00800000>(values, count);
  if (type == torch::kHalf) return AreFinite<uint16_t, 0x7c00, 0x0400>(values, count);
  return AreFinite<uint16_t, 0x7f80, 0x0080>(values, count);
}

}  // namespace

NotFinite FindNotFinite(const torch::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  torch::Tensor plain = tensor.detach();
  if (plain.is_complex()) plain = at::view_as_real(plain.resolve_conj());
  if (plain.numel() == 0 || !IsOfKnownType(plain)) return NotFinite::kNothing;
  const bool all_finite =
      plain.is_cpu() ? IsFiniteOnCpu(plain.contiguous()) : at::isfinite(plain).all().item<bool>();
  if (all_finite) return NotFinite::kNothing;
  return at::isnan(plain).any().item<bool>() ? NotFinite::kNan : NotFinite::kInfinity;
}

}  // namespace ddprun::worker
