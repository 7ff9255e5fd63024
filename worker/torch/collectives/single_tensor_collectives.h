#ifndef DDPRUN_WORKER_TORCH_COLLECTIVES_SINGLE_TENSOR_COLLECTIVES_H_
#define DDPRUN_WORKER_TORCH_COLLECTIVES_SINGLE_TENSOR_COLLECTIVES_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

// c10d's collectives of one tensor a rank have other names in newer releases of LibTorch:
// all_gather_single for _allgather_base, and so on. Nothing else of ours calls or overrides them.
namespace ddprun::worker {

template <typename Group>
concept HasNewNames = requires(Group& group, at::Tensor& tensor) {
  group.all_gather_single(tensor, tensor);
};

// `group`: a c10d::ProcessGroup or c10d::Backend.
template <typename Group>
auto AllGatherTensor(Group& group, at::Tensor& output, at::Tensor& input,
                     const c10d::AllgatherOptions& options = {}) {
  if constexpr (HasNewNames<Group>) {
    return group.all_gather_single(output, input, options);
  } else {
    return group._allgather_base(output, input, options);
  }
}

template <typename Group>
auto AllGatherTensors(Group& group, std::vector<at::Tensor>& outputs,
                      std::vector<at::Tensor>& inputs, const c10d::AllgatherOptions& options = {}) {
  if constexpr (HasNewNames<Group>) {
    return group.all_gather_single_coalesced(outputs, inputs, options);
  } else {
    return group.allgather_into_tensor_coalesced(outputs, inputs, options);
  }
}

template <typename Group>
auto ReduceScatterTensor(Group& group, at::Tensor& output, at::Tensor& input,
                         const c10d::ReduceScatterOptions& options = {}) {
  if constexpr (HasNewNames<Group>) {
    return group.reduce_scatter_single(output, input, options);
  } else {
    return group._reduce_scatter_base(output, input, options);
  }
}

template <typename Group>
auto ReduceScatterTensors(Group& group, std::vector<at::Tensor>& outputs,
                          std::vector<at::Tensor>& inputs,
                          const c10d::ReduceScatterOptions& options = {}) {
  if constexpr (HasNewNames<Group>) {
    return group.reduce_scatter_single_coalesced(outputs, inputs, options);
  } else {
    return group.reduce_scatter_tensor_coalesced(outputs, inputs, options);
  }
}

template <typename Group>
auto AllToAllTensor(Group& group, at::Tensor& output, at::Tensor& input,
                    std::vector<int64_t>& output_sizes, std::vector<int64_t>& input_sizes,
                    const c10d::AllToAllOptions& options = {}) {
  if constexpr (HasNewNames<Group>) {
    return group.all_to_all_single(output, input, output_sizes, input_sizes, options);
  } else {
    return group.alltoall_base(output, input, output_sizes, input_sizes, options);
  }
}

// A backend of ours derives from this in place of `Base`, and overrides the methods Do…, which c10d
// calls under either name.
template <typename Base>
class SingleTensorCollectives : public Base {
 public:
  using Base::Base;
  using WorkPointer = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using Sizes = std::vector<int64_t>;

  WorkPointer _allgather_base(at::Tensor& output, at::Tensor& input,
                              const c10d::AllgatherOptions& options) final {
    return DoAllGatherTensor(output, input, options);
  }
  WorkPointer allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const c10d::AllgatherOptions& options) final {
    return DoAllGatherTensors(outputs, inputs, options);
  }
  WorkPointer _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                   const c10d::ReduceScatterOptions& options) final {
    return DoReduceScatterTensor(output, input, options);
  }
  WorkPointer reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const c10d::ReduceScatterOptions& options) final {
    return DoReduceScatterTensors(outputs, inputs, options);
  }
  WorkPointer alltoall_base(at::Tensor& output, at::Tensor& input, Sizes& output_sizes,
                            Sizes& input_sizes, const c10d::AllToAllOptions& options) final {
    return DoAllToAllTensor(output, input, output_sizes, input_sizes, options);
  }

 protected:
  virtual WorkPointer DoAllGatherTensor(at::Tensor& output, at::Tensor& input,
                                        const c10d::AllgatherOptions& options) {
    return Base::_allgather_base(output, input, options);
  }
  virtual WorkPointer DoAllGatherTensors(Tensors& outputs, Tensors& inputs,
                                         const c10d::AllgatherOptions& options) {
    return Base::allgather_into_tensor_coalesced(outputs, inputs, options);
  }
  virtual WorkPointer DoReduceScatterTensor(at::Tensor& output, at::Tensor& input,
                                            const c10d::ReduceScatterOptions& options) {
    return Base::_reduce_scatter_base(output, input, options);
  }
  virtual WorkPointer DoReduceScatterTensors(Tensors& outputs, Tensors& inputs,
                                             const c10d::ReduceScatterOptions& options) {
    return Base::reduce_scatter_tensor_coalesced(outputs, inputs, options);
  }
  virtual WorkPointer DoAllToAllTensor(at::Tensor& output, at::Tensor& input, Sizes& output_sizes,
                                       Sizes& input_sizes, const c10d::AllToAllOptions& options) {
    return Base::alltoall_base(output, input, output_sizes, input_sizes, options);
  }
};

template <HasNewNames Base>
class SingleTensorCollectives<Base> : public Base {
 public:
  using Base::Base;
  using WorkPointer = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using Sizes = std::vector<int64_t>;

  WorkPointer all_gather_single(at::Tensor& output, at::Tensor& input,
                                const c10d::AllgatherOptions& options) final {
    return DoAllGatherTensor(output, input, options);
  }
  WorkPointer all_gather_single_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) final {
    return DoAllGatherTensors(outputs, inputs, options);
  }
  WorkPointer reduce_scatter_single(at::Tensor& output, at::Tensor& input,
                                    const c10d::ReduceScatterOptions& options) final {
    return DoReduceScatterTensor(output, input, options);
  }
  WorkPointer reduce_scatter_single_coalesced(Tensors& outputs, Tensors& inputs,
                                              const c10d::ReduceScatterOptions& options) final {
    return DoReduceScatterTensors(outputs, inputs, options);
  }
  WorkPointer all_to_all_single(at::Tensor& output, at::Tensor& input, Sizes& output_sizes,
                                Sizes& input_sizes, const c10d::AllToAllOptions& options) final {
    return DoAllToAllTensor(output, input, output_sizes, input_sizes, options);
  }

 protected:
  virtual WorkPointer DoAllGatherTensor(at::Tensor& output, at::Tensor& input,
                                        const c10d::AllgatherOptions& options) {
    return Base::all_gather_single(output, input, options);
  }
  virtual WorkPointer DoAllGatherTensors(Tensors& outputs, Tensors& inputs,
                                         const c10d::AllgatherOptions& options) {
    return Base::all_gather_single_coalesced(outputs, inputs, options);
  }
  virtual WorkPointer DoReduceScatterTensor(at::Tensor& output, at::Tensor& input,
                                            const c10d::ReduceScatterOptions& options) {
    return Base::reduce_scatter_single(output, input, options);
  }
  virtual WorkPointer DoReduceScatterTensors(Tensors& outputs, Tensors& inputs,
                                             const c10d::ReduceScatterOptions& options) {
    return Base::reduce_scatter_single_coalesced(outputs, inputs, options);
  }
  virtual WorkPointer DoAllToAllTensor(at::Tensor& output, at::Tensor& input, Sizes& output_sizes,
                                       Sizes& input_sizes, const c10d::AllToAllOptions& options) {
    return Base::all_to_all_single(output, input, output_sizes, input_sizes, options);
  }
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_COLLECTIVES_SINGLE_TENSOR_COLLECTIVES_H_
