#include "worker/torch/checkpoint/healing.h"

#include <ATen/ops/from_blob.h>
#include <torch/utils.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "ddprun/parameters.h"
#include "worker/torch/checkpoint/checkpoint_exchange.h"
#include "worker/torch/collectives/group_abort.h"
#include "worker/torch/collectives/process_group.h"
#include "worker/torch/context/context_implementation.h"
#include "worker/torch/errors/exception_status.h"
#include "worker/torch/store/gathering_store.h"

// How a new worker gets the state while the others train.
//
// Goal: after a kill the ranks that live don't wait until gigabytes of parameters and optimizer
// state have been copied to the new worker. Only the optimizer's step changes these tensors, so
// givers send them from where they lie while the passes of the next step run.
//
//            giver                         taker
//   Begin    the leader sends buffers      keeps a copy of its own buffers and extras, takes those
//            and extras (introduction)     of the leader, and zeroes its gradients with hooks
//   passes   learns from its samples       makes as many passes, with samples that don't count
//            beside them, the transfer: tensors -> messages -> memory_
//   Finish   waits for the transfer        waits for the transfer, restores the state
//            all-gather of a number: every rank has the state
//            broadcast of the leader's buffers, which takers copy
//   then     every optimizer steps
//
// Invariant: no optimizer steps before the all-gather, so no rank is ever further than the new
// worker, and a kill at any moment costs this one step. If the givers stepped without waiting, one
// could be a step ahead, die, and take the only copy of that state with it.
//
// Why a taker makes passes at all: they begin the same collectives as the others' passes, so the
// reducer needs no special case. Its gradients are zeroed by hooks, because a loss times 0 doesn't
// remove an infinity (0 * inf is NaN). LibTorch divides the sum of gradients by all ranks; with 3
// learners among 4 ranks, each learner's loss therefore has the weight 4/3 (WeighForLearners).
//
// The transfer's group has the takers first, then as many givers as serve, and taker i is served by
// giver i mod (number of givers). Example: ranks 1 and 3 are new among four.
//
//   rank in the group   0   1   2   3
//   rank                1   3   0   2     (takers 1, 3; givers 0, 2)
//   partners            2   3   0   1     rank 0 serves rank 1, rank 2 serves rank 3
//
// Message m is posted when message m - kMessagesAhead is done.

namespace ddprun::worker {
namespace {

// A tensor travels in messages of at most 4 MiB. Several are posted, so that the connection isn't
// idle while one is waited for.
constexpr size_t kMessageBytes = size_t{4} << 20;
constexpr size_t kMessagesAhead = 4;
constexpr int kTransferTag = 0;

// Names in the introduction, beside those of the passing tensors.
constexpr const char* kHeader = "header";
constexpr const char* kFileBytes = "file_bytes";

size_t SizeOf(const TensorFile& file) {
  size_t bytes = 0;
  for (const TensorEntry& entry : file.tensors) bytes += entry.bytes.size();
  return bytes;
}

}  // namespace

Healing::Healing(Context& context, const ReplicatedState& state, const KnownStates& known)
    : context_(context), state_(state), known_(known) {
  for (uint32_t rank = 0; rank < known_.versions.size(); ++rank) {
    (known_.HasIt(rank) ? givers_ : takers_).push_back(rank);
  }
}

Healing::~Healing() { LetGo(); }

uint32_t Healing::learner() const {
  if (takes()) return 0;
  return static_cast<uint32_t>(std::find(givers_.begin(), givers_.end(), context_.rank()) -
                               givers_.begin());
}

absl::StatusOr<std::unique_ptr<Healing>> Healing::Begin(Context& context,
                                                        const ReplicatedState& state,
                                                        const KnownStates& known) {
  std::unique_ptr<Healing> healing(new Healing(context, state, known));
  const absl::Status begun = CatchExceptions([&] { return healing->Start(); });
  if (begun.ok()) return healing;
  DDPRUN_RETURN_IF_ERROR(healing->Abandon());
  return begun;
}

absl::Status Healing::Start() {
  const bool leads = context_.rank() == known_.leader;
  absl::StatusOr<torch::Tensor> own = torch::Tensor();
  absl::Status readable;
  if (!takes()) {
    readable = ReadOwn();
  }
  if (leads) own = readable.ok() ? Introduction() : absl::StatusOr<torch::Tensor>(readable);
  DDPRUN_ASSIGN_OR_RETURN(const torch::Tensor sent, SendFromLeader(context_, known_.leader, own));
  DDPRUN_RETURN_IF_ERROR(readable);
  if (takes()) DDPRUN_RETURN_IF_ERROR(TakeIntroduction(sent));
  for (const TensorEntry& entry : file_.tensors) {
    for (size_t begin = 0; begin < entry.bytes.size(); begin += kMessageBytes) {
      messages_.push_back(entry.bytes.substr(begin, kMessageBytes));
    }
  }
  return Connect();
}

absl::Status Healing::ReadOwn() {
  DDPRUN_ASSIGN_OR_RETURN(const CheckpointTensors lasting, LastingTensors(state_));
  DDPRUN_ASSIGN_OR_RETURN(file_, ToTensorFile(lasting, kept_));
  return absl::OkStatus();
}

absl::StatusOr<torch::Tensor> Healing::Introduction() {
  CheckpointTensors tensors = PassingTensors(state_, version().progress);
  const std::string header = EncodePlainTensorFileHeader(file_);
  tensors[kHeader] = BytesTensor(header);
  tensors[kFileBytes] = torch::tensor(static_cast<int64_t>(header.size() + SizeOf(file_)));
  return EncodeTensors(tensors);
}

absl::Status Healing::TakeIntroduction(const torch::Tensor& bytes) {
  DDPRUN_ASSIGN_OR_RETURN(introduction_, DecodeTensors(bytes));
  const torch::Tensor header = introduction_.at(kHeader);
  const int64_t bytes_of_file = introduction_.at(kFileBytes).item<int64_t>();
  if (bytes_of_file < static_cast<int64_t>(header.nbytes())) {
    return absl::DataLossError(absl::StrCat("rank ", known_.leader, " announces a state of ",
                                            bytes_of_file, " bytes, less than its header"));
  }
  memory_ = torch::empty({bytes_of_file}, torch::kByte);
  std::memcpy(memory_.mutable_data_ptr(), header.const_data_ptr(), header.nbytes());
  // The header is enough to know where each tensor will lie; the transfer fills in the rest.
  DDPRUN_ASSIGN_OR_RETURN(
      file_,
      DecodeTensorFile({static_cast<const char*>(memory_.const_data_ptr()), memory_.nbytes()},
                       TensorFileCheck::kLength));
  const torch::NoGradGuard no_grad;
  KeepWhatWasBefore();
  for (const NamedTensor& buffer : NamedBuffers(state_.module)) {
    const auto found = introduction_.find(kModelPrefix + buffer.name);
    if (found == introduction_.end() || found->second.sizes() != buffer.tensor.sizes()) {
      return absl::FailedPreconditionError(
          absl::StrCat("other ranks' models have no buffer '", buffer.name, "' of that shape"));
    }
    buffer.tensor.detach().copy_(found->second);
  }
  DDPRUN_RETURN_IF_ERROR(RestoreExtras(introduction_, state_));
  // This rank's parameters are of no use until the transfer is over; its gradients may be infinite.
  for (torch::Tensor& parameter : Parameters(state_.module)) {
    if (!parameter.requires_grad()) continue;
    mutes_.emplace_back(parameter, parameter.register_hook([](const torch::Tensor& gradient) {
      return torch::zeros_like(gradient);
    }));
  }
  return absl::OkStatus();
}

void Healing::KeepWhatWasBefore() {
  before_ = PassingTensors(state_, {});
  for (auto& [name, tensor] : before_) tensor = tensor.clone();
}

absl::Status Healing::PutBack() {
  if (before_.empty()) return absl::OkStatus();
  const torch::NoGradGuard no_grad;
  for (const NamedTensor& buffer : NamedBuffers(state_.module)) {
    buffer.tensor.detach().copy_(before_.at(kModelPrefix + buffer.name));
  }
  return RestoreExtras(before_, state_);
}

// A giver without a taker stays out of the transfer's group.
absl::Status Healing::Connect() {
  std::vector<uint32_t> members = takers_;
  const size_t serving = std::min(givers_.size(), takers_.size());
  members.insert(members.end(), givers_.begin(), givers_.begin() + static_cast<int>(serving));
  const auto found = std::find(members.begin(), members.end(), context_.rank());
  if (found == members.end()) return absl::OkStatus();
  for (size_t i = 0; i < takers_.size(); ++i) {
    const size_t giver = i % givers_.size();
    if (takers_[i] == context_.rank()) partners_ = {static_cast<int>(takers_.size() + giver)};
    if (givers_[giver] == context_.rank()) partners_.push_back(static_cast<int>(i));
  }
  const Context::Implementation& place = context_.implementation();
  ProcessGroupPlan plan = place.plan;
  plan.rank = static_cast<uint32_t>(found - members.begin());
  plan.world_size = static_cast<uint32_t>(members.size());
  DDPRUN_ASSIGN_OR_RETURN(
      links_, CreateMessageGroup(c10::make_intrusive<StorePart>("healing", place.store), plan));
  thread_ = std::thread([this] { transferred_ = CatchExceptions([this] { return Transfer(); }); });
  return absl::OkStatus();
}

void Healing::Post(size_t message, Works& works) {
  NotifyTransferWatch(!takes(), message, messages_.size());
  const absl::string_view bytes = messages_[message];
  std::vector<torch::Tensor> tensors = {at::from_blob(
      const_cast<char*>(bytes.data()), {static_cast<int64_t>(bytes.size())}, torch::kByte)};
  for (const int partner : partners_) {
    works.push_back(takes() ? links_->recv(tensors, partner, kTransferTag)
                            : links_->send(tensors, partner, kTransferTag));
  }
}

absl::Status Healing::Transfer() {
  // Without a timeout of its own a message waits for as long as a connection may take.
  const auto timeout =
      absl::ToChronoMilliseconds(context_.implementation().plan.collective_timeout);
  std::vector<Works> under_way(kMessagesAhead);
  const auto await = [&](Works& works) {
    for (const auto& work : works) {
      if (!work->wait(timeout)) throw PeerFailure("the transfer of the state was given up");
    }
    works.clear();
  };
  for (size_t message = 0; message < messages_.size(); ++message) {
    Works& works = under_way[message % kMessagesAhead];
    await(works);
    Post(message, works);
  }
  for (size_t i = 0; i < kMessagesAhead; ++i) {
    await(under_way[(messages_.size() + i) % kMessagesAhead]);
  }
  NotifyTransferWatch(!takes(), messages_.size(), messages_.size());
  return absl::OkStatus();
}

absl::Status Healing::Take() {
  CheckpointTensors tensors = FromTensorFile(file_, std::make_shared<torch::Tensor>(memory_));
  AddTensors("", introduction_, tensors);
  tensors.erase(kHeader);
  tensors.erase(kFileBytes);
  DDPRUN_RETURN_IF_ERROR(RestoreLasting(tensors, state_));
  has_taken_ = true;
  file_ = TensorFile();
  memory_ = torch::Tensor();
  return absl::OkStatus();
}

absl::Status Healing::ShareBuffers() {
  const torch::NoGradGuard no_grad;
  for (const NamedTensor& buffer : NamedBuffers(state_.module)) {
    // A giver keeps its buffers, which its own samples have changed (BatchNorm's statistics).
    torch::Tensor sent = buffer.tensor.detach().clone().contiguous();
    DDPRUN_RETURN_IF_ERROR(context_.Broadcast(sent, known_.leader));
    if (takes()) buffer.tensor.detach().copy_(sent);
  }
  return absl::OkStatus();
}

absl::Status Healing::Finish() {
  if (is_finished_) return absl::OkStatus();
  return CatchExceptions([&]() -> absl::Status {
    if (thread_.joinable()) thread_.join();
    DDPRUN_RETURN_IF_ERROR(transferred_);
    if (takes()) DDPRUN_RETURN_IF_ERROR(Take());
    // A send is done before its bytes have arrived. Only after this collective does a giver know
    // that they have, and may close its connections.
    DDPRUN_RETURN_IF_ERROR(GatherNumber(context_, 0).status());
    DDPRUN_RETURN_IF_ERROR(ShareBuffers());
    is_finished_ = true;
    LetGo();
    return absl::OkStatus();
  });
}

absl::Status Healing::Abandon() {
  if (is_finished_) return absl::OkStatus();
  const bool has_begun = thread_.joinable();
  LetGo();
  if (!takes() || has_taken_) return absl::OkStatus();
  if (has_begun && transferred_.ok()) return CatchExceptions([this] { return Take(); });
  return CatchExceptions([this] { return PutBack(); });
}

void Healing::LetGo() {
  if (links_) links_->abort();
  if (thread_.joinable()) thread_.join();
  // Messages that were given up may still arrive: `memory_` lives as long as the connections.
  if (links_) GroupAbort::DestroyBeside(std::move(links_), memory_);
  for (auto& [parameter, hook] : mutes_) parameter.remove_hook(hook);
  mutes_.clear();
}

}  // namespace ddprun::worker
