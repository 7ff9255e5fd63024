#include "worker/torch/ddp/communication_hooks.h"

#include <ATen/Parallel.h>
#include <c10/core/DeviceGuard.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/torch/errors/exception_status.h"

namespace ddprun::worker {
namespace {

using FuturePointer = c10::intrusive_ptr<c10::ivalue::Future>;

// Python's bf16_compress_hook.
class BFloat16Hook : public c10d::CppCommHookInterface<c10::intrusive_ptr<c10d::ProcessGroup>> {
 public:
  using CppCommHookInterface::CppCommHookInterface;

  FuturePointer runHook(c10d::GradBucket& bucket) override {
    const torch::Tensor gradients = bucket.getBufferRef();
    const torch::Tensor compressed = gradients.to(torch::kBFloat16);
    compressed.div_(state_->getSize());
    std::vector<torch::Tensor> tensors = {compressed};
    return state_->allreduce(tensors)->getFuture()->then(
        [compressed, gradients](c10::ivalue::Future& sum) {
          if (sum.hasError()) std::rethrow_exception(sum.exception_ptr());
          return c10::IValue(gradients.copy_(compressed));
        },
        c10::TensorType::get());
  }
};

class ThreadedHook : public c10d::CommHookInterface {
 public:
  ThreadedHook(std::shared_ptr<CommunicationHook> hook, std::shared_ptr<Group> group,
               const std::vector<torch::Tensor>& parameters)
      : hook_(std::move(hook)), group_(std::move(group)) {
    for (const torch::Tensor& parameter : parameters) {
      places_.emplace(parameter.unsafeGetTensorImpl(), places_.size());
    }
    thread_ = std::thread([this] { Run(); });
  }

  ~ThreadedHook() override {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }

  FuturePointer runHook(c10d::GradBucket& bucket) override {
    Job job;
    job.bucket.index = bucket.getIndex();
    job.bucket.buffer = bucket.getBufferRef();
    job.bucket.gradients = bucket.getGradients();
    for (const torch::Tensor& parameter : bucket.getParameters()) {
      job.bucket.parameters.push_back(places_.at(parameter.unsafeGetTensorImpl()));
    }
    job.bucket.is_last = bucket.isLast();
    FuturePointer done = job.done;
    {
      const std::lock_guard lock(mutex_);
      jobs_.push_back(std::move(job));
    }
    changed_.notify_one();
    return done;
  }

  torch::Tensor parseHookResult(const c10::IValue& result) override { return result.toTensor(); }

 private:
  struct Job {
    GradientBucket bucket;
    FuturePointer done = c10::make_intrusive<c10::ivalue::Future>(c10::TensorType::get());
  };

  // The next job, or nothing at the end; jobs that were handed over are still done.
  std::optional<Job> Next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return ended_ || !jobs_.empty(); });
    if (jobs_.empty()) return std::nullopt;
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    return job;
  }

  void Run() {
    at::init_num_threads();  // as many as the training loop's, so that sums come out the same
    const torch::NoGradGuard no_grad;
    while (std::optional<Job> job = Next()) {
      const c10::DeviceGuard device(job->bucket.buffer.device());
      const absl::Status status =
          CatchExceptions([&] { return hook_->Average(job->bucket, *group_); });
      if (status.ok()) {
        job->done->markCompleted(c10::IValue(job->bucket.buffer));
      } else {
        job->done->setError(ToException(status));
      }
    }
  }

  const std::shared_ptr<CommunicationHook> hook_;
  const std::shared_ptr<Group> group_;
  std::unordered_map<const void*, size_t> places_;  // of the parameters, in their order
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;  // guarded by mutex_
  bool ended_ = false;    // guarded by mutex_
  std::thread thread_;    // last: it uses the others
};

}  // namespace

std::unique_ptr<c10d::CommHookInterface> MakeThreadedHook(
    std::shared_ptr<CommunicationHook> hook, std::shared_ptr<Group> group,
    const std::vector<torch::Tensor>& parameters) {
  return std::make_unique<ThreadedHook>(std::move(hook), std::move(group), parameters);
}

absl::Status RegisterHook(const DistributedDataParallelOptions& options, Context& context,
                          const std::vector<torch::Tensor>& parameters, c10d::Reducer& reducer,
                          c10d::Logger& logger,
                          const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  if (options.communication_hook != nullptr) {
    DDPRUN_ASSIGN_OR_RETURN(std::shared_ptr<Group> connections, Group::Create(context));
    logger.set_comm_hook(options.communication_hook->name());
    reducer.register_comm_hook(
        MakeThreadedHook(options.communication_hook, std::move(connections), parameters));
    return absl::OkStatus();
  }
  switch (options.built_in_hook) {
    case BuiltInHook::kNone:
      break;
    case BuiltInHook::kAllReduce:
      logger.set_comm_hook("ALLREDUCE");
      reducer.register_builtin_comm_hook(c10d::BuiltinCommHookType::ALLREDUCE);
      break;
    case BuiltInHook::kFloat16:
      logger.set_comm_hook("FP16_COMPRESS");
      reducer.register_builtin_comm_hook(c10d::BuiltinCommHookType::FP16_COMPRESS);
      break;
    case BuiltInHook::kBFloat16:
      logger.set_comm_hook("bf16_compress_hook");
      reducer.register_comm_hook(std::make_unique<BFloat16Hook>(group));
      break;
  }
  return absl::OkStatus();
}

}  // namespace ddprun::worker
