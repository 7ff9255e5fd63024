#include "worker/torch/ddp/distributed_data_parallel_implementation.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/custom_class.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <limits>
#include <string>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "ddprun/parameters.h"
#include "ddprun/status_error.h"
#include "ddprun/sync_batch_norm.h"
#include "worker/torch/context/context_implementation.h"
#include "worker/torch/ddp/communication_hooks.h"
#include "worker/torch/errors/exception_status.h"
#include "worker/torch/store/gathering_store.h"
#include "worker/torch/store/meeting.h"

namespace ddprun {

bool worker::HasSyncBatchNorm(const torch::nn::Module& module) {
  const auto modules = module.modules();
  return std::any_of(modules.begin(), modules.end(), [](const auto& one) {
    return one->template as<nn::SyncBatchNormImpl>() != nullptr;
  });
}

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace {

constexpr size_t kBroadcastBufferBytes = size_t{250} << 20;
constexpr int64_t kDefaultBucketBytes = int64_t{25} << 20;
constexpr double kBytesPerMebibyte = 1024.0 * 1024.0;

// Keeps a DDP implementation alive inside an autograd graph.
struct Keeper : torch::CustomClassHolder {
  explicit Keeper(std::shared_ptr<DdpImplementation> kept) : implementation(std::move(kept)) {}
  std::shared_ptr<DdpImplementation> implementation;
};

// Passes an output through. Its backward runs first: it delays the averages of a static graph's
// first step to the end of the pass, and asks for a check of all gradients. Gradients of outputs
// that the loss doesn't use stay undefined instead of zero, by which unused parameters are found.
struct Sink : torch::autograd::Function<Sink> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& output,
                               const c10::IValue& keeper) {
    context->set_materialize_grads(false);
    context->saved_data["keeper"] = keeper;
    return output.clone();
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto keeper =
        c10::static_intrusive_pointer_cast<Keeper>(context->saved_data["keeper"].toCapsule());
    DdpImplementation& ddp = *keeper->implementation;
    if (ddp.options.static_graph && !ddp.static_graph_callback_queued) {
      torch::autograd::Engine::get_default_engine().queue_callback(
          [reducer = ddp.reducer] { reducer->delay_all_reduce(); });
      ddp.static_graph_callback_queued = true;
    }
    if (!std::exchange(ddp.gradients_checked, true) && !ddp.options.static_graph &&
        !ddp.options.find_unused_parameters && !ddp.joining) {
      torch::autograd::Engine::get_default_engine().queue_callback(
          [kept = keeper->implementation] { kept->CheckGradients(); });
    }
    return {gradients[0], torch::Tensor()};
  }
};

// Throws. Params: names: of the parameters that got no gradient, not empty.
[[noreturn]] void ThrowUnused(const std::vector<std::string>& names) {
  throw StatusError(worker::UnusedParameters(names.front(), names.size() - 1));
}

// Replaces LibTorch's error, which comes in the next step and has Python's text ("Parameter indices
// which did not receive grad for rank 0: 2 3"), by ThrowUnused's.
template <typename Function>
void WithoutPythonsWords(const DdpImplementation& ddp, const Function& call) {
  try {
    call();
  } catch (const c10::Error& error) {
    const absl::string_view text = error.what_without_backtrace();
    const size_t list = text.find("did not receive grad for rank");
    if (list == absl::string_view::npos) throw;
    const absl::string_view line = text.substr(list, text.find('\n', list) - list);
    std::vector<std::string> names;
    for (const absl::string_view word : absl::StrSplit(line.substr(line.find(':') + 1), ' ')) {
      size_t number = 0;
      if (absl::SimpleAtoi(word, &number) && ddp.names.contains(number)) {
        names.push_back(ddp.names.at(number));
      }
    }
    if (names.empty()) throw;
    ThrowUnused(names);
  }
}

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

void CollectParameters(DdpImplementation& ddp) {
  for (const NamedTensor& parameter : NamedParameters(*ddp.module)) {
    if (!parameter.tensor.requires_grad()) continue;
    ddp.names[ddp.parameters.size()] = parameter.name;
    ddp.parameters.push_back(parameter.tensor);
  }
  ddp.buffers = Buffers(*ddp.module);
}

absl::Status CheckModule(const DdpImplementation& ddp, torch::Device device) {
  if (ddp.options.bucket_cap_mb.has_value() && *ddp.options.bucket_cap_mb <= 0) {
    return absl::InvalidArgumentError(absl::StrCat("bucket_cap_mb is ", *ddp.options.bucket_cap_mb,
                                                   "; give a size in MiB above 0"));
  }
  if (ddp.options.statistics_every < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "statistics_every is ", ddp.options.statistics_every, "; give a number of steps from 1"));
  }
  if (ddp.options.built_in_hook != BuiltInHook::kNone &&
      ddp.options.communication_hook != nullptr) {
    return absl::InvalidArgumentError(
        "both built_in_hook and communication_hook are given; give one of them");
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

// Describes what must be the same on all ranks before tensors of matching sizes can be exchanged.
std::vector<std::string> DescribeModel(const DdpImplementation& ddp) {
  const DistributedDataParallelOptions& options = ddp.options;
  std::vector<std::string> texts = {absl::StrCat(
      "bucket_cap_mb ", options.bucket_cap_mb.value_or(0), ", gradient_as_bucket_view ",
      options.gradient_as_bucket_view, ", find_unused_parameters ", options.find_unused_parameters,
      ", static_graph ", options.static_graph, ", broadcast_buffers ", options.broadcast_buffers,
      options.broadcast_buffers_once_a_step ? " once a step" : "", ", init_sync ",
      options.init_sync, ", built_in_hook ", static_cast<int>(options.built_in_hook),
      ", communication_hook ",
      options.communication_hook != nullptr ? options.communication_hook->name() : "none")};
  const auto describe = [&texts](const char* kind, const NamedTensor& one) {
    texts.push_back(absl::StrCat(kind, " ", one.name, " ", c10::str(one.tensor.scalar_type()), " ",
                                 c10::str(one.tensor.sizes()),
                                 one.tensor.requires_grad() ? "" : " without gradient"));
  };
  for (const NamedTensor& parameter : NamedParameters(*ddp.module)) {
    describe("parameter", parameter);
  }
  for (const NamedTensor& buffer : NamedBuffers(*ddp.module)) describe("buffer", buffer);
  return texts;
}

// The first error of all ranks, on all of them. Params: own: what this rank found by itself.
absl::Status CompareWithOtherRanks(const DdpImplementation& ddp, Context& context,
                                   const absl::Status& own) {
  Context::Implementation& place = context.implementation();
  if (context.world_size() == 1) return own;
  worker::StorePart store(absl::StrCat("models/", place.models_created++), place.store);
  if (!own.ok()) {
    worker::NotifyModelProblem(store, context.rank(), std::string(own.message()));
    return own;
  }
  return worker::CompareModels(store,
                               {.rank = context.rank(),
                                .world_size = context.world_size(),
                                .timeout = place.plan.start_timeout},
                               DescribeModel(ddp));
}

void MakeReducer(DdpImplementation& ddp) {
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
                                            worker::HasSyncBatchNorm(*ddp.module),
                                            ddp.options.static_graph);
  ddp.reducer->set_ddp_runtime_logging_sample_rate(ddp.options.statistics_every);
  if (ddp.options.static_graph) {
    ddp.reducer->set_static_graph();
    ddp.logger->set_static_graph();
  }
}

}  // namespace

void DdpImplementation::CheckGradients() {
  std::vector<std::string> unused;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!parameters[i].grad().defined()) unused.push_back(names.at(i));
  }
  if (unused.size() == parameters.size()) {
    // The pass was for other gradients: of an input (autograd::grad), or of another module.
    gradients_checked = false;
    return;
  }
  if (!unused.empty()) ThrowUnused(unused);
}

void DdpImplementation::BroadcastState(int source) const {
  std::vector<torch::Tensor> state;
  for (const torch::Tensor& tensor : Parameters(*module)) state.push_back(tensor.detach());
  if (options.broadcast_buffers) {
    for (const torch::Tensor& tensor : buffers) state.push_back(tensor.detach());
  }
  c10d::broadcast_coalesced(group, state, kBroadcastBufferBytes, source);
}

void DdpImplementation::BroadcastBuffers(int source) const {
  c10d::broadcast_coalesced(group, buffers, kBroadcastBufferBytes, source);
}

namespace {

// The collectives of all ranks at the start.
absl::Status StartTogether(DdpImplementation& ddp, Context& context) {
  DDPRUN_RETURN_IF_ERROR(CompareWithOtherRanks(ddp, context, CheckModule(ddp, context.device())));
  if (ddp.options.init_sync) {
    c10d::verify_params_across_processes(ddp.group, ddp.parameters, std::nullopt);
    ddp.BroadcastState(/*source=*/0);
  }
  MakeReducer(ddp);
  return worker::RegisterHook(ddp.options, context, ddp.parameters, *ddp.reducer, *ddp.logger,
                              ddp.group);
}

}  // namespace

absl::StatusOr<std::unique_ptr<DistributedDataParallel>> DistributedDataParallel::Create(
    std::shared_ptr<torch::nn::Module> module, Context& context,
    const DistributedDataParallelOptions& options) {
  auto implementation = std::make_shared<Implementation>();
  implementation->module = std::move(module);
  implementation->device = context.device();
  implementation->group = context.implementation().group;
  implementation->check = context.implementation().check;
  implementation->options = options;
  CollectParameters(*implementation);
  DDPRUN_RETURN_IF_ERROR(
      worker::CatchExceptions([&] { return StartTogether(*implementation, context); }));
  return std::unique_ptr<DistributedDataParallel>(
      new DistributedDataParallel(std::move(implementation)));
}

DistributedDataParallel::DistributedDataParallel(std::shared_ptr<Implementation> implementation)
    : implementation_(std::move(implementation)) {}

DistributedDataParallel::~DistributedDataParallel() = default;

void DdpImplementation::BeginForward() {
  // Inside Join ranks have different numbers of steps.
  if (check == nullptr || joining) return;
  ++forward_passes;
  check->SetActivity("");
  const std::string pass = absl::StrCat("forward pass ", forward_passes);
  const absl::Status status = check->Compare(pass + (synchronize ? "" : " inside NoSync"));
  if (!status.ok()) std::rethrow_exception(worker::ToException(status));
  check->SetActivity("in " + pass);
}

void DdpImplementation::BeginBackward() {
  if (check == nullptr || joining) return;
  check->SetActivity(absl::StrCat("after forward pass ", forward_passes));
}

void DistributedDataParallel::BeforeForward() {
  Implementation& ddp = *implementation_;
  ddp.BeginForward();
  const bool records = at::GradMode::is_enabled();
  if (records && ddp.synchronize) {
    ddp.logger->set_runtime_stats_and_log();
    ddp.reducer->prepare_for_forward();
  }
  if (ddp.joining) ddp.NotifyJoinedRanks();
  if (records) WithoutPythonsWords(ddp, [&] { ddp.reducer->rebuild_buckets(); });
  if (ddp.NeedsBuffers()) ddp.BroadcastBuffers(ddp.joining ? ddp.AgreeOnSource(true) : 0);
  if (ddp.joining) ddp.NotifyWhetherAveraged();
}

std::vector<torch::Tensor> DistributedDataParallel::AfterForward(
    std::vector<torch::Tensor> outputs) {
  Implementation& ddp = *implementation_;
  ddp.BeginBackward();
  ddp.last_forward_synchronized = at::GradMode::is_enabled() && ddp.synchronize;
  if (ddp.last_forward_synchronized) {
    const bool walk_graph = ddp.options.find_unused_parameters && !ddp.options.static_graph;
    WithoutPythonsWords(ddp, [&] {
      ddp.reducer->prepare_for_backward(walk_graph ? outputs : std::vector<torch::Tensor>{});
    });
  }
  if (!ddp.NeedsSink()) return outputs;
  const auto keeper = c10::IValue::make_capsule(c10::make_intrusive<Keeper>(implementation_));
  for (torch::Tensor& output : outputs) {
    if (output.grad_fn() != nullptr) output = Sink::apply(output, keeper);
  }
  return outputs;
}

torch::Tensor DistributedDataParallel::AfterForward(torch::Tensor output) {
  return AfterForward(std::vector<torch::Tensor>{std::move(output)}).front();
}

// A gradient of zeros isn't the same as none: AdamW would decay the weights of a parameter that no
// rank uses, and go on with its momentum. Where there may be such parameters, views are given up as
// well: the reducer makes them anew in the next pass, for the parameters that a rank uses.
void DistributedDataParallel::ZeroGrad() {
  const DistributedDataParallelOptions& options = implementation_->options;
  const bool keeps_views = options.gradient_as_bucket_view && !options.find_unused_parameters;
  for (torch::Tensor& parameter : implementation_->parameters) {
    torch::Tensor& gradient = parameter.mutable_grad();
    if (!gradient.defined()) continue;
    if (keeps_views) {
      gradient.zero_();
    } else {
      gradient.reset();
    }
  }
}

absl::StatusOr<bool> DistributedDataParallel::FinishStep() {
  Implementation& ddp = *implementation_;
  return worker::CatchExceptions([&]() -> absl::StatusOr<bool> {
    bool changed = false;
    WithoutPythonsWords(ddp, [&] { changed = ddp.reducer->rebuild_buckets(); });
    if (!std::exchange(ddp.has_finished_step, true)) changed = true;
    // A parameter may have got its first gradient in this step.
    if (ddp.options.find_unused_parameters && ddp.options.gradient_as_bucket_view) changed = true;
    if (ddp.options.broadcast_buffers && !ddp.buffers.empty()) {
      ddp.BroadcastBuffers(/*source=*/0);
      ddp.last_forward_synchronized = false;
    }
    return changed;
  });
}

CheckpointedState& DistributedDataParallel::buckets() { return implementation_->bucket_order; }

DistributedDataParallelStatistics DistributedDataParallel::Statistics() const {
  const Implementation& ddp = *implementation_;
  const at::DDPLoggingData data = ddp.logger->get_ddp_logging_data();
  const auto nanoseconds = [&data](const char* name) {
    const auto found = data.ints_map.find(name);
    return absl::Nanoseconds(found != data.ints_map.end() ? found->second : 0);
  };
  DistributedDataParallelStatistics statistics;
  statistics.integers = data.ints_map;
  statistics.strings = data.strs_map;
  statistics.step = statistics.integers["iteration"];
  statistics.bucket_bytes = ddp.logger->get_bucket_sizes();
  statistics.communication_hook = statistics.strings["comm_hook"];
  statistics.forward = nanoseconds("avg_forward_compute_time");
  statistics.backward = nanoseconds("avg_backward_compute_time");
  statistics.communication = nanoseconds("avg_backward_comm_time");
  statistics.overlap = nanoseconds("avg_backward_compute_comm_overlap_time");
  return statistics;
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
