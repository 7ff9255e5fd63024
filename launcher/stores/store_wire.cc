#include "launcher/stores/store_wire.h"

#include <string>
#include <vector>
namespace ddprun::launcher {
namespace {

using agent::v1::StoreReply;
using agent::v1::StoreRequest;

template <typename Keys>
std::vector<std::string> ListOf(const Keys& keys) {
  return {keys.begin(), keys.end()};
}

}  // namespace

absl::StatusOr<StoreOperation> FromProto(const StoreRequest& request) {
  switch (request.operation_case()) {
    case StoreRequest::kSet:
      return SetKey{request.set().key(), request.set().value()};
    case StoreRequest::kGet:
      return GetKey{request.get().key(), TimeoutOf(request)};
    case StoreRequest::kWait:
      return WaitForKeys{ListOf(request.wait().keys()), TimeoutOf(request)};
    case StoreRequest::kAdd:
      return AddToKey{request.add().key(), request.add().amount()};
    case StoreRequest::kCheck:
      return CheckKeys{ListOf(request.check().keys())};
    case StoreRequest::kDelete:
      return DeleteKey{request.delete_().key()};
    case StoreRequest::kCompareSet:
      return CompareAndSetKey{request.compare_set().key(), request.compare_set().expected(),
                              request.compare_set().desired()};
    case StoreRequest::kCount:
      return CountKeys{};
    case StoreRequest::kGather:
      return GatherKeys{request.gather().key(), request.gather().value(),
                        ListOf(request.gather().keys()), TimeoutOf(request)};
    case StoreRequest::OPERATION_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(
      "store: the request has no operation that this agent knows; are the sender's and the agent's "
      "releases the same?");
}

StoreReply ToProto(const StoreResult& result) {
  StoreReply reply;
  if (result.value != nullptr) reply.set_value(*result.value);
  reply.set_number(result.number);
  reply.set_found(result.found);
  for (const auto& value : result.values) reply.add_values(*value);
  return reply;
}

std::string OperationName(const StoreRequest& request) {
  const auto* field = StoreRequest::descriptor()->FindFieldByNumber(request.operation_case());
  return field == nullptr ? "unknown" : field->name();
}

absl::Duration TimeoutOf(const StoreRequest& request) {
  if (request.has_get()) return absl::Milliseconds(request.get().timeout_ms());
  if (request.has_wait()) return absl::Milliseconds(request.wait().timeout_ms());
  if (request.has_gather()) return absl::Milliseconds(request.gather().timeout_ms());
  return absl::ZeroDuration();
}

}  // namespace ddprun::launcher
