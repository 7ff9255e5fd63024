#ifndef DDPRUN_WORKER_INCLUDE_DDPRUN_SESSION_MODEL_H_
#define DDPRUN_WORKER_INCLUDE_DDPRUN_SESSION_MODEL_H_

#include <torch/nn/pimpl.h>

#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>

namespace ddprun {

class Session;

// A module as the Session trains it: call it instead of the module, with the arguments of the
// module's forward(), which returns a tensor or a vector of tensors. Inside a batch the call goes
// through DistributedDataParallel; outside, as in an evaluation, it is a plain call.
template <typename Impl>
class SessionModel {
 public:
  SessionModel(Session& session, std::shared_ptr<Impl> module, size_t part)
      : session_(&session), module_(std::move(module)), part_(part) {}

  template <typename... Arguments>
  auto operator()(Arguments&&... arguments) const;
  // The module itself, for anything but its forward().
  Impl* operator->() const { return module_.get(); }
  Impl& operator*() const { return *module_; }
  size_t part() const { return part_; }  // which module of the Session

 private:
  Session* session_;
  std::shared_ptr<Impl> module_;
  size_t part_;
};

// The pointer to a module that is in its holder (TORCH_MODULE), or is given by its pointer.
template <typename Impl>
std::shared_ptr<Impl> PointerTo(const torch::nn::ModuleHolder<Impl>& module) {
  return module.ptr();
}
template <typename Impl>
std::shared_ptr<Impl> PointerTo(const std::shared_ptr<Impl>& module) {
  return module;
}

// The pointer to a module as Session::Add takes it. Any other argument is one compiler error; the
// result's type then is such that the program's calls of the model aren't errors, too.
template <typename Module>
auto HeldModule(const Module& module) {
  if constexpr (requires { PointerTo(module); }) {
    return PointerTo(module);
  } else {
    static_assert(!std::is_same_v<Module, Module>,
                  "a Session takes a model by its pointer: give auto net = std::make_shared<Net>() "
                  "instead of Net net; or name the struct NetImpl, write TORCH_MODULE(Net) after "
                  "it, and give Net net");
    if constexpr (requires { *module; }) {
      return std::shared_ptr<std::remove_cvref_t<decltype(*module)>>();
    } else {
      return std::shared_ptr<Module>();
    }
  }
}
template <typename Module>
using SessionModelOf =
    SessionModel<typename decltype(HeldModule(std::declval<const Module&>()))::element_type>;

}  // namespace ddprun

#endif  // DDPRUN_WORKER_INCLUDE_DDPRUN_SESSION_MODEL_H_
