#include "worker/torch/optim/storage_on_use.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/jit/serialization/pickler_helper.h>
#include <torch/library.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

namespace ddprun::worker {

bool GradientIsTaken(const torch::Tensor& parameter) {
  const auto node = torch::autograd::impl::try_get_grad_accumulator(parameter);
  return node != nullptr &&
         std::any_of(node->post_hooks().begin(), node->post_hooks().end(), [](const auto& hook) {
           return dynamic_cast<const GradientTaker*>(hook.get()) != nullptr;
         });
}

namespace {

// A dispatch key that LibTorch reserves for other libraries ("out-of-core") and has no kernels for.
// It precedes autocast and autograd, so that both find the memory.
constexpr c10::DispatchKey kMark = c10::DispatchKey::DeferredInit;
constexpr c10::DispatchKeySet kBelow(c10::DispatchKeySet::FULL_AFTER, kMark);

struct Place {
  StorageOwner* owner = nullptr;
  size_t number = 0;
};

// The storages of all owners. Never destroyed, because tensors may outlive everything.
struct Places {
  std::mutex mutex;
  std::unordered_map<const c10::StorageImpl*, Place> places;

  static Places& All() {
    static Places& all = *new Places;
    return all;
  }
  Place Find(const c10::StorageImpl* storage) {
    const std::lock_guard lock(mutex);
    const auto found = places.find(storage);
    return found == places.end() ? Place() : found->second;
  }
};

// What an operator does with one owner's storages.
struct Use {
  StorageOwner* owner = nullptr;
  std::vector<size_t> used;
  std::vector<size_t> written;
};

void AddOnce(size_t number, std::vector<size_t>& list) {
  if (std::find(list.begin(), list.end(), number) == list.end()) list.push_back(number);
}

void AddTensor(const torch::Tensor& tensor, bool writes, std::vector<Use>& uses) {
  if (!tensor.defined() || !IsMarked(tensor)) return;
  const Place place = Places::All().Find(tensor.storage().unsafeGetStorageImpl());
  if (place.owner == nullptr) {
    TORCH_CHECK(tensor.storage().data() != nullptr || tensor.numel() == 0,
                "this parameter was in the shares of a ZeroOptimizer (stage 3) that is gone: keep "
                "the optimizer while the module is used, or hold a "
                "ZeroOptimizer::WholeParameters and clone what is to stay");
    return;
  }
  auto use = std::find_if(uses.begin(), uses.end(),
                          [&](const Use& one) { return one.owner == place.owner; });
  if (use == uses.end())
    use = uses.insert(uses.end(), Use{.owner = place.owner, .used = {}, .written = {}});
  AddOnce(place.number, use->used);
  if (writes) AddOnce(place.number, use->written);
}

std::vector<Use> UsesOf(const c10::FunctionSchema& schema, const torch::jit::Stack& stack) {
  std::vector<Use> uses;
  const auto& arguments = schema.arguments();
  auto value = stack.end() - static_cast<std::ptrdiff_t>(arguments.size());
  for (const c10::Argument& argument : arguments) {
    const bool writes = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
    if (value->isTensor()) {
      AddTensor(value->toTensor(), writes, uses);
    } else if (value->isList()) {
      for (const c10::IValue& one : value->toListRef()) {
        if (one.isTensor()) AddTensor(one.toTensor(), writes, uses);
      }
    }
    ++value;
  }
  return uses;
}

// What Module::zero_grad() and Optimizer::zero_grad() call.
bool IsOfZeroGrad(const std::string& name) {
  return name == "aten::detach" || name == "aten::detach_" || name == "aten::zero_";
}

// Operators that make views ask as well, although they read no element, because their callers do,
// some by data_ptr().
void OnOperator(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const std::vector<Use> uses = UsesOf(op.schema(), *stack);
  for (const Use& use : uses) {
    if (use.owner->HasNone() && IsOfZeroGrad(op.operator_name().name)) {
      if (op.operator_name().name == "aten::zero_") return;  // the stack has its result already
      continue;
    }
    use.owner->BeforeUse(use.used);
  }
  {
    // The operators that this one calls needn't ask again.
    const c10::impl::ExcludeDispatchKeyGuard inside(kMark);
    op.redispatchBoxed(keys & kBelow, stack);
  }
  for (const Use& use : uses) {
    if (!use.written.empty()) use.owner->AfterWrite(use.written);
  }
}

using SavedNotes = std::unordered_map<std::string, bool>;

// torch::save reads storages without an operator, and writes zeros for one without memory: LibTorch
// takes a null pointer for a part of the file to leave out. Before that it asks for notes on each
// tensor, by functions that a device's library registers; CPU and CUDA have none.
void RefuseToSave(const torch::Tensor& tensor, SavedNotes& /*notes*/) {
  TORCH_CHECK(StaysInMemory(tensor), "torch::save: a parameter ", kInShares);
}

void RegisterWithTorchSave() {
  auto& functions = torch::jit::GetBackendMetaSerialization();
  for (const c10::DeviceType type : {torch::kCPU, torch::kCUDA}) {
    auto& of_device = functions.at(static_cast<size_t>(type));
    if (of_device.has_value()) continue;
    of_device.emplace(&RefuseToSave, [](const torch::Tensor& /*loaded*/, SavedNotes& /*notes*/) {});
  }
}

void RegisterKernel() {
  static torch::Library& library = *[] {
    auto* made = new torch::Library(torch::Library::IMPL, "_", kMark, __FILE__, __LINE__);
    made->fallback(torch::CppFunction::makeFromBoxedFunction<&OnOperator>());
    RegisterWithTorchSave();
    return made;
  }();
  static_cast<void>(library);
}

}  // namespace

torch::Tensor Marked(const torch::Tensor& tensor) {
  RegisterKernel();
  auto marked =
      c10::make_intrusive<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(tensor.storage()),
                                           tensor.key_set().add(kMark), tensor.dtype());
  marked->set_storage_offset(tensor.storage_offset());
  marked->set_sizes_and_strides(tensor.sizes(), tensor.strides());
  return torch::Tensor(std::move(marked));
}

torch::Tensor MarkedWithoutMemory(const torch::Tensor& tensor) {
  RegisterKernel();
  c10::Storage storage(c10::Storage::use_byte_size_t(), tensor.nbytes(),
                       at::DataPtr(nullptr, tensor.device()), /*allocator=*/nullptr,
                       /*resizable=*/false);
  auto marked = c10::make_intrusive<c10::TensorImpl>(std::move(storage),
                                                     tensor.key_set().add(kMark), tensor.dtype());
  marked->set_sizes_contiguous(tensor.sizes());
  return torch::Tensor(std::move(marked));
}

bool IsMarked(const torch::Tensor& tensor) { return tensor.key_set().has(kMark); }

void SetDataOfMarked(torch::Tensor& tensor, const torch::Tensor& data) {
  const c10::impl::ExcludeDispatchKeyGuard inside(kMark);  // the check that it makes is an operator
  tensor.set_data(data);
}

bool StaysInMemory(const torch::Tensor& tensor) {
  if (!IsMarked(tensor)) return true;
  const Place place = Places::All().Find(tensor.storage().unsafeGetStorageImpl());
  return place.owner != nullptr && place.owner->Holds();
}

void Own(const c10::StorageImpl& storage, StorageOwner& owner, size_t number) {
  Places& all = Places::All();
  const std::lock_guard lock(all.mutex);
  all.places[&storage] = {.owner = &owner, .number = number};
}

void Disown(const c10::StorageImpl& storage) {
  Places& all = Places::All();
  const std::lock_guard lock(all.mutex);
  all.places.erase(&storage);
}

}  // namespace ddprun::worker
