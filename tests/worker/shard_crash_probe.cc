// A worker of a sharded training that saves, and writes down each call that changes its disk.
//   shard_crash_probe STAGE DIRECTORY CALLS
// Two starts with five saves each, in all ways, a step twice; the promises are rank 0's. Calls of
// all ranks go to the file CALLS, in one order.
#include <fcntl.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "base/check.h"
#include "base/fd.h"
#include "base/status_macros.h"
#include "ddprun/checkpointer.h"
#include "ddprun/context.h"
#include "ddprun/run_worker.h"
#include "ddprun/zero_optimizer.h"
#include "tests/worker/shard_crash_training.h"
#include "worker/torch/checkpoint/atomic_file.h"

namespace {

using ddprun::Context;
using ddprun::ZeroOptimizer;
using ddprun::testing::CrashLayer;
using ddprun::testing::RecordedDisk;

class SharedRecord : public RecordedDisk {
 public:
  explicit SharedRecord(const char* path)
      : file_(open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)) {}

 private:
  void Note(Call call) override {
    const std::string text = ddprun::testing::Serialize(call);
    DDPRUN_CHECK(write(file_.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()),
                 "write the record");
  }
  const ddprun::Fd file_;
};

struct Training {
  std::shared_ptr<CrashLayer> layer = std::make_shared<CrashLayer>();
  std::unique_ptr<ZeroOptimizer> zero;

  absl::Status SetUp(Context& context, int stage) {
    DDPRUN_ASSIGN_OR_RETURN(
        zero, ZeroOptimizer::Create(layer, context, torch::optim::SGDOptions(0).momentum(0.5),
                                    {.stage = stage, .bucket_cap_mb = 0.0005}));
    (layer->weight.sum() + layer->bias.sum()).backward();
    return zero->Step();  // makes the momentum
  }
  absl::Status Fill(double number) {
    const torch::NoGradGuard no_grad;
    {
      const ZeroOptimizer::WholeParameters whole(*zero);
      for (torch::Tensor& tensor : layer->parameters()) tensor.fill_(number);
    }
    layer->mean.fill_(number);
    zero->ParametersChanged();
    DDPRUN_ASSIGN_OR_RETURN(const ddprun::ZeroState state, zero->ShardedState());
    for (const auto& [name, tensor] : state) {
      if (absl::StrContains(name, '@')) tensor.fill_(number);  // it lies there
    }
    return absl::OkStatus();
  }
};

absl::Status Main(int argc, char** argv) {
  if (argc != 4) {
    return absl::InvalidArgumentError("see the head of shard_crash_probe.cc for its arguments");
  }
  DDPRUN_ASSIGN_OR_RETURN(const std::unique_ptr<Context> context, Context::Create());
  SharedRecord disk(argv[3]);
  ddprun::worker::UseFileCalls(&disk);
  const absl::Cleanup back = [] { ddprun::worker::UseFileCalls(nullptr); };
  int64_t number = 0;
  for (int start = 0; start < 2; ++start) {
    Training training;
    DDPRUN_RETURN_IF_ERROR(training.SetUp(*context, argv[1][0] - '0'));
    ddprun::Checkpointer checkpointer(
        *context, training.layer, *training.zero,
        {.directory = argv[2], .keep = 2, .sharded = true, .tell_of_none = false});
    DDPRUN_RETURN_IF_ERROR(checkpointer.Restore().status());
    for (const int64_t step : {10, 20, 20, 30, 40}) {
      DDPRUN_RETURN_IF_ERROR(training.Fill(static_cast<double>(++number)));
      const ddprun::TrainingProgress progress = {.step = step, .epoch = number};
      if (number % 2 == 0) {
        DDPRUN_RETURN_IF_ERROR(checkpointer.Save(progress, 1.0 / static_cast<double>(step)));
      } else {
        DDPRUN_RETURN_IF_ERROR(checkpointer.SaveAsync(progress));
        DDPRUN_RETURN_IF_ERROR(training.Fill(1000));  // training goes on beside
        DDPRUN_RETURN_IF_ERROR(checkpointer.Wait());
      }
      if (context->is_main()) disk.Say(number);
      DDPRUN_RETURN_IF_ERROR(context->Barrier());
    }
  }
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) { return ddprun::RunWorker(argc, argv, Main); }
