#include "ddprun/distributed_data_parallel.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/custom_class.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <unordered_map>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/torch/context_implementation.h"
#include "worker/torch/exception_status.h"

namespace ddprun {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The recipe is Python's DistributedDataParallel of torch 2.11, which tests compare bit by bit.
struct DistributedDataParallel::Implementation {
  std::shared_ptr<torch::nn::Module> module;
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  DistributedDataParallelOptions options;
  std::vector<torch::Tensor> parameters;
  std::vector<torch::Tensor> buffers;
  std::unordered_map<size_t, std::string> names;
  std::shared_ptr<c10d::Reducer> reducer;
  std::shared_ptr<c10d::Logger> logger;
  bool synchronize = true;  // off inside NoSync
  // Whether the last forward pass was for a backward pass that averages; Python sends buffers
  // before the next one only then.
  bool last_forward_synchronized = true;
  bool static_graph_callback_queued = false;

  bool NeedsSink() const {
    if (options.static_graph) return !static_graph_callback_queued;
    return options.find_unused_parameters;
  }
};

namespace {

constexpr size_t kBroadcastBufferBytes = size_t{250} << 20;
constexpr int64_t kDefaultBucketBytes = int64_t{25} << 20;
constexpr double kBytesPerMebibyte = 1024.0 * 1024.0;

// Keeps a DDP implementation alive inside an autograd graph.
template <typename Implementation>
struct Keeper : torch::CustomClassHolder {
  explicit Keeper(std::shared_ptr<Implementation> kept) : implementation(std::move(kept)) {}
  std::shared_ptr<Implementation> implementation;
};

// Passes an output through. Its backward is the first to run, which is where the average of a
// static graph's first step is put off to the end; and outputs that the loss doesn't use stay
// undefined instead of zero, which is how unused parameters are found.
template <typename Implementation>
struct Sink : torch::autograd::Function<Sink<Implementation>> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& output,
                               const c10::IValue& keeper) {
    context->set_materialize_grads(false);
    context->saved_data["keeper"] = keeper;
    return output.clone();
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto keeper = c10::static_intrusive_pointer_cast<Keeper<Implementation>>(
        context->saved_data["keeper"].toCapsule());
    Implementation& ddp = *keeper->implementation;
    if (ddp.options.static_graph && !ddp.static_graph_callback_queued) {
      torch::autograd::Engine::get_default_engine().queue_callback(
          [reducer = ddp.reducer] { reducer->delay_all_reduce(); });
      ddp.static_graph_callback_queued = true;
    }
    return {gradients[0], torch::Tensor()};
  }
};

int64_t BucketBytes(const DistributedDataParallelOptions& options) {
  if (!options.bucket_cap_mb.has_value()) return kDefaultBucketBytes;
  return static_cast<int64_t>(*options.bucket_cap_mb * kBytesPerMebibyte);
}

int64_t FirstBucketBytes(const DistributedDataParallelOptions& options) {
  return options.bucket_cap_mb.has_value() ? BucketBytes(options) : c10d::kDefaultFirstBucketBytes;
}

// Limits of the buckets of the first step. Without unused parameters one bucket is enough: the
// buckets are made anew, in the order in which gradients appear, before the second step.
std::vector<size_t> FirstStepLimits(const DistributedDataParallelOptions& options) {
  if (options.static_graph || !options.find_unused_parameters) {
    return {static_cast<size_t>(std::numeric_limits<int64_t>::max())};
  }
  if (options.bucket_cap_mb.has_value()) return {static_cast<size_t>(BucketBytes(options))};
  return {static_cast<size_t>(c10d::kDefaultFirstBucketBytes),
          static_cast<size_t>(kDefaultBucketBytes)};
}

template <typename Implementation>
void CollectParameters(Implementation& ddp) {
  for (const auto& item : ddp.module->named_parameters()) {
    if (!item.value().requires_grad()) continue;
    ddp.names[ddp.parameters.size()] = item.key();
    ddp.parameters.push_back(item.value());
  }
  ddp.buffers = ddp.module->buffers();
}

template <typename Implementation>
absl::Status CheckModule(const Implementation& ddp, torch::Device device) {
  if (ddp.options.bucket_cap_mb.has_value() && *ddp.options.bucket_cap_mb <= 0) {
    return absl::InvalidArgumentError(absl::StrCat("bucket_cap_mb is ", *ddp.options.bucket_cap_mb,
                                                   "; give a size in MiB above 0"));
  }
  if (ddp.parameters.empty()) {
    return absl::InvalidArgumentError(
        "the module has no parameter that needs a gradient; it needs no DistributedDataParallel");
  }
  for (size_t i = 0; i < ddp.parameters.size(); ++i) {
    const torch::Device there = ddp.parameters[i].device();
    if (there.type() == device.type() && (!device.is_cuda() || there == device)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "parameter '", ddp.names.at(i), "' is on ", there.str(), ", this worker's device is ",
        device.str(), "; call module->to(context.device()) first"));
  }
  return absl::OkStatus();
}

// Rank 0's parameters and buffers become everyone's.
template <typename Implementation>
void BroadcastStart(const Implementation& ddp) {
  c10d::verify_params_across_processes(ddp.group, ddp.parameters, std::nullopt);
  std::vector<torch::Tensor> state;
  for (const torch::Tensor& tensor : ddp.module->parameters()) state.push_back(tensor.detach());
  if (ddp.options.broadcast_buffers) {
    for (const torch::Tensor& tensor : ddp.buffers) state.push_back(tensor.detach());
  }
  c10d::broadcast_coalesced(ddp.group, state, kBroadcastBufferBytes, 0);
}

template <typename Implementation>
void MakeReducer(Implementation& ddp) {
  const std::vector<bool> sparse(ddp.parameters.size(), false);
  auto [buckets, limits] =
      c10d::compute_bucket_assignment_by_size(ddp.parameters, FirstStepLimits(ddp.options), sparse);
  // Gradients appear in about the reverse order of the parameters.
  std::reverse(buckets.begin(), buckets.end());
  ddp.reducer = std::make_shared<c10d::Reducer>(
      ddp.parameters, buckets, ddp.group, sparse, BucketBytes(ddp.options),
      ddp.options.find_unused_parameters, ddp.options.gradient_as_bucket_view, ddp.names,
      FirstBucketBytes(ddp.options), /*skip_all_reduce_unused_params=*/false,
      /*use_python_reducer=*/false, /*bucket_bytes_cap_list=*/std::vector<int64_t>{});
  ddp.logger = std::make_shared<c10d::Logger>(ddp.reducer);
  ddp.reducer->set_logger(ddp.logger);
  ddp.logger->set_construction_data_and_log(ddp.module->name(), /*device_ids=*/{},
                                            /*output_device=*/-1, ddp.options.broadcast_buffers,
                                            /*has_sync_bn=*/false, ddp.options.static_graph);
  if (ddp.options.static_graph) {
    ddp.reducer->set_static_graph();
    ddp.logger->set_static_graph();
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<DistributedDataParallel>> DistributedDataParallel::Create(
    std::shared_ptr<torch::nn::Module> module, Context& context,
    const DistributedDataParallelOptions& options) {
  auto implementation = std::make_shared<Implementation>();
  implementation->module = std::move(module);
  implementation->group = context.implementation().group;
  implementation->options = options;
  CollectParameters(*implementation);
  DDPRUN_RETURN_IF_ERROR(CheckModule(*implementation, context.device()));
  DDPRUN_RETURN_IF_ERROR(worker::CatchExceptions([&]() -> absl::Status {
    BroadcastStart(*implementation);
    MakeReducer(*implementation);
    return absl::OkStatus();
  }));
  return std::unique_ptr<DistributedDataParallel>(
      new DistributedDataParallel(std::move(implementation)));
}

DistributedDataParallel::DistributedDataParallel(std::shared_ptr<Implementation> implementation)
    : implementation_(std::move(implementation)) {}

DistributedDataParallel::~DistributedDataParallel() = default;

void DistributedDataParallel::BeforeForward() {
  Implementation& ddp = *implementation_;
  if (at::GradMode::is_enabled()) {
    if (ddp.synchronize) {
      ddp.logger->set_runtime_stats_and_log();
      ddp.reducer->prepare_for_forward();
    }
    ddp.reducer->rebuild_buckets();
  }
  if (ddp.last_forward_synchronized && ddp.options.broadcast_buffers && !ddp.buffers.empty()) {
    c10d::broadcast_coalesced(ddp.group, ddp.buffers, kBroadcastBufferBytes, 0);
  }
}

std::vector<torch::Tensor> DistributedDataParallel::AfterForward(
    std::vector<torch::Tensor> outputs) {
  Implementation& ddp = *implementation_;
  ddp.last_forward_synchronized = at::GradMode::is_enabled() && ddp.synchronize;
  if (ddp.last_forward_synchronized) {
    const bool walk_graph = ddp.options.find_unused_parameters && !ddp.options.static_graph;
    ddp.reducer->prepare_for_backward(walk_graph ? outputs : std::vector<torch::Tensor>{});
  }
  if (!ddp.NeedsSink()) return outputs;
  const auto keeper =
      c10::IValue::make_capsule(c10::make_intrusive<Keeper<Implementation>>(implementation_));
  for (torch::Tensor& output : outputs) {
    if (output.grad_fn() != nullptr) output = Sink<Implementation>::apply(output, keeper);
  }
  return outputs;
}

torch::Tensor DistributedDataParallel::AfterForward(torch::Tensor output) {
  return AfterForward(std::vector<torch::Tensor>{std::move(output)}).front();
}

void DistributedDataParallel::ZeroGrad() {
  for (torch::Tensor& parameter : implementation_->parameters) {
    torch::Tensor& gradient = parameter.mutable_grad();
    if (!gradient.defined()) continue;
    if (implementation_->options.gradient_as_bucket_view) {
      gradient.zero_();
    } else {
      gradient.reset();
    }
  }
}

const std::vector<torch::Tensor>& DistributedDataParallel::parameters() const {
  return implementation_->parameters;
}

DistributedDataParallel::NoSync::NoSync(DistributedDataParallel& ddp)
    : ddp_(ddp), before_(ddp.implementation_->synchronize) {
  ddp_.implementation_->synchronize = false;
}

DistributedDataParallel::NoSync::~NoSync() { ddp_.implementation_->synchronize = before_; }

}  // namespace ddprun
