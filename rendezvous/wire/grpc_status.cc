#include "rendezvous/wire/grpc_status.h"

#include "rendezvous/wire/text.h"

namespace ddprun::rendezvous {
namespace {

constexpr size_t kStatusTextBytesMax = 1024;

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return {static_cast<grpc::StatusCode>(status.code()),
          CutText(status.message(), kStatusTextBytesMax)};
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  // A peer may send any number; an unknown code becomes UNKNOWN.
  const int code = status.error_code();
  const bool known = code > 0 && code <= static_cast<int>(absl::StatusCode::kUnauthenticated);
  return {known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown,
          status.error_message()};
}

}  // namespace ddprun::rendezvous
