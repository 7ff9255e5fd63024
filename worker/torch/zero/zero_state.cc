#include "worker/torch/zero/zero_state.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/utils.h>

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "worker/torch/collectives/collectives.h"
#include "worker/torch/collectives/single_tensor_collectives.h"
#include "worker/torch/errors/exception_status.h"
#include "worker/torch/optim/master_parameters.h"
#include "worker/torch/optim/optimizer_state.h"
#include "worker/torch/zero/zero_optimizer_implementation.h"
#include "worker/torch/zero/zero_shares.h"

namespace ddprun {
namespace {

using torch::optim::OptimizerParamGroup;
using worker::OptimizerFields;
using worker::OptimizerTensors;
using worker::ZeroPieceTensor;
using worker::ZeroStateName;

std::string LearningRateKey(size_t group) {
  return absl::StrCat("group.", group, ".learning_rate");
}

void AddLearningRates(const std::vector<OptimizerParamGroup>& groups, ZeroState& state) {
  for (size_t i = 0; i < groups.size(); ++i) {
    state[LearningRateKey(i)] = at::full({}, groups[i].options().get_lr(), torch::kDouble);
  }
}

// Which fields each parameter has, on any rank: a count as itself + 1, a tensor as the number of
// its type + 1, else 0. [parameters, fields], the tensors' fields first.
absl::StatusOr<torch::Tensor> AgreeOnFields(const ZeroImplementation& zero,
                                            const OptimizerFields& fields,
                                            const OptimizerTensors& own) {
  const auto columns = static_cast<int64_t>(fields.tensors.size() + fields.counts.size());
  torch::Tensor table =
      at::zeros({static_cast<int64_t>(zero.shapes.size()), columns}, torch::kLong);
  const auto& pieces = zero.storage->pieces();
  for (size_t i = 0; i < pieces.size(); ++i) {
    const size_t number = zero.storage->parameters()[pieces[i].piece.parameter].number;
    int64_t column = 0;
    const auto enter = [&](const std::string& field, bool counts) {
      const auto found = own.find(absl::StrCat(i, ".", field));
      if (found != own.end()) {
        table[static_cast<int64_t>(number)][column] =
            1 + (counts ? found->second.item<int64_t>()
                        : static_cast<int64_t>(found->second.scalar_type()));
      }
      ++column;
    };
    for (const std::string& field : fields.tensors) enter(field, false);
    for (const std::string& field : fields.counts) enter(field, true);
  }
  table = table.to(zero.device);
  DDPRUN_RETURN_IF_ERROR(worker::AllReduce(*zero.group, table, c10d::ReduceOp::MAX));
  return table.cpu();
}

// One field of one bucket from all ranks, [world_size * share] in CPU memory on `target`.
absl::StatusOr<torch::Tensor> GatherField(const ZeroImplementation& zero, size_t bucket,
                                          const std::string& field, const OptimizerTensors& own) {
  const worker::ZeroBucket& place = zero.storage->buckets()[bucket];
  // The state of narrow parameters may be of their type or, as masters are, float32.
  const torch::TensorOptions options = place.share.options().dtype(
      worker::HasMaster(place.share.scalar_type()) ? torch::kFloat : place.share.scalar_type());
  torch::Tensor share = at::zeros(place.share.sizes(), options);
  const auto& pieces = zero.storage->pieces();
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].piece.bucket != bucket) continue;
    const auto found = own.find(absl::StrCat(i, ".", field));
    if (found == own.end()) continue;
    worker::ZeroStorage::PartOf(pieces[i].piece, share).copy_(found->second);
  }
  torch::Tensor all = at::empty(place.parameters.sizes(), options);
  worker::AllGatherTensor(*zero.group, all, share)->wait();
  DDPRUN_RETURN_IF_ERROR(zero.AwaitGroup());
  return all;
}

// Adds a gathered field's tensors by parameter.
void TakeApart(const ZeroImplementation& zero, const worker::ZeroBucketLayout& layout,
               const torch::Tensor& gathered, const std::string& field,
               const torch::Tensor& present, ZeroState& state) {
  const torch::Tensor flat = gathered.cpu();
  for (const worker::ZeroSlot& slot : layout.slots) {
    const worker::ZeroParameter& parameter = zero.storage->parameters()[slot.parameter];
    const int64_t type = present[static_cast<int64_t>(parameter.number)].item<int64_t>();
    if (type == 0) continue;
    state[ZeroStateName{.parameter = parameter.number, .field = field}.ToText()] =
        flat.narrow(0, slot.begin, slot.length)
            .view(parameter.tensor.sizes())
            .to(static_cast<torch::ScalarType>(type - 1), /*non_blocking=*/false, /*copy=*/true);
  }
}

absl::StatusOr<ZeroState> Consolidate(const ZeroImplementation& zero, bool keeps) {
  const torch::NoGradGuard no_grad;
  DDPRUN_ASSIGN_OR_RETURN(const OptimizerFields fields, worker::GetOptimizerFields(*zero.inner));
  DDPRUN_ASSIGN_OR_RETURN(const OptimizerTensors own, worker::GetOptimizerState(*zero.inner));
  DDPRUN_ASSIGN_OR_RETURN(const torch::Tensor table, AgreeOnFields(zero, fields, own));
  ZeroState state;
  for (size_t column = 0; column < fields.tensors.size(); ++column) {
    const torch::Tensor present = table.select(1, static_cast<int64_t>(column));
    if (present.count_nonzero().item<int64_t>() == 0) continue;
    for (size_t bucket = 0; bucket < zero.storage->buckets().size(); ++bucket) {
      DDPRUN_ASSIGN_OR_RETURN(const torch::Tensor gathered,
                              GatherField(zero, bucket, fields.tensors[column], own));
      if (!keeps) continue;
      TakeApart(zero, zero.storage->buckets()[bucket].layout, gathered, fields.tensors[column],
                present, state);
    }
  }
  if (!keeps) return state;
  for (size_t i = 0; i < fields.counts.size(); ++i) {
    const torch::Tensor counts = table.select(1, static_cast<int64_t>(fields.tensors.size() + i));
    for (size_t number = 0; number < zero.shapes.size(); ++number) {
      const int64_t value = counts[static_cast<int64_t>(number)].item<int64_t>();
      if (value == 0) continue;
      state[ZeroStateName{.parameter = number, .field = fields.counts[i]}.ToText()] =
          at::full({}, value - 1, torch::kLong);
    }
  }
  return state;
}

// The fields of `state`, by parameter, counts included.
std::map<size_t, std::set<std::string>> FieldsByParameter(const ZeroState& state) {
  std::map<size_t, std::set<std::string>> fields;
  for (const auto& [text, tensor] : state) {
    const std::optional<ZeroStateName> name = ZeroStateName::Parse(text);
    if (name.has_value()) fields[name->parameter].insert(name->field);
  }
  return fields;
}

bool IsCount(const OptimizerFields& fields, const std::string& field) {
  return std::count(fields.counts.begin(), fields.counts.end(), field) > 0;
}

absl::Status CheckShapes(const ZeroImplementation& zero, const OptimizerFields& known,
                         const ZeroState& state) {
  for (const auto& [text, tensor] : state) {
    const std::optional<ZeroStateName> name = ZeroStateName::Parse(text);
    if (!name.has_value() || name->begin >= 0 || IsCount(known, name->field)) continue;
    if (tensor.sizes() == c10::IntArrayRef(zero.shapes[name->parameter])) continue;
    return worker::NotItsParameters(text, tensor.sizes(), zero.shapes[name->parameter]);
  }
  return absl::OkStatus();
}

// The state for the pieces' optimizer, which numbers pieces where `state` numbers parameters.
absl::StatusOr<OptimizerTensors> StateOfPieces(const ZeroImplementation& zero,
                                               const ZeroState& state) {
  DDPRUN_ASSIGN_OR_RETURN(const OptimizerFields known, worker::GetOptimizerFields(*zero.inner));
  const std::map<size_t, std::set<std::string>> fields = FieldsByParameter(state);
  if (!fields.empty() && fields.rbegin()->first >= zero.shapes.size()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the optimizer's state is of another model: it has a parameter ",
                     fields.rbegin()->first, ", this one only ", zero.shapes.size()));
  }
  DDPRUN_RETURN_IF_ERROR(CheckShapes(zero, known, state));
  OptimizerTensors tensors;
  const auto& pieces = zero.storage->pieces();
  for (size_t i = 0; i < pieces.size(); ++i) {
    const size_t number = zero.storage->parameters()[pieces[i].piece.parameter].number;
    const auto found = fields.find(number);
    if (found == fields.end()) continue;
    for (const std::string& field : found->second) {
      ZeroStateName name = {.parameter = number, .field = field};
      if (IsCount(known, field)) {
        tensors[absl::StrCat(i, ".", field)] = state.at(name.ToText());
        continue;
      }
      name.begin = pieces[i].piece.begin;
      DDPRUN_ASSIGN_OR_RETURN(tensors[absl::StrCat(i, ".", field)],
                              worker::CutOut(state, name, pieces[i].piece.length));
    }
  }
  for (const auto& [text, tensor] : state) {
    if (!ZeroStateName::Parse(text).has_value()) tensors[text] = tensor;
  }
  return tensors;
}

}  // namespace

absl::StatusOr<ZeroState> ZeroOptimizer::ConsolidatedState(uint32_t target) {
  Implementation& self = *implementation_;
  const bool keeps = self.storage->rank() == target;
  DDPRUN_ASSIGN_OR_RETURN(ZeroState state,
                          worker::CatchExceptions([&] { return Consolidate(self, keeps); }));
  if (keeps) AddLearningRates(param_groups_, state);
  return state;
}

absl::StatusOr<ZeroState> ZeroOptimizer::ShardedState() const {
  const Implementation& self = *implementation_;
  DDPRUN_ASSIGN_OR_RETURN(const OptimizerFields known, worker::GetOptimizerFields(*self.inner));
  DDPRUN_ASSIGN_OR_RETURN(const OptimizerTensors own, worker::GetOptimizerState(*self.inner));
  ZeroState state;
  for (const auto& [text, tensor] : own) {
    std::optional<ZeroStateName> name = ZeroStateName::Parse(text);
    if (!name.has_value()) continue;
    const worker::ZeroPiece& piece = self.storage->pieces()[name->parameter].piece;
    name->parameter = self.storage->parameters()[piece.parameter].number;
    if (!IsCount(known, name->field)) name->begin = piece.begin;
    state[name->ToText()] = tensor.cpu();
  }
  AddLearningRates(param_groups_, state);
  return state;
}

ZeroState ZeroOptimizer::OwnPart(const ZeroState& state) const {
  const Implementation& self = *implementation_;
  std::map<size_t, const worker::ZeroPiece*> pieces;  // by number
  for (const ZeroPieceTensor& piece : self.storage->pieces()) {
    pieces[self.storage->parameters()[piece.piece.parameter].number] = &piece.piece;
  }
  ZeroState own;
  for (const auto& [text, tensor] : state) {
    const std::optional<ZeroStateName> name = ZeroStateName::Parse(text);
    if (!name.has_value()) {
      own[text] = tensor;
      continue;
    }
    const auto found = pieces.find(name->parameter);
    if (found == pieces.end()) continue;
    const worker::ZeroPiece& piece = *found->second;
    const bool overlaps =
        name->begin < piece.begin + piece.length && name->begin + tensor.numel() > piece.begin;
    if (name->begin < 0 || overlaps) own[text] = tensor;
  }
  return own;
}

bool ZeroOptimizer::Covers(const ZeroState& state) const {
  const Implementation& self = *implementation_;
  const absl::StatusOr<OptimizerFields> known = worker::GetOptimizerFields(*self.inner);
  if (!known.ok()) return false;
  const std::map<size_t, std::set<std::string>> fields = FieldsByParameter(state);
  for (const ZeroPieceTensor& piece : self.storage->pieces()) {
    const size_t number = self.storage->parameters()[piece.piece.parameter].number;
    const auto found = fields.find(number);
    if (found == fields.end()) return false;
    for (const std::string& field : found->second) {
      if (IsCount(*known, field)) continue;
      const ZeroStateName name = {.parameter = number, .field = field, .begin = piece.piece.begin};
      if (!worker::HasAll(state, name, piece.piece.length)) return false;
    }
  }
  return true;
}

absl::Status ZeroOptimizer::RestoreState(const ZeroState& state) {
  Implementation& self = *implementation_;
  return worker::CatchExceptions([&]() -> absl::Status {
    const torch::NoGradGuard no_grad;
    DDPRUN_ASSIGN_OR_RETURN(const OptimizerTensors tensors, StateOfPieces(self, state));
    DDPRUN_RETURN_IF_ERROR(worker::SetOptimizerState(*self.inner, tensors));
    for (size_t i = 0; i < param_groups_.size(); ++i) {
      param_groups_[i].options().set_lr(self.inner->param_groups()[i].options().get_lr());
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<ZeroState> ZeroOptimizer::SharedOutParameters(uint32_t target) const {
  const Implementation& self = *implementation_;
  if (!self.gatherer.has_value()) return ZeroState();
  return worker::CatchExceptions([&]() -> absl::StatusOr<ZeroState> {
    const torch::NoGradGuard no_grad;
    return worker::GatherShares(
        self, target, [&](size_t bucket) { return self.storage->buckets()[bucket].updated; });
  });
}

bool ZeroOptimizer::TakeParameter(const std::string& name, const torch::Tensor& whole) {
  Implementation& self = *implementation_;
  const auto& parameters = self.storage->parameters();
  const auto found =
      std::find_if(parameters.begin(), parameters.end(),
                   [&](const worker::ZeroParameter& parameter) { return parameter.name == name; });
  if (!self.gatherer.has_value() || found == parameters.end()) return false;
  const torch::NoGradGuard no_grad;
  self.gatherer->Forget();
  const auto parameter = static_cast<size_t>(found - parameters.begin());
  for (ZeroPieceTensor& piece : self.storage->pieces()) {
    if (piece.piece.parameter != parameter) continue;
    piece.tensor.copy_(whole.reshape({-1}).narrow(0, piece.piece.begin, piece.piece.length));
  }
  self.gatherer->Renew();
  return true;
}

namespace worker {

std::string ZeroStateName::ToText() const {
  return begin < 0 ? absl::StrCat(parameter, ".", field)
                   : absl::StrCat(parameter, ".", field, "@", begin);
}

std::optional<ZeroStateName> ZeroStateName::Parse(const std::string& text) {
  const std::pair<std::string, std::string> halves = absl::StrSplit(text, absl::MaxSplits('.', 1));
  ZeroStateName name;
  if (halves.second.empty() || !absl::SimpleAtoi(halves.first, &name.parameter))
    return std::nullopt;
  const std::pair<std::string, std::string> place =
      absl::StrSplit(halves.second, absl::MaxSplits('@', 1));
  name.field = place.first;
  if (place.second.empty()) return name;
  if (!absl::SimpleAtoi(place.second, &name.begin) || name.begin < 0) return std::nullopt;
  return name;
}

namespace {

std::string WholeName(const ZeroStateName& field) {
  return ZeroStateName{.parameter = field.parameter, .field = field.field}.ToText();
}

// Calls visit(tensor, its begin, from, to) for each part of `state` that has elements [from, to) of
// a field, within the `length` elements from field.begin on. Returns how many elements there were.
template <typename Visit>
int64_t VisitParts(const std::map<std::string, torch::Tensor>& state, const ZeroStateName& field,
                   int64_t length, Visit&& visit) {
  const int64_t begin = std::max<int64_t>(field.begin, 0);
  const std::string whole = WholeName(field);
  int64_t covered = 0;
  const auto add = [&](const torch::Tensor& part, int64_t part_begin) {
    const int64_t from = std::max(begin, part_begin);
    const int64_t to = std::min(begin + length, part_begin + part.numel());
    if (from >= to) return;
    visit(part, part_begin, from, to);
    covered += to - from;
  };
  const std::string parts = whole + "@";
  for (auto it = state.lower_bound(whole); it != state.end(); ++it) {
    if (it->first != whole && it->first.compare(0, parts.size(), parts) != 0) {
      if (it->first.compare(0, whole.size(), whole) != 0) break;
      continue;  // another field with a name that begins alike
    }
    add(it->second, it->first == whole ? 0 : ZeroStateName::Parse(it->first)->begin);
  }
  return covered;
}

}  // namespace

bool HasAll(const std::map<std::string, torch::Tensor>& state, const ZeroStateName& field,
            int64_t length) {
  return VisitParts(state, field, length, [](const auto&...) {}) == length;
}

absl::StatusOr<torch::Tensor> CutOut(const std::map<std::string, torch::Tensor>& state,
                                     const ZeroStateName& field, int64_t length) {
  const int64_t begin = std::max<int64_t>(field.begin, 0);
  torch::Tensor result;
  const auto copy = [&](const torch::Tensor& part, int64_t part_begin, int64_t from, int64_t to) {
    if (!result.defined()) result = at::empty({length}, part.options());
    result.narrow(0, from - begin, to - from)
        .copy_(part.reshape({-1}).narrow(0, from - part_begin, to - from));
  };
  const int64_t covered = VisitParts(state, field, length, copy);
  if (covered == length) return result;
  return absl::FailedPreconditionError(absl::StrCat(
      "the optimizer's state has ", covered, " of the ", length, " elements of '", WholeName(field),
      "' from ", begin, " on; give the shards of all ranks that saved it, of the same model"));
}

absl::StatusOr<std::map<std::string, torch::Tensor>> JoinParts(
    const std::map<std::string, torch::Tensor>& state,
    const std::vector<std::vector<int64_t>>& shapes) {
  std::map<std::string, torch::Tensor> joined;
  for (const auto& [text, tensor] : state) {
    std::optional<ZeroStateName> name = ZeroStateName::Parse(text);
    if (!name.has_value() || name->begin < 0) {
      joined[text] = tensor;
      continue;
    }
    name->begin = -1;
    if (joined.count(name->ToText()) > 0) continue;
    if (name->parameter >= shapes.size()) {
      return absl::FailedPreconditionError(
          absl::StrCat("the optimizer's state is of another model: it has '", text, "'"));
    }
    const std::vector<int64_t>& shape = shapes[name->parameter];
    DDPRUN_ASSIGN_OR_RETURN(const torch::Tensor flat,
                            CutOut(state, *name, c10::multiply_integers(shape)));
    joined[name->ToText()] = flat.view(shape);
  }
  return joined;
}

}  // namespace worker
}  // namespace ddprun
