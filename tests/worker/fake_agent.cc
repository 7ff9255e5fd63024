#include "tests/worker/fake_agent.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "base/check.h"
#include "ddprun/agent/v1/agent.grpc.pb.h"

namespace ddprun::testing {
namespace {

namespace wire = ::ddprun::agent::v1;

using Lock = std::unique_lock<std::mutex>;
using Milliseconds = std::chrono::milliseconds;

class Service : public wire::Agent::Service {
 public:
  explicit Service(FakeAgent::Options options) : options_(std::move(options)) {}

  grpc::Status GetAssignment(grpc::ServerContext*, const wire::GetAssignmentRequest* request,
                             wire::WorkerAssignment* reply) override {
    Lock lock(mutex_);
    if (request->timeout_ms() > 0 && options_.generation <= request->after_generation()) {
      ++rejoining_;
      changed_.notify_all();
      const auto deadline = std::chrono::steady_clock::now() + Milliseconds(request->timeout_ms());
      changed_.wait_until(lock, deadline, [&] {
        return gone_ || options_.generation > request->after_generation();
      });
    }
    if (!over_.empty()) return Aborted();
    if (request->local_rank() >= options_.world_size) {
      return {grpc::StatusCode::INVALID_ARGUMENT, "no such local rank"};
    }
    if (options_.generation <= request->after_generation()) {
      return {grpc::StatusCode::DEADLINE_EXCEEDED, "no newer generation"};
    }
    reply->set_generation(options_.generation);
    reply->set_rank(request->local_rank());
    reply->set_local_rank(request->local_rank());
    reply->set_world_size(options_.world_size);
    reply->set_local_world_size(options_.world_size);
    reply->set_group_world_size(1);
    reply->set_run_id(options_.run_id);
    reply->set_node_address("127.0.0.1");
    return grpc::Status::OK;
  }

  grpc::Status AwaitGenerationEnd(grpc::ServerContext* context,
                                  const wire::AwaitGenerationEndRequest* request,
                                  wire::GenerationEnd* reply) override {
    Lock lock(mutex_);
    // Looks now and then whether the caller is gone, which only this kind of server has to ask for.
    while (over_.empty() && options_.generation == request->generation()) {
      if (context->IsCancelled()) return grpc::Status::CANCELLED;
      changed_.wait_for(lock, Milliseconds(20));
    }
    if (gone_) return Aborted();
    reply->set_why(why_);
    return grpc::Status::OK;
  }

  grpc::Status Store(grpc::ServerContext*, const wire::StoreRequest* request,
                     wire::StoreReply* reply) override {
    Lock lock(mutex_);
    if (!over_.empty() || request->generation() != options_.generation) return Aborted();
    if (request->run_id() != options_.run_id) {
      return {grpc::StatusCode::INVALID_ARGUMENT, "foreign run id"};
    }
    if (!held_key_.empty() && request->ShortDebugString().find(held_key_) != std::string::npos) {
      Hold(lock);
      return Aborted();
    }
    const grpc::Status status = Do(lock, *request, reply);
    changed_.notify_all();
    return status;
  }

  void End(const std::string& why, bool gone) {
    const Lock lock(mutex_);
    over_ = why;
    why_ = why;
    gone_ = gone;
    changed_.notify_all();
  }

  void Begin(uint64_t generation, uint32_t world_size) {
    const Lock lock(mutex_);
    options_.generation = generation;
    options_.world_size = world_size;
    over_.clear();
    data_.clear();
    changed_.notify_all();
  }

  void AwaitRejoining(int count) {
    Lock lock(mutex_);
    changed_.wait(lock, [&] { return rejoining_ >= count; });
  }

  void AwaitWaiters(int count) {
    Lock lock(mutex_);
    changed_.wait(lock, [&] { return waiters_ >= count; });
  }

  void HoldStoreAt(const std::string& key) {
    const Lock lock(mutex_);
    held_key_ = key;
  }

  void AwaitHeld(int count) {
    Lock lock(mutex_);
    changed_.wait(lock, [&] { return held_ >= count; });
  }

 private:
  void Hold(Lock& lock) {
    ++held_;
    changed_.notify_all();
    const uint64_t generation = options_.generation;
    changed_.wait(lock, [&] { return !over_.empty() || options_.generation != generation; });
    --held_;
  }

  grpc::Status Aborted() const {
    return {grpc::StatusCode::ABORTED, over_.empty() ? "another generation is current" : over_};
  }

  grpc::Status Do(Lock& lock, const wire::StoreRequest& request, wire::StoreReply* reply) {
    switch (request.operation_case()) {
      case wire::StoreRequest::kSet:
        data_[request.set().key()] = request.set().value();
        return grpc::Status::OK;
      case wire::StoreRequest::kGet:
        return Get(lock, request.get(), reply);
      case wire::StoreRequest::kWait:
        return Wait(lock, {request.wait().keys().begin(), request.wait().keys().end()},
                    request.wait().timeout_ms());
      case wire::StoreRequest::kAdd:
        return Add(request.add(), reply);
      case wire::StoreRequest::kCheck:
        reply->set_found(HaveAll({request.check().keys().begin(), request.check().keys().end()}));
        return grpc::Status::OK;
      case wire::StoreRequest::kDelete:
        reply->set_found(data_.erase(request.delete_().key()) > 0);
        return grpc::Status::OK;
      case wire::StoreRequest::kCompareSet:
        return CompareSet(request.compare_set(), reply);
      case wire::StoreRequest::kCount:
        reply->set_number(static_cast<int64_t>(data_.size()));
        return grpc::Status::OK;
      case wire::StoreRequest::kGather:
        return Gather(lock, request.gather(), reply);
      case wire::StoreRequest::OPERATION_NOT_SET:
        break;
    }
    return {grpc::StatusCode::INVALID_ARGUMENT, "no operation"};
  }

  bool HaveAll(const std::vector<std::string>& keys) const {
    return std::all_of(keys.begin(), keys.end(),
                       [&](const std::string& key) { return data_.count(key) > 0; });
  }

  grpc::Status Wait(Lock& lock, const std::vector<std::string>& keys, uint32_t timeout_ms) {
    const auto deadline = std::chrono::steady_clock::now() + Milliseconds(timeout_ms);
    ++waiters_;
    changed_.notify_all();
    const uint64_t generation = options_.generation;
    const auto ended = [&] { return !over_.empty() || options_.generation != generation; };
    const bool done = changed_.wait_until(lock, deadline, [&] { return ended() || HaveAll(keys); });
    --waiters_;
    if (ended()) return Aborted();
    if (!done) return {grpc::StatusCode::DEADLINE_EXCEEDED, "key '" + keys[0] + "' is missing"};
    return grpc::Status::OK;
  }

  grpc::Status Get(Lock& lock, const wire::StoreGet& request, wire::StoreReply* reply) {
    const grpc::Status status = Wait(lock, {request.key()}, request.timeout_ms());
    if (status.ok()) reply->set_value(data_[request.key()]);
    return status;
  }

  grpc::Status Gather(Lock& lock, const wire::StoreGather& request, wire::StoreReply* reply) {
    if (!request.key().empty()) data_[request.key()] = request.value();
    changed_.notify_all();
    const grpc::Status status =
        Wait(lock, {request.keys().begin(), request.keys().end()}, request.timeout_ms());
    for (const std::string& key : request.keys()) {
      if (status.ok()) reply->add_values(data_[key]);
    }
    if (options_.keeps_values_back && status.ok()) reply->mutable_values()->RemoveLast();
    return status;
  }

  grpc::Status Add(const wire::StoreAdd& request, wire::StoreReply* reply) {
    std::string& value = data_[request.key()];
    const int64_t number = (value.empty() ? 0 : std::stoll(value)) + request.amount();
    value = std::to_string(number);
    reply->set_number(number);
    return grpc::Status::OK;
  }

  grpc::Status CompareSet(const wire::StoreCompareSet& request, wire::StoreReply* reply) {
    const auto found = data_.find(request.key());
    const bool matches =
        found == data_.end() ? request.expected().empty() : found->second == request.expected();
    if (matches) data_[request.key()] = request.desired();
    const auto after = data_.find(request.key());
    reply->set_value(after == data_.end() ? request.expected() : after->second);
    return grpc::Status::OK;
  }

  FakeAgent::Options options_;  // of the newest generation
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> data_;
  std::string over_;  // why the generation ended; "" = it runs
  std::string why_;   // why the last one did that ended
  bool gone_ = false;
  int rejoining_ = 0;  // calls that have waited for the next generation
  int waiters_ = 0;
  std::string held_key_;
  int held_ = 0;
};

class FakeAgentServer : public FakeAgent {
 public:
  explicit FakeAgentServer(const Options& options) : service_(options) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + options.socket_path, grpc::InsecureServerCredentials());
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    DDPRUN_CHECK(server_ != nullptr, options.socket_path);
  }
  ~FakeAgentServer() override {
    service_.End("the agent is gone", /*gone=*/true);
    server_->Shutdown();
  }

  void EndGeneration(const std::string& why) override { service_.End(why, /*gone=*/false); }
  void BeginGeneration(uint64_t generation, uint32_t world_size) override {
    service_.Begin(generation, world_size);
  }
  void AwaitRejoining(int count) override { service_.AwaitRejoining(count); }
  void AwaitWaiters(int count) override { service_.AwaitWaiters(count); }
  void HoldStoreAt(const std::string& key) override { service_.HoldStoreAt(key); }
  void AwaitHeld(int count) override { service_.AwaitHeld(count); }

 private:
  Service service_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace

std::unique_ptr<FakeAgent> FakeAgent::Start(const Options& options) {
  return std::make_unique<FakeAgentServer>(options);
}

}  // namespace ddprun::testing
