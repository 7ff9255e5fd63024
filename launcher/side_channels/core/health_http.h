#ifndef DDPRUN_LAUNCHER_SIDE_CHANNELS_CORE_HEALTH_HTTP_H_
#define DDPRUN_LAUNCHER_SIDE_CHANNELS_CORE_HEALTH_HTTP_H_

#include <cstddef>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// More than this of a request without its end is refused.
inline constexpr size_t kHttpHeadBytesMax = 8192;

// The whole HTTP/1.1 response to what a client has sent so far; nullopt = its head is not complete.
// GET and HEAD of /healthz, /health and / get 200 with `body` (JSON); all else gets 400, 404, 405
// or 431. The connection ends with the response. Any bytes are fine; linear in their number. Pure.
// Source: RFC 9112.
//
// No HTTP library is used. The agent's own loop must answer, because an answer from another thread
// would prove nothing about the loop; and libmicrohttpd, which another loop can drive, would bring
// GnuTLS into each agent.
std::optional<std::string> AnswerHealthRequest(absl::string_view received, absl::string_view body);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_SIDE_CHANNELS_CORE_HEALTH_HTTP_H_
