#include "worker/torch/collectives/shm_group.h"

#include <sched.h>
#include <unistd.h>

#include <optional>
#include <stdexcept>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "worker/shm/reduce.h"
#include "worker/torch/errors/exception_status.h"
#include "worker/torch/store/gathering_store.h"

namespace ddprun::worker {
namespace {

using shm::Call;
using shm::DataType;
using shm::Kind;
using shm::Reduction;
using shm::Segment;

// How long the training thread spins for peers that are nearly in step. Measured on 2 cores:
// char_gpt trains a tenth faster with this than with 50 µs (bench/worker_bench.py).
constexpr absl::Duration kPatience = absl::Milliseconds(1);
// About the cost of putting a thread to sleep and waking it.
constexpr absl::Duration kBackgroundPatience = absl::Microseconds(20);

constexpr std::chrono::hours kLongestTimeout(24 * 365);

constexpr const char* kRefused = "refused: ";

int AvailableCpus() {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  return sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
}

// Spinning pays only if there is a core for the peer that is waited for.
absl::Duration PatienceFor(uint32_t threads, absl::Duration patience) {
  return AvailableCpus() >= static_cast<int>(threads) ? patience : absl::ZeroDuration();
}

[[noreturn]] void Refuse(const std::string& why) {
  throw std::invalid_argument(absl::StrCat("shm backend: ", why));
}

void ThrowIfFailed(const absl::Status& status) {
  if (status.ok()) return;
  const std::string text(status.message());
  if (absl::IsInvalidArgument(status)) throw std::invalid_argument(text);
  throw PeerFailure(text);
}

uint64_t CountOf(const at::Tensor& tensor) { return static_cast<uint64_t>(tensor.numel()); }

std::optional<DataType> FindType(const at::Tensor& tensor) {
  static constexpr std::pair<at::ScalarType, DataType> kTypes[] = {
      {at::kBool, DataType::kBool},     {at::kByte, DataType::kUint8},
      {at::kChar, DataType::kInt8},     {at::kShort, DataType::kInt16},
      {at::kInt, DataType::kInt32},     {at::kLong, DataType::kInt64},
      {at::kHalf, DataType::kFloat16},  {at::kBFloat16, DataType::kBFloat16},
      {at::kFloat, DataType::kFloat32}, {at::kDouble, DataType::kFloat64},
  };
  for (const auto& [theirs, ours] : kTypes) {
    if (tensor.scalar_type() == theirs) return ours;
  }
  return std::nullopt;
}

DataType TypeOf(const at::Tensor& tensor) {
  if (const std::optional<DataType> type = FindType(tensor)) return *type;
  Refuse(absl::StrCat("no reductions for tensors of ", c10::toString(tensor.scalar_type())));
}

// For collectives that only copy: types without arithmetic are sent as bytes.
shm::Announcement CopyOf(Kind kind, const at::Tensor& tensor, uint32_t root = 0) {
  const std::optional<DataType> type = FindType(tensor);
  return {.kind = kind,
          .type = type.value_or(DataType::kUint8),
          .root = root,
          .count = type.has_value() ? CountOf(tensor) : tensor.nbytes()};
}

Reduction ReductionOf(const c10d::ReduceOp& operation, DataType type) {
  const auto checked = [type](Reduction reduction) {
    if (shm::IsReducible(type, reduction)) return reduction;
    Refuse(absl::StrCat("the reduction ", shm::NameOf(reduction), " has no meaning for ",
                        shm::NameOf(type)));
  };
  switch (static_cast<c10d::ReduceOp::RedOpType>(operation)) {
    case c10d::ReduceOp::SUM:
      return checked(Reduction::kSum);
    case c10d::ReduceOp::AVG:
      return checked(Reduction::kAverage);
    case c10d::ReduceOp::PRODUCT:
      return checked(Reduction::kProduct);
    case c10d::ReduceOp::MIN:
      return checked(Reduction::kMin);
    case c10d::ReduceOp::MAX:
      return checked(Reduction::kMax);
    case c10d::ReduceOp::BAND:
      return checked(Reduction::kBitAnd);
    case c10d::ReduceOp::BOR:
      return checked(Reduction::kBitOr);
    case c10d::ReduceOp::BXOR:
      return checked(Reduction::kBitXor);
    case c10d::ReduceOp::PREMUL_SUM:
    case c10d::ReduceOp::UNUSED:
      break;
  }
  Refuse("PREMUL_SUM is NCCL's; multiply first, then use SUM");
}

void CheckTensor(const at::Tensor& tensor, bool any_dense_layout) {
  if (!tensor.device().is_cpu()) {
    Refuse(absl::StrCat("a tensor is on ", tensor.device().str(), "; it serves the CPU's"));
  }
  if (tensor.layout() != at::kStrided) Refuse("sparse tensors have no collectives");
  const bool usable =
      any_dense_layout ? tensor.is_non_overlapping_and_dense() : tensor.is_contiguous();
  if (!usable) {
    Refuse("a tensor is not contiguous; pass tensor.contiguous()");
  }
}

const std::byte* Bytes(const at::Tensor& tensor) {
  return static_cast<const std::byte*>(tensor.const_data_ptr());
}
std::byte* MutableBytes(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.data_ptr());
}

void CheckSame(const at::Tensor& one, const at::Tensor& other) {
  CheckTensor(other, false);
  if (other.numel() == one.numel() && other.scalar_type() == one.scalar_type()) return;
  Refuse(absl::StrCat("inputs and outputs must match: one has ", one.numel(), " elements of ",
                      c10::toString(one.scalar_type()), ", one ", other.numel(), " of ",
                      c10::toString(other.scalar_type())));
}

absl::Duration TimeoutOf(const c10d::Store& store) { return absl::FromChrono(store.getTimeout()); }

// Rank 0's segment, or a peer's mapping of it.
absl::StatusOr<std::unique_ptr<Segment>> MakeSegment(c10d::Store& store, uint32_t rank,
                                                     uint32_t ranks) {
  if (rank == 0) {
    // Different for every segment that this host ever had.
    const auto nonce =
        static_cast<uint64_t>(MonotonicNow().nanoseconds()) ^ static_cast<uint64_t>(getpid()) << 40;
    absl::StatusOr<std::unique_ptr<Segment>> segment = Segment::Create(ranks, nonce);
    store.set("segment", segment.ok() ? (*segment)->address().ToText()
                                      : absl::StrCat(kRefused, segment.status().message()));
    return segment;
  }
  const std::string text = Gather(store, "", "", {"segment"}, TimeoutOf(store))[0];
  DDPRUN_ASSIGN_OR_RETURN(const Segment::Address address, Segment::Address::FromText(text));
  return Segment::Open(address, ranks);
}

// Exchanges all ranks' results; the first error is that of the group.
absl::Status AgreeOn(c10d::Store& store, uint32_t rank, const std::vector<uint32_t>& world_ranks,
                     const absl::Status& mine) {
  const std::vector<std::string> answers = GatherWords(
      store, "ready", rank, world_ranks.size(),
      mine.ok() ? std::string("yes") : absl::StrCat(kRefused, mine.message()), TimeoutOf(store));
  absl::Status agreed;
  for (uint32_t peer = 0; peer < world_ranks.size(); ++peer) {
    absl::string_view why = answers[peer];
    if (!absl::ConsumePrefix(&why, kRefused) || !agreed.ok()) continue;
    agreed = absl::FailedPreconditionError(
        absl::StrCat("shared memory can't be used between the workers of this host: rank ",
                     world_ranks[peer], ": ", why));
  }
  return agreed;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ShmGroup>> ShmGroup::Create(
    c10d::Store& store, uint32_t rank, const std::vector<uint32_t>& world_ranks) {
  absl::StatusOr<std::unique_ptr<Segment>> made =
      MakeSegment(store, rank, static_cast<uint32_t>(world_ranks.size()));
  absl::Status mine = made.status();
  if (mine.ok()) {
    (*made)->Join(rank, world_ranks[rank]);
    mine = shm::CheckPeerWatch();
  }
  DDPRUN_RETURN_IF_ERROR(AgreeOn(store, rank, world_ranks, mine));
  std::shared_ptr<Segment> segment = *std::move(made);
  segment->CloseFile();
  std::unique_ptr<ShmGroup> group(new ShmGroup(segment, rank));
  DDPRUN_ASSIGN_OR_RETURN(group->watch_, shm::PeerWatch::Start(segment, rank));
  return group;
}

ShmGroup::ShmGroup(const std::shared_ptr<Segment>& segment, uint32_t rank)
    : communicator_(std::make_unique<shm::Communicator>(segment, rank)),
      patience_(PatienceFor(segment->ranks(), kPatience)),
      background_patience_(PatienceFor(2 * segment->ranks(), kBackgroundPatience)) {}

void ShmGroup::Leave() {
  Break(absl::StrCat(communicator_->segment().NameOfRank(rank()), " left the group"));
}

Call ShmGroup::AllReduce(const at::Tensor& tensor, const c10d::ReduceOp& operation) {
  CheckTensor(tensor, true);
  const DataType type = TypeOf(tensor);
  return {.what = {.kind = Kind::kAllReduce,
                   .type = type,
                   .reduction = ReductionOf(operation, type),
                   .count = CountOf(tensor)},
          .inputs = {Bytes(tensor)},
          .outputs = {MutableBytes(tensor)}};
}

Call ShmGroup::Broadcast(const at::Tensor& tensor, uint32_t root) {
  CheckTensor(tensor, true);
  return {.what = CopyOf(Kind::kBroadcast, tensor, root),
          .inputs = {Bytes(tensor)},
          .outputs = {MutableBytes(tensor)}};
}

Call ShmGroup::AllGather(const at::Tensor& input, const std::vector<at::Tensor>& outputs) {
  CheckTensor(input, false);
  Call call = {.what = CopyOf(Kind::kAllGather, input), .inputs = {Bytes(input)}};
  for (const at::Tensor& output : outputs) {
    CheckSame(input, output);
    call.outputs.push_back(MutableBytes(output));
  }
  return call;
}

Call ShmGroup::ReduceScatter(const std::vector<at::Tensor>& inputs, const at::Tensor& output,
                             const c10d::ReduceOp& operation) {
  CheckTensor(output, false);
  const DataType type = TypeOf(output);
  Call call = {.what = {.kind = Kind::kReduceScatter,
                        .type = type,
                        .reduction = ReductionOf(operation, type),
                        .count = CountOf(output)},
               .outputs = {MutableBytes(output)}};
  for (const at::Tensor& input : inputs) {
    CheckSame(output, input);
    call.inputs.push_back(Bytes(input));
  }
  return call;
}

Call ShmGroup::Barrier() { return {.what = {.kind = Kind::kBarrier}}; }

bool ShmGroup::Try(Call& call) {
  const absl::StatusOr<bool> done = communicator_->Try(call, patience_);
  ThrowIfFailed(done.status());
  return *done;
}

void ShmGroup::Finish(Call& call, std::chrono::milliseconds timeout) {
  // "No limit" is the largest number, to which the clock's time can't be added.
  const Instant deadline =
      timeout > kLongestTimeout ? Instant::Infinite() : MonotonicNow() + absl::FromChrono(timeout);
  ThrowIfFailed(communicator_->Finish(call, background_patience_, deadline));
}

namespace {

// Larger tensors go to the queue's thread at once, beside the backward pass, because copying them
// takes longer than waking a thread.
constexpr size_t kTriedBytes = size_t{512} << 10;

}  // namespace

ShmBackend::ShmBackend(std::unique_ptr<ShmGroup> group, std::chrono::milliseconds timeout)
    : CollectiveBackend(static_cast<int>(group->rank()), static_cast<int>(group->ranks()), timeout),
      group_(std::move(group)) {}

ShmBackend::~ShmBackend() {
  group_->Leave();
  StopQueue();
}

CollectiveBackend::Step ShmBackend::ToStep(shm::Call call, Tensors kept, size_t bytes) {
  struct State {
    shm::Call call;
    Tensors kept;
  };
  auto state = std::make_shared<State>();
  state->call = std::move(call);
  state->kept = std::move(kept);
  Step step;
  if (bytes <= kTriedBytes) {
    step.attempt = [this, state] { return group_->Try(state->call); };
  }
  step.run = [this, state](std::chrono::milliseconds timeout) {
    group_->Finish(state->call, timeout);
  };
  return step;
}

CollectiveBackend::Step ShmBackend::AllReduce(const at::Tensor& tensor,
                                              const c10d::ReduceOp& operation) {
  return ToStep(ShmGroup::AllReduce(tensor, operation), {tensor}, tensor.nbytes());
}

CollectiveBackend::Step ShmBackend::Broadcast(const at::Tensor& tensor, uint32_t root) {
  return ToStep(ShmGroup::Broadcast(tensor, root), {tensor}, tensor.nbytes());
}

CollectiveBackend::Step ShmBackend::AllGather(const at::Tensor& input, const Tensors& outputs) {
  Tensors kept = outputs;
  kept.push_back(input);
  return ToStep(ShmGroup::AllGather(input, outputs), std::move(kept),
                input.nbytes() * outputs.size());
}

CollectiveBackend::Step ShmBackend::ReduceScatter(const Tensors& inputs, const at::Tensor& output,
                                                  const c10d::ReduceOp& operation) {
  Tensors kept = inputs;
  kept.push_back(output);
  return ToStep(ShmGroup::ReduceScatter(inputs, output, operation), std::move(kept),
                output.nbytes() * inputs.size());
}

CollectiveBackend::Step ShmBackend::Barrier() { return ToStep(ShmGroup::Barrier(), {}, 0); }

}  // namespace ddprun::worker
