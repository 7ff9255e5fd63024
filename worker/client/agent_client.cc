#include "worker/client/agent_client.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <limits>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/message_name.h"
#include "base/status_macros.h"
#include "ddprun/agent/v1/agent.grpc.pb.h"

namespace ddprun::worker {
namespace {

namespace wire = ::ddprun::agent::v1;

// The agent answers a wait whose time is over; gRPC's deadline, later by this, only guards against
// an agent that hangs. More than AgentServerOptions' generation_wait and peer_patience together.
constexpr absl::Duration kReplyMargin = absl::Seconds(20);

uint32_t WireMilliseconds(absl::Duration timeout) {
  const int64_t most = std::numeric_limits<uint32_t>::max();
  const absl::Duration rounded = absl::Ceil(timeout, absl::Milliseconds(1));
  return static_cast<uint32_t>(std::clamp<int64_t>(absl::ToInt64Milliseconds(rounded), 0, most));
}

// The connection that all calls of a client share.
struct Connection {
  std::string socket_path;
  std::string run_id;
  bool can_park = false;
  std::unique_ptr<wire::Agent::Stub> stub;

  // Sets the deadline on the monotonic clock.
  static void SetDeadline(grpc::ClientContext& context, absl::Duration timeout) {
    const int64_t milliseconds = absl::ToInt64Milliseconds(timeout + kReplyMargin);
    context.set_deadline(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                      gpr_time_from_millis(milliseconds, GPR_TIMESPAN)));
  }

  // A status of the same code, with the call and the agent in the text.
  absl::Status ToStatus(const grpc::Status& status, const std::string& what) const {
    if (status.ok()) return absl::OkStatus();
    return absl::Status(
        static_cast<absl::StatusCode>(status.error_code()),
        absl::StrCat(what, " at the agent '", socket_path, "' failed: ", status.error_message()));
  }
};

class GrpcStore : public KeyValueStore {
 public:
  GrpcStore(std::shared_ptr<const Connection> connection, uint64_t generation)
      : connection_(std::move(connection)), generation_(generation) {}

  absl::Status Set(const std::string& key, const std::string& value) override {
    wire::StoreRequest request;
    request.mutable_set()->set_key(key);
    request.mutable_set()->set_value(value);
    return Call(request, kStoreCallTimeout, absl::StrCat("set '", key, "'")).status();
  }

  absl::StatusOr<std::string> Get(const std::string& key, absl::Duration timeout) override {
    wire::StoreRequest request;
    request.mutable_get()->set_key(key);
    request.mutable_get()->set_timeout_ms(WireMilliseconds(timeout));
    DDPRUN_ASSIGN_OR_RETURN(wire::StoreReply reply,
                            Call(request, timeout, absl::StrCat("get '", key, "'")));
    return std::move(*reply.mutable_value());
  }

  absl::Status Wait(const std::vector<std::string>& keys, absl::Duration timeout) override {
    wire::StoreRequest request;
    for (const std::string& key : keys) request.mutable_wait()->add_keys(key);
    request.mutable_wait()->set_timeout_ms(WireMilliseconds(timeout));
    return Call(request, timeout, absl::StrCat("wait for ", keys.size(), " keys")).status();
  }

  absl::StatusOr<int64_t> Add(const std::string& key, int64_t amount) override {
    wire::StoreRequest request;
    request.mutable_add()->set_key(key);
    request.mutable_add()->set_amount(amount);
    DDPRUN_ASSIGN_OR_RETURN(const wire::StoreReply reply,
                            Call(request, kStoreCallTimeout, absl::StrCat("add to '", key, "'")));
    return reply.number();
  }

  absl::StatusOr<bool> Check(const std::vector<std::string>& keys) override {
    wire::StoreRequest request;
    request.mutable_check();
    for (const std::string& key : keys) request.mutable_check()->add_keys(key);
    DDPRUN_ASSIGN_OR_RETURN(
        const wire::StoreReply reply,
        Call(request, kStoreCallTimeout, absl::StrCat("check ", keys.size(), " keys")));
    return reply.found();
  }

  absl::StatusOr<bool> Delete(const std::string& key) override {
    wire::StoreRequest request;
    request.mutable_delete_()->set_key(key);
    DDPRUN_ASSIGN_OR_RETURN(const wire::StoreReply reply,
                            Call(request, kStoreCallTimeout, absl::StrCat("delete '", key, "'")));
    return reply.found();
  }

  absl::StatusOr<std::string> CompareSet(const std::string& key, const std::string& expected,
                                         const std::string& desired) override {
    wire::StoreRequest request;
    request.mutable_compare_set()->set_key(key);
    request.mutable_compare_set()->set_expected(expected);
    request.mutable_compare_set()->set_desired(desired);
    DDPRUN_ASSIGN_OR_RETURN(
        wire::StoreReply reply,
        Call(request, kStoreCallTimeout, absl::StrCat("compare and set '", key, "'")));
    return std::move(*reply.mutable_value());
  }

  absl::StatusOr<int64_t> Count() override {
    wire::StoreRequest request;
    request.mutable_count();
    DDPRUN_ASSIGN_OR_RETURN(const wire::StoreReply reply,
                            Call(request, kStoreCallTimeout, "count the keys"));
    return reply.number();
  }

  absl::StatusOr<std::vector<std::string>> Gather(const std::string& key, const std::string& value,
                                                  const std::vector<std::string>& keys,
                                                  absl::Duration timeout) override {
    wire::StoreRequest request;
    wire::StoreGather& gather = *request.mutable_gather();
    gather.set_key(key);
    gather.set_value(value);
    for (const std::string& one : keys) gather.add_keys(one);
    gather.set_timeout_ms(WireMilliseconds(timeout));
    DDPRUN_ASSIGN_OR_RETURN(wire::StoreReply reply,
                            Call(request, timeout, absl::StrCat("gather ", keys.size(), " keys")));
    if (static_cast<size_t>(reply.values_size()) != keys.size()) {
      return absl::InternalError(absl::StrCat("the agent answered ", reply.values_size(),
                                              " values for ", keys.size(),
                                              " keys of the store: is it of this version?"));
    }
    return std::vector<std::string>(std::make_move_iterator(reply.mutable_values()->begin()),
                                    std::make_move_iterator(reply.mutable_values()->end()));
  }

 private:
  absl::StatusOr<wire::StoreReply> Call(wire::StoreRequest& request, absl::Duration timeout,
                                        const std::string& what) const {
    request.set_generation(generation_);
    request.set_run_id(connection_->run_id);
    grpc::ClientContext context;
    Connection::SetDeadline(context, timeout);
    wire::StoreReply reply;
    const grpc::Status status = connection_->stub->Store(&context, request, &reply);
    DDPRUN_RETURN_IF_ERROR(connection_->ToStatus(
        status, absl::StrCat("store of generation ", generation_, ": ", what)));
    return reply;
  }

  const std::shared_ptr<const Connection> connection_;
  const uint64_t generation_;
};

WorkerAssignment FromWire(const wire::WorkerAssignment& message) {
  WorkerAssignment assignment;
  assignment.generation = message.generation();
  assignment.rank = message.rank();
  assignment.local_rank = message.local_rank();
  assignment.world_size = message.world_size();
  assignment.local_world_size = message.local_world_size();
  assignment.group_rank = message.group_rank();
  assignment.group_world_size = message.group_world_size();
  assignment.restart_count = message.restart_count();
  assignment.max_restarts = message.max_restarts();
  assignment.run_id = message.run_id();
  assignment.master_addr = message.master_addr();
  assignment.master_port = message.master_port();
  assignment.node_address = message.node_address();
  return assignment;
}

// An assignment that no agent should send is refused here, so that the rest can rely on it.
absl::Status CheckAssignment(const WorkerAssignment& assignment, uint32_t local_rank) {
  const bool sound = assignment.generation > 0 && assignment.rank < assignment.world_size &&
                     assignment.local_rank < assignment.local_world_size &&
                     assignment.local_world_size <= assignment.world_size &&
                     assignment.local_rank == local_rank;
  if (sound) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(
      "the agent's assignment contradicts itself: generation ", assignment.generation, ", rank ",
      assignment.rank, " of ", assignment.world_size, ", local rank ", assignment.local_rank,
      " of ", assignment.local_world_size, ", asked for local rank ", local_rank));
}

// A call of AwaitGenerationEnd, in a thread of its own: when the thread is joined, nothing of the
// call is left. gRPC's callbacks don't promise that to a process that is about to end.
class GrpcGenerationWatch : public GenerationWatch {
 public:
  using OnEnd = std::function<void(absl::StatusOr<std::string>)>;

  GrpcGenerationWatch(std::shared_ptr<const Connection> connection, uint32_t local_rank,
                      uint64_t generation, OnEnd on_end)
      : connection_(std::move(connection)), on_end_(std::move(on_end)) {
    request_.set_local_rank(local_rank);
    request_.set_generation(generation);
    thread_ = std::thread([this] { Run(); });
  }

  ~GrpcGenerationWatch() override {
    given_up_ = true;
    context_.TryCancel();
    thread_.join();
  }

 private:
  void Run() {
    wire::GenerationEnd reply;
    const absl::Status failed = connection_->ToStatus(
        connection_->stub->AwaitGenerationEnd(&context_, request_, &reply),
        absl::StrCat("waiting for the end of generation ", request_.generation()));
    if (given_up_) return;
    failed.ok() ? on_end_(reply.why()) : on_end_(failed);
  }

  const std::shared_ptr<const Connection> connection_;
  const OnEnd on_end_;
  grpc::ClientContext context_;  // without a deadline
  wire::AwaitGenerationEndRequest request_;
  std::atomic<bool> given_up_ = false;
  std::thread thread_;
};

class GrpcAgentClient : public AgentClient {
 public:
  explicit GrpcAgentClient(std::shared_ptr<const Connection> connection)
      : connection_(std::move(connection)) {}

  absl::StatusOr<WorkerAssignment> GetAssignment(uint32_t local_rank, uint64_t after_generation,
                                                 absl::Duration timeout) override {
    wire::GetAssignmentRequest request;
    request.set_local_rank(local_rank);
    request.set_after_generation(after_generation);
    request.set_timeout_ms(WireMilliseconds(timeout));
    request.set_can_park(connection_->can_park);
    grpc::ClientContext context;
    Connection::SetDeadline(context, timeout);
    wire::WorkerAssignment reply;
    const grpc::Status status = connection_->stub->GetAssignment(&context, request, &reply);
    DDPRUN_RETURN_IF_ERROR(connection_->ToStatus(
        status, absl::StrCat("asking for the assignment of local rank ", local_rank)));
    WorkerAssignment assignment = FromWire(reply);
    DDPRUN_RETURN_IF_ERROR(CheckAssignment(assignment, local_rank));
    return assignment;
  }

  std::unique_ptr<GenerationWatch> WatchGeneration(
      uint32_t local_rank, uint64_t generation,
      std::function<void(absl::StatusOr<std::string>)> on_end) override {
    return std::make_unique<GrpcGenerationWatch>(connection_, local_rank, generation,
                                                 std::move(on_end));
  }

  std::shared_ptr<KeyValueStore> Store(uint64_t generation) override {
    return std::make_shared<GrpcStore>(connection_, generation);
  }

 private:
  const std::shared_ptr<const Connection> connection_;
};

}  // namespace

std::unique_ptr<AgentClient> AgentClient::Create(const std::string& socket_path,
                                                 const std::string& run_id, bool can_park) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  // This argument bounds a single attempt, until the agent's first frame. On a socket of the same
  // machine only an agent that waits for a core takes long.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS,
                   static_cast<int>(absl::ToInt64Milliseconds(kReplyMargin)));
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  // A value of the store has 16 MiB at most (docs/PROTOCOL.md, "Workers and their agent").
  arguments.SetMaxReceiveMessageSize(24 << 20);
  auto connection = std::make_shared<Connection>();
  connection->socket_path = socket_path;
  connection->run_id = NameInMessages(run_id);
  connection->can_park = can_park;
  connection->stub = wire::Agent::NewStub(grpc::CreateCustomChannel(
      absl::StrCat("unix:", socket_path), grpc::InsecureChannelCredentials(), arguments));
  return std::make_unique<GrpcAgentClient>(std::move(connection));
}

}  // namespace ddprun::worker
