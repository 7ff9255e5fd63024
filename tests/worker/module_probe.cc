// A worker for the tests of modules: compares with what one process computes, and writes the
// greatest differences to FILE.RANK as lines "name value".
//   module_probe sync_batch_norm FILE FIRST    rank 0 has FIRST of the ten samples, rank 1 the
//   others module_probe checkpoint FILE               DDP with and without checkpointed activations
//   module_probe reads FILE PASSES [JOURNAL]   25 steps of a Session, of so many passes, and how
//                                              often a number was read out of a tensor
//   module_probe weights FILE FROM TO          loads weights, adds 1 to each, and writes them
#include <ATen/record_function.h>
#include <torch/nn/functional.h>
#include <torch/nn/modules.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <atomic>
#include <fstream>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ddprun/activation_checkpoint.h"
#include "ddprun/context.h"
#include "ddprun/distributed_data_parallel.h"
#include "ddprun/parameters.h"
#include "ddprun/session.h"
#include "ddprun/sync_batch_norm.h"
#include "ddprun/weights.h"
#include "tests/worker/probe_arguments.h"

namespace {

using ddprun::Context;
using ddprun::DistributedDataParallel;
namespace nn = torch::nn;

constexpr int64_t kSamples = 10;
constexpr int64_t kChannels = 6;

double Difference(const torch::Tensor& one, const torch::Tensor& other) {
  return one.numel() == 0 ? 0 : (one - other).abs().max().item<double>();
}

// The batch of all ranks, and a factor for each output.
struct Joined {
  explicit Joined(torch::ScalarType type)
      : batch((torch::randn({kSamples, kChannels, 4, 4}) * 3 + 1).to(type)),
        factors(torch::randn({kSamples, kChannels, 4, 4}).to(type)) {}
  torch::Tensor batch;
  torch::Tensor factors;
};

// Three steps of both, so that running statistics are mixed too.
absl::Status CompareBatchNorm(Context& context, int64_t first, torch::ScalarType type,
                              std::ofstream& out) {
  const char* kind = type == torch::kDouble ? "double_" : "float_";
  const bool is_first = context.rank() == 0;
  const auto part = [&](const torch::Tensor& all) {
    return is_first ? all.slice(0, 0, first) : all.slice(0, first);
  };
  nn::BatchNorm2d expected(kChannels);
  ddprun::nn::SyncBatchNorm synced(kChannels, context);
  nn::BatchNorm2d alone(kChannels);  // negative control: every rank for itself
  for (nn::Module* module :
       std::initializer_list<nn::Module*>{expected.get(), synced.get(), alone.get()}) {
    module->to(type);
  }
  const torch::Tensor weight = torch::rand({kChannels});
  for (torch::Tensor tensor : {expected->weight, synced->weight, alone->weight}) {
    const torch::NoGradGuard no_grad;
    tensor.copy_(weight);
  }
  for (int step = 0; step < 3; ++step) {
    const Joined joined(type);
    torch::Tensor all = joined.batch.clone().requires_grad_();
    torch::Tensor mine = part(joined.batch).clone().requires_grad_();
    const torch::Tensor expected_output = expected(all);
    const torch::Tensor output = synced(mine);
    (expected_output * joined.factors).sum().backward();
    (output * part(joined.factors)).sum().backward();
    out << kind << "output " << Difference(output, part(expected_output)) << "\n";
    out << kind << "input_gradient " << Difference(mine.grad(), part(all.grad())) << "\n";
    if (mine.size(0) > 0)
      out << kind << "alone " << Difference(alone(mine), part(expected_output)) << "\n";
  }
  torch::Tensor weight_gradient = synced->weight.grad().clone();
  torch::Tensor bias_gradient = synced->bias.grad().clone();
  DDPRUN_RETURN_IF_ERROR(context.AllReduceSum(weight_gradient));
  DDPRUN_RETURN_IF_ERROR(context.AllReduceSum(bias_gradient));
  constexpr double kSummed = 3 * kSamples * 16;  // values in a channel's sums
  out << kind << "weight_gradient "
      << Difference(weight_gradient, expected->weight.grad()) / kSummed << "\n";
  out << kind << "bias_gradient " << Difference(bias_gradient, expected->bias.grad()) / kSummed
      << "\n";
  out << kind << "running_mean " << Difference(synced->running_mean, expected->running_mean)
      << "\n";
  out << kind << "running_var " << Difference(synced->running_var, expected->running_var) << "\n";
  synced->eval();
  expected->eval();
  const Joined joined(type);
  out << kind << "evaluation " << Difference(synced(joined.batch), expected(joined.batch)) << "\n";
  return absl::OkStatus();
}

// A model with dropout and a block that is run twice a step.
struct BlocksImpl : nn::Module {
  explicit BlocksImpl(bool checkpointed_activations)
      : checkpointed(checkpointed_activations),
        first(register_module("first", nn::Linear(8, 32))),
        block(register_module("block", nn::Sequential(nn::Linear(32, 32), nn::GELU(),
                                                      nn::Dropout(0.3), nn::Linear(32, 32)))),
        last(register_module("last", nn::Linear(32, 4))) {}

  torch::Tensor forward(torch::Tensor x) {
    x = first(x);
    for (int i = 0; i < 2; ++i) {
      const auto part = [net = block.ptr()](const torch::Tensor& in) { return net->forward(in); };
      x = checkpointed ? ddprun::CheckpointActivations(part, x) : part(x);
    }
    return last(x);
  }

  bool checkpointed;
  nn::Linear first;
  nn::Sequential block;
  nn::Linear last;
};
TORCH_MODULE(Blocks);

absl::StatusOr<std::vector<torch::Tensor>> TrainBlocks(Context& context, bool checkpointed,
                                                       uint64_t seed) {
  torch::manual_seed(3);
  Blocks model(checkpointed);
  DDPRUN_ASSIGN_OR_RETURN(
      const std::unique_ptr<DistributedDataParallel> ddp,
      DistributedDataParallel::Create(model.ptr(), context, {.static_graph = true}));
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.05));
  torch::manual_seed(seed + context.rank());
  for (int step = 0; step < 5; ++step) {
    ddp->ZeroGrad();
    const torch::Tensor batch = torch::randn({16, 8});
    ddp->Forward([&] { return model(batch); }).square().mean().backward();
    optimizer.step();
  }
  std::vector<torch::Tensor> parameters;
  for (const torch::Tensor& parameter : model->parameters())
    parameters.push_back(parameter.detach());
  return parameters;
}

absl::Status CompareCheckpointed(Context& context, std::ofstream& out) {
  DDPRUN_ASSIGN_OR_RETURN(const auto plain, TrainBlocks(context, false, 50));
  DDPRUN_ASSIGN_OR_RETURN(const auto checkpointed, TrainBlocks(context, true, 50));
  DDPRUN_ASSIGN_OR_RETURN(const auto other_dropout, TrainBlocks(context, true, 60));
  bool same = true;
  bool other_same = true;
  for (size_t i = 0; i < plain.size(); ++i) {
    same = same && plain[i].equal(checkpointed[i]);
    other_same = other_same && plain[i].equal(other_dropout[i]);
  }
  out << "same " << same << "\nother_same " << other_same << "\n";
  return absl::OkStatus();
}

// weights_probe.py has the same.
struct TiedImpl : nn::Module {
  struct Head : nn::Module {
    explicit Head(const torch::Tensor& weight) { register_parameter("weight", weight); }
  };

  TiedImpl() { mid->to(torch::kBFloat16); }

  nn::Embedding wte = register_module("wte", nn::Embedding(10, 8));
  nn::BatchNorm1d norm = register_module("norm", nn::BatchNorm1d(8));
  nn::Linear mid = register_module("mid", nn::Linear(8, 8));
  std::shared_ptr<Head> lm_head = register_module("lm_head", std::make_shared<Head>(wte->weight));
};

absl::Status AddOne(Context& context, const std::string& from, const std::string& to) {
  TiedImpl model;
  DDPRUN_RETURN_IF_ERROR(ddprun::LoadWeights(model, from).status());
  const torch::NoGradGuard no_grad;
  for (torch::Tensor& tensor : ddprun::Parameters(model)) tensor.add_(1);
  for (torch::Tensor& tensor : ddprun::Buffers(model)) tensor.add_(1);
  return context.is_main() ? ddprun::SaveWeights(model, to) : absl::OkStatus();
}

// A line through no points in particular.
absl::Status CountReads(int64_t passes, const std::string& journal, const std::string& file) {
  static std::atomic<int> reads = 0;
  at::addGlobalCallback(at::RecordFunctionCallback([](const at::RecordFunction& function)
                                                       -> std::unique_ptr<at::ObserverContext> {
                          if (std::string_view(function.name()) == "aten::_local_scalar_dense")
                            ++reads;
                          return nullptr;
                        }).scopes({at::RecordScope::FUNCTION}));
  ddprun::Session session({.training = {.steps = 25,
                                        .batch_size = 2,
                                        .gradient_accumulation_steps = passes,
                                        .backend = "gloo",
                                        .journal = journal}});
  const torch::Tensor x = torch::arange(1000).to(torch::kFloat).view({-1, 1}) / 1000;
  auto line =
      session.Prepare(nn::Linear(1, 1), ddprun::AdamW(), ddprun::TensorDataset(x, x * 3 + 1));
  for (const ddprun::Batch& batch : session.Batches()) {
    session.Backward((line(batch.inputs) - batch.targets).square().mean());
    session.Step();
  }
  std::ofstream(absl::StrCat(file, ".", session.context().rank())) << "reads " << reads << "\n";
  return absl::OkStatus();
}

absl::Status Main(int argc, char** argv) {
  at::set_num_threads(1);
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() < 2) {
    return absl::InvalidArgumentError("see the head of module_probe.cc for its arguments");
  }
  if (arguments[0] == "reads") {
    const std::string journal = arguments.size() > 3 ? arguments[3] : "";
    return CountReads(std::stoll(arguments.at(2)), journal, arguments[1]);
  }
  DDPRUN_ASSIGN_OR_RETURN(const std::unique_ptr<Context> context,
                          Context::Create({.backend = "gloo"}));
  std::ofstream out(absl::StrCat(arguments[1], ".", context->rank()));
  torch::manual_seed(3);
  if (arguments[0] == "weights") return AddOne(*context, arguments.at(2), arguments.at(3));
  if (arguments[0] == "checkpoint") return CompareCheckpointed(*context, out);
  for (const torch::ScalarType type : {torch::kFloat, torch::kDouble}) {
    DDPRUN_RETURN_IF_ERROR(CompareBatchNorm(*context, std::stoll(arguments.at(2)), type, out));
  }
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) { return ddprun::testing::RunProbe(argc, argv, Main); }
