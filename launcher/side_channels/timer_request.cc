#include "launcher/side_channels/timer_request.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "launcher/side_channels/core/timer_table.h"

namespace ddprun::launcher {
namespace {

constexpr int64_t kSignalMax = 64;         // the kernel's _NSIG
constexpr double kExpirationMax = 1.0e12;  // beyond the year 30000

absl::Status Wrong(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("a watchdog request ", what));
}

}  // namespace

absl::StatusOr<TimerRequest> ParseTimerRequest(absl::string_view line) {
  if (line.size() > kTimerLineBytesMax) return Wrong("is longer than 4096 bytes");
  const nlohmann::json json =
      nlohmann::json::parse(line.begin(), line.end(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return Wrong("is no JSON object");
  const auto field = [&json](const char* name) {
    const auto found = json.find(name);
    return found == json.end() ? nlohmann::json() : *found;
  };
  const nlohmann::json version = field("version");
  if (!version.is_null() && version != 1) return Wrong("has a version other than 1");
  const nlohmann::json pid = field("pid");
  if (!pid.is_number_unsigned() || pid.get<uint64_t>() == 0 ||
      pid.get<uint64_t>() > uint64_t{std::numeric_limits<int32_t>::max()}) {
    return Wrong("has no pid");
  }
  const nlohmann::json scope = field("scope_id");
  if (!scope.is_string() ||
      scope.get_ref<const std::string&>().size() > TimerTable::kScopeBytesMax) {
    return Wrong("has no scope_id of at most 1024 bytes");
  }
  const nlohmann::json expiration = field("expiration_time");
  if (!expiration.is_number() || !(expiration.get<double>() <= kExpirationMax)) {
    return Wrong("has no expiration_time in seconds since the epoch");
  }
  TimerRequest request;
  request.pid = static_cast<uint32_t>(pid.get<uint64_t>());
  request.scope = scope.get<std::string>();
  request.expiration = expiration.get<double>();
  const nlohmann::json signal = field("signal");
  if (signal.is_null()) return request;
  if (!signal.is_number_integer() ||
      (signal.is_number_unsigned() && signal.get<uint64_t>() > uint64_t{kSignalMax})) {
    return Wrong("has a signal that doesn't exist");
  }
  request.signal = static_cast<int>(std::max<int64_t>(0, signal.get<int64_t>()));
  return request;
}

}  // namespace ddprun::launcher
