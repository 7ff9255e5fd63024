#include "ddprun/activation_checkpoint.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <algorithm>
#include <mutex>
#include <utility>

namespace ddprun {
namespace {

using Part = std::function<std::vector<torch::Tensor>(const std::vector<torch::Tensor>&)>;

// The random generators that a part may draw from.
class RandomState {
 public:
  static RandomState Current(const std::vector<torch::Device>& devices) {
    RandomState state;
    for (const torch::Device& device : devices) {
      at::Generator generator = at::globalContext().defaultGenerator(device);
      const std::lock_guard lock(generator.mutex());
      state.states_.emplace_back(device, generator.get_state());
    }
    return state;
  }

  void Restore() const {
    for (const auto& [device, state] : states_) {
      at::Generator generator = at::globalContext().defaultGenerator(device);
      const std::lock_guard lock(generator.mutex());
      generator.set_state(state);
    }
  }

 private:
  std::vector<std::pair<torch::Device, torch::Tensor>> states_;
};

// Autocast of the CPU and of GPUs.
class AutocastState {
 public:
  static AutocastState Current() {
    AutocastState state;
    for (Mode& mode : state.modes_) {
      mode.enabled = at::autocast::is_autocast_enabled(mode.device);
      mode.type = at::autocast::get_autocast_dtype(mode.device);
    }
    state.cache_ = at::autocast::is_autocast_cache_enabled();
    return state;
  }

  void Restore() const {
    for (const Mode& mode : modes_) {
      at::autocast::set_autocast_enabled(mode.device, mode.enabled);
      at::autocast::set_autocast_dtype(mode.device, mode.type);
    }
    at::autocast::set_autocast_cache_enabled(cache_);
  }

  // Without its cache: a weight that is cast in one of the two runs must not serve in a graph of
  // the other, or of the model around the part.
  AutocastState WithoutCache() const {
    AutocastState state = *this;
    state.cache_ = false;
    return state;
  }

 private:
  struct Mode {
    at::DeviceType device;
    bool enabled = false;
    at::ScalarType type = at::kFloat;
  };

  Mode modes_[2] = {{at::kCPU}, {at::kCUDA}};
  bool cache_ = true;
};

// Puts a state in place for a scope.
template <typename State>
class Scope {
 public:
  Scope(State before, const State& inside) : before_(std::move(before)) { inside.Restore(); }
  ~Scope() { before_.Restore(); }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  const State before_;
};

// The data for the second run.
struct Recomputation : torch::CustomClassHolder {
  Part part;
  std::vector<torch::Device> devices;
  RandomState random;
  AutocastState autocast;
};

struct CheckpointFunction : torch::autograd::Function<CheckpointFunction> {
  // `handle`, which needs a gradient, makes the outputs need one, whatever the inputs are.
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context,
                                                const torch::Tensor& /*handle*/,
                                                at::TensorList inputs, const c10::IValue& capsule) {
    const auto saved = c10::static_intrusive_pointer_cast<Recomputation>(capsule.toCapsule());
    context->set_materialize_grads(false);
    context->saved_data["part"] = capsule;
    context->save_for_backward(inputs.vec());
    const Scope<AutocastState> autocast(saved->autocast, saved->autocast.WithoutCache());
    return saved->part(inputs.vec());
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto saved =
        c10::static_intrusive_pointer_cast<Recomputation>(context->saved_data["part"].toCapsule());
    std::vector<torch::Tensor> inputs = context->get_saved_variables();
    for (torch::Tensor& input : inputs) {
      if (input.defined()) input = input.detach().requires_grad_(input.requires_grad());
    }
    Backward(RunAgain(*saved, inputs), gradients);
    torch::autograd::variable_list result = {torch::Tensor()};
    for (const torch::Tensor& input : inputs) {
      result.push_back(input.defined() ? input.grad() : torch::Tensor());
    }
    result.emplace_back();
    return result;
  }

 private:
  static std::vector<torch::Tensor> RunAgain(const Recomputation& saved,
                                             const std::vector<torch::Tensor>& inputs) {
    const Scope<RandomState> random(RandomState::Current(saved.devices), saved.random);
    const Scope<AutocastState> autocast(AutocastState::Current(), saved.autocast.WithoutCache());
    const at::AutoGradMode records(true);
    return saved.part(inputs);
  }

  // Only outputs that the loss uses, and that depend on something, have a backward pass.
  static void Backward(const std::vector<torch::Tensor>& outputs,
                       const std::vector<torch::Tensor>& gradients) {
    torch::autograd::variable_list used;
    torch::autograd::variable_list their_gradients;
    for (size_t i = 0; i < outputs.size() && i < gradients.size(); ++i) {
      if (!gradients[i].defined() || !outputs[i].defined() || !outputs[i].requires_grad()) continue;
      used.push_back(outputs[i]);
      their_gradients.push_back(gradients[i]);
    }
    if (!used.empty()) torch::autograd::backward(used, their_gradients);
  }
};

// The CPU, and the inputs' GPUs, each once.
std::vector<torch::Device> DevicesOf(const std::vector<torch::Tensor>& inputs) {
  std::vector<torch::Device> devices = {torch::Device(torch::kCPU)};
  for (const torch::Tensor& input : inputs) {
    if (!input.defined()) continue;
    if (std::find(devices.begin(), devices.end(), input.device()) == devices.end()) {
      devices.push_back(input.device());
    }
  }
  return devices;
}

}  // namespace

std::vector<torch::Tensor> CheckpointActivations(Part part,
                                                 const std::vector<torch::Tensor>& inputs) {
  if (!at::GradMode::is_enabled()) return part(inputs);
  auto saved = c10::make_intrusive<Recomputation>();
  saved->part = std::move(part);
  saved->devices = DevicesOf(inputs);
  saved->random = RandomState::Current(saved->devices);
  saved->autocast = AutocastState::Current();
  const torch::Tensor handle = torch::empty({0}).requires_grad_();
  return CheckpointFunction::apply(handle, at::TensorList(inputs),
                                   c10::IValue::make_capsule(std::move(saved)));
}

torch::Tensor CheckpointActivations(std::function<torch::Tensor(const torch::Tensor&)> part,
                                    const torch::Tensor& input) {
  const auto of_lists = [part = std::move(part)](const std::vector<torch::Tensor>& inputs) {
    return std::vector<torch::Tensor>{part(inputs[0])};
  };
  return CheckpointActivations(Part(of_lists), std::vector<torch::Tensor>{input})[0];
}

}  // namespace ddprun
