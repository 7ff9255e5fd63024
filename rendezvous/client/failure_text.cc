#include "rendezvous/client/failure_text.h"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/errno_status.h"
#include "base/version.h"
#include "rendezvous/wire/grpc_settings.h"

namespace ddprun::rendezvous {
namespace {

// gRPC 1.51's texts for a peer that doesn't speak HTTP/2.
bool IsForeign(const absl::Status& status) {
  for (const absl::string_view sign :
       {"http1.x server", "http2 header with status", "Failed parsing HTTP/2"}) {
    if (absl::StrContains(status.message(), sign)) return true;
  }
  return false;
}

// The text of a connect that gRPC gave up. The kernel reports ECONNRESET for a socket that is shut
// down while it connects, and gRPC may report that instead of its own reason. A peer that resets a
// connection before it is established refuses it (ECONNREFUSED).
constexpr char kNothingComesBack[] =
    "nothing comes back: the way there or back is cut, a firewall drops packets, or the machine is "
    "down";

// gRPC's text when this process has no descriptor for another socket.
constexpr char kNoDescriptor[] = "Too many open files";

constexpr char kClosedHint[] =
    "; does it want a certificate (--tls_dir), or another one than ours?";

std::string TlsTrouble(const std::string& target, absl::string_view message) {
  if (absl::StrContains(message, "wrong version number")) {
    return absl::StrCat(target,
                        " answers without TLS: start all nodes of the job with --tls_dir, "
                        "or none, and check host and port");
  }
  return absl::StrCat("the certificate of ", target,
                      " is not one of this cluster (TLS: ", message.substr(message.rfind(':') + 1),
                      "): has it expired, and is ca.crt of --tls_dir the same there?");
}

}  // namespace

bool IsTlsTrouble(const absl::Status& status) {
  return absl::StrContains(status.message(), "Tls handshake failed") ||
         absl::StrContains(status.message(), "Ssl handshake failed");
}

std::string BareReason(absl::string_view text, absl::string_view closed_hint) {
  static constexpr absl::string_view kMark = "last error: ";
  const size_t mark = text.rfind(kMark);
  // Only texts with kMark get the hint: they are about a connection that closed before it could be
  // used, not about one that ended later.
  std::string hint;
  if (mark != absl::string_view::npos) {
    text.remove_prefix(mark + kMark.size());
    const bool was_made = !absl::StrContains(text, "Failed to connect to remote host");
    for (const absl::string_view closed :
         {"Socket closed", "Endpoint read failed", "Connection reset by peer", "Broken pipe"}) {
      if (was_made && absl::EndsWith(text, closed)) hint = std::string(closed_hint);
    }
  }
  return absl::StrReplaceAll(
      absl::StrCat(text, hint),
      {{"UNKNOWN: ", ""},
       {"UNAVAILABLE: ", ""},
       {"ipv4:", ""},
       {"ipv6:", ""},
       {"%5B", "["},
       {"%5D", "]"},
       {"Failed to connect to remote host: ", ""},
       {"Failed to create security handshaker",
        "our certificate and its key don't belong together, or can't be "
        "read"},
       {"DNS resolution failed for", "no address for"},
       {"connection attempt timed out before receiving SETTINGS frame",
        "something listens there, but does not answer"},
       {"tcp handshaker shutdown", kNothingComesBack},
       {"Failed to connect to remote host: Connection reset by peer", kNothingComesBack}});
}

absl::Status DescribeFailure(const std::string& target, const grpc::Status& status,
                             absl::string_view peer) {
  absl::Status plain = FromGrpcStatus(status);
  if (plain.ok()) return plain;
  if (IsTlsTrouble(plain)) {
    return absl::UnauthenticatedError(TlsTrouble(target, plain.message()));
  }
  // Our FrontDoor answers callers without TLS in HTTP/1, which gRPC reports without a quote.
  if (absl::StrContains(plain.message(), "http1.x server")) {
    return absl::UnimplementedError(
        absl::StrCat(target,
                     " speaks TLS only, or is not a ddprun rendezvous service: give --tls_dir DIR, "
                     "as the service has it, or check host and port"));
  }
  if (absl::IsUnimplemented(plain) && plain.message().empty()) {
    return absl::UnimplementedError(absl::StrCat(
        target, " is not a ddprun ", peer, ", or one of an older release (ddprun ", kVersion,
        " asks for something that it doesn't know): check host and port, "
        "or install this release there, too"));
  }
  if (IsForeign(plain) || absl::IsUnimplemented(plain)) {
    return absl::UnimplementedError(
        absl::StrCat(target, " is not a ddprun ", peer,
                     ", or speaks TLS only: check host and port, and --tls_dir (",
                     BareReason(plain.message(), kClosedHint), ")"));
  }
  if (IsWorthRetrying(plain) && absl::StrContains(plain.message(), kNoDescriptor)) {
    return absl::ResourceExhaustedError(
        absl::StrCat(target, ": ", BareReason(plain.message(), kClosedHint), LimitAdvice(EMFILE)));
  }
  if (IsWorthRetrying(plain)) return {plain.code(), BareReason(plain.message(), kClosedHint)};
  return {plain.code(), absl::StrCat(peer, " at ", target, ": ", plain.message())};
}

bool LacksDescriptors(const absl::Status& status) {
  return absl::IsResourceExhausted(status) && absl::StrContains(status.message(), kNoDescriptor);
}

bool IsWorthRetrying(const absl::Status& status) {
  static constexpr absl::StatusCode kFinal[] = {
      absl::StatusCode::kOk,
      absl::StatusCode::kInvalidArgument,
      absl::StatusCode::kAlreadyExists,
      absl::StatusCode::kPermissionDenied,
      absl::StatusCode::kResourceExhausted,
      absl::StatusCode::kFailedPrecondition,
      absl::StatusCode::kAborted,
      absl::StatusCode::kUnimplemented,
      absl::StatusCode::kUnauthenticated,
  };
  return std::find(std::begin(kFinal), std::end(kFinal), status.code()) == std::end(kFinal);
}

}  // namespace ddprun::rendezvous
