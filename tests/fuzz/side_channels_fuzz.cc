#include "tests/fuzz/side_channels_fuzz.h"

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/match.h"
#include "base/check.h"
#include "launcher/side_channels/core/health_http.h"
#include "launcher/side_channels/core/timer_table.h"
#include "launcher/side_channels/timer_request.h"

namespace ddprun::launcher {

SideChannelsFuzzResult FuzzSideChannels(absl::string_view bytes) {
  SideChannelsFuzzResult result;
  const absl::StatusOr<TimerRequest> request = ParseTimerRequest(bytes);
  result.is_timer_request = request.ok();
  if (request.ok()) {
    DDPRUN_CHECK(bytes.size() <= kTimerLineBytesMax, "a line is bounded");
    DDPRUN_CHECK(request->pid > 0 && request->pid <= INT32_MAX, "a pid is one");
    DDPRUN_CHECK(request->signal >= 0 && request->signal <= 64, "a signal is one");
    DDPRUN_CHECK(request->expiration <= 1.0e12, "a deadline is a time");
    DDPRUN_CHECK(request->scope.size() <= TimerTable::kScopeBytesMax, "a scope is bounded");
  }
  const std::optional<std::string> answer = AnswerHealthRequest(bytes, "{}");
  result.is_answered = answer.has_value();
  if (answer.has_value()) {
    DDPRUN_CHECK(absl::StartsWith(*answer, "HTTP/1.1 "), "an answer is HTTP");
    DDPRUN_CHECK(answer->size() < 512, "an answer fits into a socket's buffer");
  } else {
    DDPRUN_CHECK(bytes.size() < kHttpHeadBytesMax, "nobody sends for ever");
  }
  return result;
}

}  // namespace ddprun::launcher
