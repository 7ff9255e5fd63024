#ifndef DDPRUN_LAUNCHER_STORES_STORE_WIRE_H_
#define DDPRUN_LAUNCHER_STORES_STORE_WIRE_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ddprun/agent/v1/agent.pb.h"
#include "launcher/stores/core/key_value_store.h"

namespace ddprun::launcher {

// One message of agent/v1: the largest value, and room for its key or for many keys to wait for.
inline constexpr size_t kAgentMessageBytesMax = StoreBounds{}.value_bytes + (8U << 20);

// Conversion between proto agent/v1 and the store's plain types. The store checks keys, sizes and
// numbers. Threads: any.
// Errors: INVALID_ARGUMENT — no operation, or one that this release doesn't know.
absl::StatusOr<StoreOperation> FromProto(const agent::v1::StoreRequest& request);
agent::v1::StoreReply ToProto(const StoreResult& result);

// The operation's name for messages: "set"; "unknown" when FromProto() refuses it.
std::string OperationName(const agent::v1::StoreRequest& request);
// How long the operation may wait for keys; zero for operations that never wait.
absl::Duration TimeoutOf(const agent::v1::StoreRequest& request);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STORES_STORE_WIRE_H_
