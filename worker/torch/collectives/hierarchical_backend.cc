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
#include "worker/torch/collectives/single_tensor_collectives.h"
#include "worker/torch/errors/exception_status.h"

// Collectives in two levels: shared memory on a host, the leaders' backend between hosts.
//
// Goal: only one rank a host, its leader, uses the network. Gloo's ring then has as many members as
// there are hosts, so it takes fewer turns (a turn costs a wake-up at both ends). Each collective
// is a sequence of local and leaders' collectives; all ranks of a host run the same local ones.
//
// Example: all-reduce (sum), hosts {0 1} and {2 3}; ranks 0 and 2 lead.
//
//   rank                       0    1    2    3
//   begins with                1    2    3    4
//   local all-reduce           3    3    7    7
//   leaders' all-reduce       10    3   10    7
//   local broadcast from 0    10   10   10   10
//
// An average is summed in both steps and divided by the number of ranks, by the leaders, before the
// last one: averages of hosts' averages would be wrong for hosts of different sizes.
//
// Example: all-gather, hosts {0 1} and {2}. A block a host, all as long as the largest host's:
//
//   leader 0's block   [ rank 0 | rank 1 ]
//   leader 1's block   [ rank 2 | zeros  ]
//
// The leaders exchange blocks with one all-gather of equal parts, then broadcast all of them.
//
// Invariant: all ranks get the same bits. A leader's result is broadcast and never computed again,
// and Reduce in AllReduceSmall runs in the order of hosts on each leader. The order can matter: in
// float32, 1e8 - 1e8 + 1 is 1, but 1 + 1e8 - 1e8 is 0.
//
// Failure: Gloo's collectives can't be cancelled. A rank that is aborted stops waiting for one
// (Await) while Gloo's threads may still write into its tensors. So everything handed to Gloo owns
// its memory (AsBytes), and an abandoned group is given to `dispose`, or left to the end of the
// process: its destructor would wait for the collective's timeout.

namespace ddprun::worker {
namespace {

using c10d::ReduceOp;

// The reduction of the leaders' step. Gloo would add truth values up as bytes, so that a sum of
// them ("or", as in Reduce of worker/shm) is a maximum here.
ReduceOp LeadersOperation(const ReduceOp& operation, const at::Tensor& tensor) {
  const auto kind = static_cast<ReduceOp::RedOpType>(operation);
  if (kind == ReduceOp::AVG) return ReduceOp::SUM;
  if (tensor.scalar_type() != at::kBool) return operation;
  if (kind == ReduceOp::SUM) return ReduceOp::MAX;
  if (kind == ReduceOp::PRODUCT) return ReduceOp::MIN;
  return operation;
}

// Up to so many bytes that a leader receives in all, each leader sends its data to each other one
// (all-to-all). Gloo's other collectives pass data on around a ring, in as many turns as there are
// hosts, or twice as many, each with a wake-up of both ends and three messages. Measured with six
// processes on two cores and 8 bytes:
//
//   all-reduce   19 ms    310 thread switches
//   all-gather   11 ms    157
//   all-to-all   3.4 ms    75
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

// The tensor's memory as bytes, which it keeps alive. Requires: contiguous.
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

// The other hosts' leaders see that the connections are closed, and fail as well. Of an abandoned
// group, the destructor would wait for the collective that still runs, up to its timeout.
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
  // Gloo has no int16. The lower half of the int32 result is the int16 result, wrapped around.
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
  const at::Tensor bytes = AsBytes(tensor);
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
  // As bytes, because Gloo doesn't know every type.
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
    return Await(AllToAllTensor(*leaders_, flat, sent, even, even, options));
  }
  c10d::AllgatherOptions options;
  options.timeout = timeout;
  Await(AllGatherTensor(*leaders_, flat, own, options));
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
  // Only for its checks: an impossible reduction is an error in the calling thread.
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

// An all-reduce of all blocks, after which each rank keeps its own. Between hosts that sends more
// than a reduce-scatter would, but Gloo's is an all-reduce as well.
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
