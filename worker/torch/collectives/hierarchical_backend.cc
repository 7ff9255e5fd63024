#include "worker/torch/collectives/hierarchical_backend.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/check.h"
#include "worker/torch/errors/exception_status.h"

namespace ddprun::worker {
namespace {

using c10d::ReduceOp;

// What the leaders do with what their hosts have reduced. The average is taken at the end; Gloo
// would add truth values up as bytes.
ReduceOp LeadersOperation(const ReduceOp& operation, const at::Tensor& tensor) {
  const auto kind = static_cast<ReduceOp::RedOpType>(operation);
  if (kind == ReduceOp::AVG) return ReduceOp::SUM;
  if (tensor.scalar_type() != at::kBool) return operation;
  if (kind == ReduceOp::SUM) return ReduceOp::MAX;
  if (kind == ReduceOp::PRODUCT) return ReduceOp::MIN;
  return operation;
}

// Up to here, in all that a leader gets, each sends what it has to each other one. Gloo's
// collectives pass it on around a ring, which takes as many turns as there are hosts, or twice as
// many, with a wake-up of both ends and three messages each. Six processes on two cores, 8 bytes:
// an all-reduce 19 ms and 310 switches of threads, an all-gather 11 and 157; all to all 3.4 and 75.
constexpr size_t kSmallBytes = size_t{64} << 10;

bool IsSmallSum(const ReduceOp& operation, const at::Tensor& tensor, size_t hosts) {
  const auto kind = static_cast<ReduceOp::RedOpType>(operation);
  const bool known = kind == ReduceOp::SUM || kind == ReduceOp::MAX || kind == ReduceOp::MIN;
  return known && tensor.nbytes() * hosts <= kSmallBytes;
}

void Reduce(const ReduceOp& operation, const at::Tensor& other, at::Tensor& sum) {
  const auto kind = static_cast<ReduceOp::RedOpType>(operation);
  if (kind == ReduceOp::SUM) {
    sum.add_(other);
  } else {
    sum = kind == ReduceOp::MAX ? at::maximum(sum, other) : at::minimum(sum, other);
  }
}

// Keeps the memory: Gloo may still write there after its group was abandoned. Requires: contiguous.
at::Tensor AsBytes(const at::Tensor& tensor) {
  return at::from_blob(
      tensor.data_ptr(), {static_cast<int64_t>(tensor.nbytes())}, [tensor](void* /*data*/) {},
      at::kByte);
}

}  // namespace

uint32_t HostLayout::HostOf(uint32_t rank) const {
  for (uint32_t host = 0; host < hosts.size(); ++host) {
    if (std::count(hosts[host].begin(), hosts[host].end(), rank) > 0) return host;
  }
  DDPRUN_CHECK(false, absl::StrCat("rank ", rank, " is on no host"));
}

uint32_t HostLayout::LocalRankOf(uint32_t rank) const {
  const std::vector<uint32_t>& ranks = hosts[HostOf(rank)];
  return static_cast<uint32_t>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
}

HierarchicalBackend::HierarchicalBackend(uint32_t rank, HostLayout layout,
                                         std::unique_ptr<ShmGroup> local,
                                         c10::intrusive_ptr<c10d::Backend> leaders,
                                         std::chrono::milliseconds timeout, Disposal dispose)
    : CollectiveBackend(
          static_cast<int>(rank),
          [&layout] {
            size_t ranks = 0;
            for (const auto& host : layout.hosts) ranks += host.size();
            return static_cast<int>(ranks);
          }(),
          timeout),
      layout_(std::move(layout)),
      host_(layout_.HostOf(rank)),
      local_(std::move(local)),
      leaders_(std::move(leaders)),
      dispose_(std::move(dispose)) {}

HierarchicalBackend::~HierarchicalBackend() {
  local_->Leave();
  Abandon();
  StopQueue();
}

void HierarchicalBackend::Break(const std::string& reason) {
  local_->Break(reason);
  Abandon();
}

void HierarchicalBackend::Abandon() {
  const std::lock_guard lock(signal_->mutex);
  signal_->abandoned = true;
  signal_->changed.notify_all();
}

// Which the other hosts' leaders see. A collective that still runs would hold up the destructor up
// to its timeout.
void HierarchicalBackend::CloseLeaders() {
  const std::lock_guard lock(signal_->mutex);
  if (signal_->abandoned && dispose_ != nullptr) {
    if (leaders_ != nullptr) dispose_(std::move(leaders_));
    leaders_ = nullptr;
  } else if (signal_->abandoned) {
    leaders_.release();
  } else {
    leaders_.reset();
  }
}

void HierarchicalBackend::Await(const c10::intrusive_ptr<c10d::Work>& work) {
  const auto done = std::make_shared<bool>(false);
  work->getFuture()->addCallback([signal = signal_, done](c10::ivalue::Future& /*future*/) {
    const std::lock_guard lock(signal->mutex);
    *done = true;
    signal->changed.notify_all();
  });
  {
    std::unique_lock lock(signal_->mutex);
    signal_->changed.wait(lock, [&] { return *done || signal_->abandoned; });
    if (!*done) throw PeerFailure("the group was aborted during a collective between hosts");
  }
  work->wait();
}

CollectiveBackend::Step HierarchicalBackend::ToStep(std::function<void(Milliseconds timeout)> run) {
  Step step;
  step.run = [this, run = std::move(run)](Milliseconds timeout) {
    const at::NoGradGuard no_grad;
    try {
      run(timeout);
    } catch (...) {
      const absl::Status status = StatusFromCurrentException();
      local_->Break(std::string(absl::StripPrefix(status.message(), kPeerErrorPrefix)));
      CloseLeaders();
      throw;
    }
  };
  return step;
}

void HierarchicalBackend::AllReduceLeaders(const at::Tensor& tensor, const ReduceOp& operation,
                                           Milliseconds timeout) {
  if (leaders_ == nullptr) throw PeerFailure("the connection of the hosts' leaders is gone");
  if (tensor.numel() == 0) return;
  const ReduceOp of_leaders = LeadersOperation(operation, tensor);
  if (IsSmallSum(of_leaders, tensor, layout_.hosts.size())) {
    return AllReduceSmall(tensor, of_leaders, timeout);
  }
  // Gloo has no int16; in int32 the lower half is the same.
  const bool widen = tensor.scalar_type() == at::kShort;
  Tensors tensors = {widen ? tensor.to(at::kInt) : tensor};
  c10d::AllreduceOptions options;
  options.reduceOp = of_leaders;
  options.timeout = timeout;
  Await(leaders_->allreduce(tensors, options));
  if (widen) tensor.copy_(tensors[0]);
}

void HierarchicalBackend::AllReduceSmall(const at::Tensor& tensor, const ReduceOp& operation,
                                         Milliseconds timeout) {
  const at::Tensor bytes = AsBytes(tensor);  // in the order in which they lie
  at::Tensor blocks =
      at::empty({static_cast<int64_t>(layout_.hosts.size()), bytes.numel()}, at::kByte);
  AllGatherLeaders(bytes, blocks, timeout);
  const at::Tensor values = blocks.view(tensor.scalar_type());
  at::Tensor sum = values[0];
  for (int64_t host = 1; host < values.size(0); ++host) Reduce(operation, values[host], sum);
  bytes.copy_(sum.view(at::kByte));
}

void HierarchicalBackend::BroadcastLeaders(const at::Tensor& tensor, uint32_t host,
                                           Milliseconds timeout) {
  if (leaders_ == nullptr) throw PeerFailure("the connection of the hosts' leaders is gone");
  if (tensor.numel() == 0) return;
  // As bytes: Gloo doesn't know every type.
  Tensors tensors = {AsBytes(tensor)};
  c10d::BroadcastOptions options;
  options.rootRank = host;
  options.timeout = timeout;
  Await(leaders_->broadcast(tensors, options));
}

void HierarchicalBackend::AllGatherLeaders(at::Tensor own, const at::Tensor& blocks,
                                           Milliseconds timeout) {
  if (leaders_ == nullptr) throw PeerFailure("the connection of the hosts' leaders is gone");
  at::Tensor flat = blocks.view({-1});
  if (blocks.nbytes() <= kSmallBytes) {
    at::Tensor sent = own.repeat({static_cast<int64_t>(layout_.hosts.size())});
    std::vector<int64_t> even;
    c10d::AllToAllOptions options;
    options.timeout = timeout;
    return Await(leaders_->alltoall_base(flat, sent, even, even, options));
  }
  c10d::AllgatherOptions options;
  options.timeout = timeout;
  Await(leaders_->_allgather_base(flat, own, options));
}

void HierarchicalBackend::RunAllReduce(const at::Tensor& tensor, const ReduceOp& operation,
                                       Milliseconds timeout) {
  const bool average = static_cast<ReduceOp::RedOpType>(operation) == ReduceOp::AVG;
  Local(ShmGroup::AllReduce(tensor, average ? ReduceOp(ReduceOp::SUM) : operation), timeout);
  if (leads()) {
    AllReduceLeaders(tensor, operation, timeout);
    if (average) tensor.div_(getSize());
  }
  Local(ShmGroup::Broadcast(tensor, 0), timeout);
}

void HierarchicalBackend::RunBroadcast(const at::Tensor& tensor, uint32_t root,
                                       Milliseconds timeout) {
  const uint32_t root_host = layout_.HostOf(root);
  if (host_ == root_host) {
    Local(ShmGroup::Broadcast(tensor, layout_.LocalRankOf(root)), timeout);
  }
  if (leads()) BroadcastLeaders(tensor, root_host, timeout);
  if (host_ != root_host) Local(ShmGroup::Broadcast(tensor, 0), timeout);
}

void HierarchicalBackend::RunAllGather(const at::Tensor& input, const Tensors& outputs,
                                       Milliseconds timeout) {
  Tensors of_host;
  for (const uint32_t rank : layout_.hosts[host_]) of_host.push_back(outputs[rank]);
  Local(ShmGroup::AllGather(input, of_host), timeout);
  if (input.numel() == 0 || layout_.hosts.size() == 1) return;
  // A block for each host, all as long as that of the largest: the leaders exchange them at once,
  // and their hosts get all at once.
  const auto bytes = static_cast<int64_t>(input.nbytes());
  size_t most = 0;
  for (const auto& ranks : layout_.hosts) most = std::max(most, ranks.size());
  at::Tensor blocks = at::zeros(
      {static_cast<int64_t>(layout_.hosts.size()), static_cast<int64_t>(most) * bytes}, at::kByte);
  if (leads()) {
    at::Tensor own = blocks[host_].clone();
    for (size_t i = 0; i < of_host.size(); ++i) {
      own.narrow(0, static_cast<int64_t>(i) * bytes, bytes).copy_(AsBytes(of_host[i]));
    }
    AllGatherLeaders(own, blocks, timeout);
  }
  Local(ShmGroup::Broadcast(blocks, 0), timeout);
  for (uint32_t host = 0; host < layout_.hosts.size(); ++host) {
    if (host == host_) continue;
    for (size_t i = 0; i < layout_.hosts[host].size(); ++i) {
      AsBytes(outputs[layout_.hosts[host][i]])
          .copy_(blocks[host].narrow(0, static_cast<int64_t>(i) * bytes, bytes));
    }
  }
}

CollectiveBackend::Step HierarchicalBackend::AllReduce(const at::Tensor& tensor,
                                                       const ReduceOp& operation) {
  // In the calling thread: what can't be reduced is an error here.
  ShmGroup::AllReduce(tensor, operation);
  return ToStep([this, tensor, operation](Milliseconds timeout) {
    RunAllReduce(tensor, operation, timeout);
  });
}

CollectiveBackend::Step HierarchicalBackend::Broadcast(const at::Tensor& tensor, uint32_t root) {
  ShmGroup::Broadcast(tensor, 0);
  return ToStep(
      [this, tensor, root](Milliseconds timeout) { RunBroadcast(tensor, root, timeout); });
}

CollectiveBackend::Step HierarchicalBackend::AllGather(const at::Tensor& input,
                                                       const Tensors& outputs) {
  ShmGroup::AllGather(input, outputs);
  return ToStep(
      [this, input, outputs](Milliseconds timeout) { RunAllGather(input, outputs, timeout); });
}

// Everything is reduced, and each rank keeps its block.
CollectiveBackend::Step HierarchicalBackend::ReduceScatter(const Tensors& inputs,
                                                           const at::Tensor& output,
                                                           const ReduceOp& operation) {
  ShmGroup::ReduceScatter(inputs, output, operation);
  return ToStep([this, inputs, output, operation](Milliseconds timeout) {
    Tensors flat;
    for (const at::Tensor& input : inputs) flat.push_back(input.reshape({-1}));
    const at::Tensor whole = at::cat(flat);
    RunAllReduce(whole, operation, timeout);
    output.view({-1}).copy_(whole.narrow(0, getRank() * output.numel(), output.numel()));
  });
}

CollectiveBackend::Step HierarchicalBackend::Barrier() {
  return ToStep([this](Milliseconds timeout) {
    RunAllReduce(at::zeros({1}, at::kByte), ReduceOp::SUM, timeout);
  });
}

}  // namespace ddprun::worker
