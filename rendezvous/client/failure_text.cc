#include "rendezvous/client/failure_text.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "rendezvous/wire/grpc_status.h"

namespace ddprun::rendezvous {
namespace {

// What gRPC 1.51 says of a peer that speaks HTTP, but not this service.
bool IsForeign(const absl::Status& status) {
  return absl::IsUnimplemented(status) || absl::StrContains(status.message(), "http1.x server") ||
         absl::StrContains(status.message(), "http2 header with status");
}

// The reason at the end of gRPC's chain of errors.
absl::string_view LastReason(absl::string_view text) {
  static constexpr absl::string_view kMark = "last error: ";
  const size_t mark = text.rfind(kMark);
  if (mark != absl::string_view::npos) text.remove_prefix(mark + kMark.size());
  return text;
}

}  // namespace

absl::Status DescribeFailure(const std::string& target, const grpc::Status& status, bool was_open) {
  const absl::Status plain = FromGrpcStatus(status);
  if (plain.ok()) return plain;
  const absl::string_view reason = LastReason(plain.message());
  if (IsForeign(plain)) {
    return absl::UnimplementedError(absl::StrCat(
        target, " is not a ddprun rendezvous service: check host and port (it says: ", reason,
        ")"));
  }
  if (!IsWorthRetrying(plain)) {
    return {plain.code(), absl::StrCat("rendezvous service at ", target, ": ", plain.message())};
  }
  return {plain.code(), absl::StrCat(was_open ? "lost the rendezvous service at "
                                              : "cannot reach the rendezvous service at ",
                                     target, ": ", reason)};
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
