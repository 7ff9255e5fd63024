#include "ddprun/autocast.h"

#include <ATen/autocast_mode.h>

#include "absl/strings/str_cat.h"

namespace ddprun {

namespace {

// The copies of parameters that autocast keeps are found by parameter, whatever type they have.
void SetType(torch::DeviceType device, torch::Dtype type) {
  if (at::autocast::get_autocast_dtype(device) != type) at::autocast::clear_cache();
  at::autocast::set_autocast_dtype(device, type);
}

}  // namespace

absl::StatusOr<MixedPrecision> ParseMixedPrecision(const std::string& word) {
  if (word == "no") return MixedPrecision::kNo;
  if (word == "fp16") return MixedPrecision::kFloat16;
  if (word == "bf16") return MixedPrecision::kBFloat16;
  return absl::InvalidArgumentError(
      absl::StrCat("mixed precision '", word, "' is none of no, fp16, bf16"));
}

Autocast::Autocast(torch::DeviceType device, MixedPrecision precision)
    : device_(device),
      enabled_before_(at::autocast::is_autocast_enabled(device)),
      type_before_(at::autocast::get_autocast_dtype(device)) {
  at::autocast::set_autocast_enabled(device_, precision != MixedPrecision::kNo);
  if (precision != MixedPrecision::kNo) {
    SetType(device_, precision == MixedPrecision::kFloat16 ? torch::kHalf : torch::kBFloat16);
  }
  at::autocast::increment_nesting();
}

Autocast::~Autocast() {
  // The outermost one drops the copies of the parameters in half precision.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, enabled_before_);
  SetType(device_, type_before_);
}

}  // namespace ddprun
