// One rank of a process group, for the tests of its backend.
//   collectives_probe MODE shm|hierarchical|gloo RANK HOSTS STORE_FILE
// HOSTS: one digit a rank, the number of its host. MODE:
//   compare    every collective, type and reduction against what it must give, and against Gloo
//   count      two all-gathers; prints how many of Gloo's collectives they took this rank
//   overlap    a large all-reduce runs while its caller computes
//   kill       the last rank is killed in the middle of an all-reduce
//   pipe       SIGPIPE comes, as when another process is gone to which a backend writes
//   leave      the last rank destroys the group instead of coming to an all-reduce
//   timeout    the last rank doesn't come within 300 ms
//   mismatch   the last rank calls with another size
//   abort      rank 0 aborts the group while all wait for the last rank, which doesn't come
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <ATen/record_function.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "tests/worker/probe_arguments.h"
#include "worker/torch/collectives/process_group.h"
#include "worker/torch/collectives/single_tensor_collectives.h"
#include "worker/torch/errors/exception_status.h"

namespace {

using c10d::ReduceOp;
using ddprun::worker::AllGatherTensor;
using ddprun::worker::AllGatherTensors;
using ddprun::worker::BackendKind;
using ddprun::worker::ProcessGroupPlan;
using ddprun::worker::ReduceScatterTensor;
using ddprun::worker::ReduceScatterTensors;
using Tensors = std::vector<at::Tensor>;

struct Arguments {
  std::string mode;
  BackendKind backend;
  uint32_t rank;
  std::string hosts;
  std::string store_file;

  uint32_t world_size() const { return static_cast<uint32_t>(hosts.size()); }
  bool last() const { return rank + 1 == world_size(); }
};

c10::intrusive_ptr<c10d::ProcessGroup> Connect(const Arguments& arguments, BackendKind backend) {
  const auto file = c10::make_intrusive<c10d::FileStore>(arguments.store_file,
                                                         static_cast<int>(arguments.world_size()));
  const auto store = c10::make_intrusive<c10d::PrefixStore>(
      absl::StrCat("backend ", static_cast<int>(backend)), file);
  ProcessGroupPlan plan;
  plan.backend = backend;
  plan.rank = arguments.rank;
  plan.world_size = arguments.world_size();
  plan.host = static_cast<uint32_t>(arguments.hosts[arguments.rank] - '0');
  plan.bind_address = "127.0.0.1";
  plan.start_timeout = absl::Seconds(60);
  plan.collective_timeout = absl::Seconds(60);
  return ddprun::worker::CreateProcessGroup(store, plan).value();
}

// What rank `rank` gives: small whole numbers, so that every type and order gives the same.
at::Tensor Given(uint32_t rank, int64_t count, at::ScalarType type, int64_t values, int64_t unit) {
  const at::Tensor numbers = (at::arange(count) * 7 + static_cast<int64_t>(rank) * 3) % values + 1;
  return type == at::kBool ? (numbers % 2).to(type) : (numbers * unit).to(type);
}

// Half a unit in the last place of 1.
double UnitOf(at::ScalarType type) {
  if (type == at::kBFloat16) return 1.0 / (1 << 8);
  if (type == at::kHalf) return 1.0 / (1 << 11);
  return type == at::kFloat ? 1.0 / (1 << 24) : 1.0 / (int64_t{1} << 53);
}

// Data go in chunks of 1 MiB, or in a reduce-scatter of that divided by the number of ranks. These
// take two of both where numbers have 4 or 8 bytes, and two of the latter where they have 2.
int64_t CountOfTwoChunks(at::ScalarType type) {
  const auto size = static_cast<int64_t>(c10::elementSize(type));
  return std::min(100'001 * size, 1'200'008 / size);
}

class Comparison {
 public:
  Comparison(const Arguments& arguments, c10::intrusive_ptr<c10d::ProcessGroup> group,
             c10::intrusive_ptr<c10d::ProcessGroup> gloo)
      : arguments_(arguments),
        group_(std::move(group)),
        backend_(*group_->getDefaultBackend()),
        gloo_(std::move(gloo)) {}

  void Run() {
    const at::ScalarType types[] = {at::kBool, at::kByte, at::kChar,     at::kShort, at::kInt,
                                    at::kLong, at::kHalf, at::kBFloat16, at::kFloat, at::kDouble};
    for (const at::ScalarType type : types) {
      for (const int64_t count : {int64_t{1}, int64_t{1000}, CountOfTwoChunks(type)}) {
        Reductions(type, count);
        Copies(type, count);
      }
    }
    AsGlooDoes();
    backend_.barrier({})->wait();
    printf("%d comparisons\n", compared_);
  }

 private:
  uint32_t ranks() const { return arguments_.world_size(); }

  void Expect(const at::Tensor& found, const at::Tensor& expected, const std::string& what) {
    ++compared_;
    if (at::equal(found, expected)) return;
    fprintf(stderr, "rank %u: %s: wrong result\n", arguments_.rank, what.c_str());
    _exit(1);
  }

  // The reduction in wide types, made by this rank alone.
  at::Tensor Expected(ReduceOp::RedOpType operation, int64_t count, at::ScalarType type,
                      int64_t values, int64_t unit) const {
    at::Tensor total;
    for (uint32_t rank = 0; rank < ranks(); ++rank) {
      const at::Tensor next = Given(rank, count, type, values, unit).to(at::kLong);
      total = total.defined() ? Combine(operation, total, next) : next;
    }
    if (operation == ReduceOp::AVG) total = total / static_cast<int64_t>(ranks());
    return type == at::kBool ? total.ne(0) : total.to(type);
  }

  static at::Tensor Combine(ReduceOp::RedOpType operation, const at::Tensor& a,
                            const at::Tensor& b) {
    switch (operation) {
      case ReduceOp::PRODUCT:
        return a * b;
      case ReduceOp::MIN:
        return a.minimum(b);
      case ReduceOp::MAX:
        return a.maximum(b);
      case ReduceOp::BAND:
        return a.bitwise_and(b);
      case ReduceOp::BOR:
        return a.bitwise_or(b);
      case ReduceOp::BXOR:
        return a.bitwise_xor(b);
      case ReduceOp::SUM:
      case ReduceOp::AVG:
      case ReduceOp::PREMUL_SUM:
      case ReduceOp::UNUSED:
        break;
    }
    return a + b;
  }

  void Reductions(at::ScalarType type, int64_t count) {
    const bool floating = at::isFloatingType(type);
    for (const auto operation : {ReduceOp::SUM, ReduceOp::AVG, ReduceOp::PRODUCT, ReduceOp::MIN,
                                 ReduceOp::MAX, ReduceOp::BAND, ReduceOp::BOR, ReduceOp::BXOR}) {
      const bool bits =
          operation == ReduceOp::BAND || operation == ReduceOp::BOR || operation == ReduceOp::BXOR;
      if (floating ? bits : operation == ReduceOp::AVG) continue;
      const std::string what = absl::StrCat("reduction ", static_cast<int>(operation), " of ",
                                            count, " ", c10::toString(type));
      // Averages over 2, 3 and 4 ranks stay whole; products small.
      const int64_t unit = operation == ReduceOp::PRODUCT ? 1 : 12;
      const int64_t values = operation == ReduceOp::PRODUCT ? 2 : 3;
      const at::Tensor expected = Expected(operation, count, type, values, unit);
      const auto mine = [&] { return Given(arguments_.rank, count, type, values, unit); };
      AllReduces(operation, mine(), expected, what);
      ReduceScatters(operation, mine(), expected, what);
    }
  }

  void AllReduces(ReduceOp operation, const at::Tensor& mine, const at::Tensor& expected,
                  const std::string& what) {
    Tensors one = {mine.clone()};
    c10d::AllreduceOptions options;
    options.reduceOp = operation;
    const auto work = group_->allreduce(one, options);
    work->wait();
    Expect(one[0], expected, "allreduce, " + what);
    Expect(work->getFuture()->value().toTensorVector()[0], expected, "its future, " + what);
    Tensors several = {mine.clone(), mine.clone()};
    c10d::AllreduceCoalescedOptions coalesced;
    coalesced.reduceOp = operation;
    backend_.allreduce_coalesced(several, coalesced)->wait();
    Expect(several[1], expected, "allreduce_coalesced, " + what);
    Tensors reduced = {mine.clone()};
    c10d::ReduceOptions to_last;
    to_last.reduceOp = operation;
    to_last.rootRank = ranks() - 1;
    backend_.reduce(reduced, to_last)->wait();
    Expect(reduced[0], arguments_.last() ? expected : mine, "reduce, " + what);
  }

  // Every rank gives the same block to all.
  void ReduceScatters(ReduceOp operation, const at::Tensor& mine, const at::Tensor& expected,
                      const std::string& what) {
    c10d::ReduceScatterOptions options;
    options.reduceOp = operation;
    std::vector<Tensors> blocks = {Tensors(ranks(), mine)};
    Tensors out = {at::zeros_like(mine)};
    backend_.reduce_scatter(out, blocks, options)->wait();
    Expect(out[0], expected, "reduce_scatter, " + what);
    at::Tensor flat = mine.repeat({ranks()});
    at::Tensor part = at::zeros_like(mine);
    ReduceScatterTensor(backend_, part, flat, options)->wait();
    Expect(part, expected, "reduce-scatter of one tensor, " + what);
    Tensors parts = {at::zeros_like(mine)};
    Tensors wholes = {flat};
    ReduceScatterTensors(backend_, parts, wholes, options)->wait();
    Expect(parts[0], expected, "coalesced reduce-scatter, " + what);
  }

  void Copies(at::ScalarType type, int64_t count) {
    const std::string what = absl::StrCat(count, " ", c10::toString(type));
    const auto given = [&](uint32_t rank) { return Given(rank, count, type, 3, 12); };
    for (uint32_t root = 0; root < ranks(); ++root) {
      Tensors tensors = {given(arguments_.rank)};
      c10d::BroadcastOptions options;
      options.rootRank = root;
      group_->broadcast(tensors, options)->wait();
      Expect(tensors[0], given(root), "broadcast of " + what);
    }
    at::Tensor mine = given(arguments_.rank);
    Tensors inputs = {mine};
    std::vector<Tensors> lists(1);
    std::vector<Tensors> by_rank;
    for (uint32_t rank = 0; rank < ranks(); ++rank) {
      lists[0].push_back(at::zeros_like(mine));
      by_rank.push_back({at::zeros_like(mine)});
    }
    at::Tensor flat = mine.repeat({ranks()}).zero_();
    Tensors flats = {flat.clone()};
    group_->allgather(lists, inputs)->wait();
    AllGatherTensor(backend_, flat, mine)->wait();
    AllGatherTensors(backend_, flats, inputs)->wait();
    backend_.allgather_coalesced(by_rank, inputs, {})->wait();
    for (uint32_t rank = 0; rank < ranks(); ++rank) {
      const at::Tensor expected = given(rank);
      Expect(lists[0][rank], expected, "allgather of " + what);
      Expect(by_rank[rank][0], expected, "allgather_coalesced of " + what);
      Expect(flat.narrow(0, rank * count, count), expected, "all-gather of one tensor, " + what);
      Expect(flats[0].narrow(0, rank * count, count), expected, "coalesced all-gather of " + what);
    }
  }

  // Random numbers, where the order of additions shows: with two ranks the same bits as Gloo's,
  // with more the same but for rounding; and always the same bits on all ranks.
  void AsGlooDoes() {
    for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
      at::manual_seed(arguments_.rank + 1);
      const at::Tensor mine = at::rand({100'003}, at::kFloat).to(type);
      Tensors ours = {mine.clone()};
      Tensors theirs = {mine.clone()};
      group_->allreduce(ours)->wait();
      gloo_->allreduce(theirs)->wait();
      const std::string what = absl::StrCat("random ", c10::toString(type));
      if (ranks() == 2) Expect(ours[0], theirs[0], what + " beside gloo");
      // No number is above 1, so no sum of the ranks' is rounded by more than `unit` for each rank;
      // here and there, at each addition and when it is stored.
      const double tolerance = 2.0 * ranks() * ranks() * UnitOf(type);
      const double difference = (ours[0] - theirs[0]).abs().max().to(at::kDouble).item<double>();
      DDPRUN_CHECK(difference < tolerance, absl::StrCat(what, ": ", difference));
      std::vector<Tensors> all(1);
      for (uint32_t rank = 0; rank < ranks(); ++rank) all[0].push_back(at::zeros_like(mine));
      gloo_->allgather(all, ours)->wait();
      for (const at::Tensor& other : all[0]) Expect(other, ours[0], what + " on every rank");
    }
  }

  const Arguments& arguments_;
  const c10::intrusive_ptr<c10d::ProcessGroup> group_;
  c10d::Backend& backend_;
  const c10::intrusive_ptr<c10d::ProcessGroup> gloo_;
  int compared_ = 0;
};

// A failure goes to stderr as workers print it. 20 all-reduces of 4 MB, each with the next one
// already submitted.
absl::Status AllReduces(c10d::ProcessGroup& group, const Arguments& arguments) {
  return ddprun::worker::CatchExceptions([&]() -> absl::Status {
    c10::intrusive_ptr<c10d::Work> before;
    for (int i = 0; i < 20; ++i) {
      Tensors tensors = {at::ones({1 << 20})};
      const auto work = group.allreduce(tensors);
      if (i == 10 && arguments.last() && arguments.mode == "kill") raise(SIGKILL);
      if (before != nullptr) before->wait();
      before = work;
    }
    before->wait();
    return absl::OkStatus();
  });
}

// Prints how many collectives of Gloo this rank takes part in while all gather twice.
absl::Status CountBetweenHosts(c10d::ProcessGroup& group, const Arguments& arguments) {
  static std::atomic<int> between_hosts = 0;
  at::addGlobalCallback(at::RecordFunctionCallback([](const at::RecordFunction& function)
                                                       -> std::unique_ptr<at::ObserverContext> {
                          if (std::string_view(function.name()).substr(0, 5) == "gloo:")
                            ++between_hosts;
                          return nullptr;
                        }).scopes({at::RecordScope::USER_SCOPE}));
  Tensors inputs = {at::ones({1000})};
  std::vector<Tensors> outputs(1);
  for (uint32_t rank = 0; rank < arguments.world_size(); ++rank) {
    outputs[0].push_back(at::zeros({1000}));
  }
  at::Tensor flat = at::zeros({1000 * static_cast<int64_t>(arguments.world_size())});
  group.allgather(outputs, inputs)->wait();
  AllGatherTensor(*group.getDefaultBackend(), flat, inputs[0])->wait();
  printf("%d between hosts\n", between_hosts.load());
  return absl::OkStatus();
}

absl::Status OneAllReduce(c10d::ProcessGroup& group, int64_t count,
                          std::chrono::milliseconds timeout = c10d::kUnsetTimeout) {
  return ddprun::worker::CatchExceptions([&]() -> absl::Status {
    Tensors tensors = {at::ones({count})};
    c10d::AllreduceOptions options;
    options.timeout = timeout;
    group.allreduce(tensors, options)->wait();
    return absl::OkStatus();
  });
}

// The last rank comes only when the first has seen that its call returned without it.
absl::Status Overlap(c10d::ProcessGroup& group, const Arguments& arguments) {
  const std::string file = arguments.store_file + ".returned";
  c10d::FileStore marks(file, static_cast<int>(arguments.world_size()));
  Tensors tensors = {at::ones({1 << 20})};
  if (arguments.last()) marks.get("returned");
  const auto work = group.allreduce(tensors);
  if (arguments.rank == 0) {
    DDPRUN_CHECK(!work->isCompleted(), "done without the last rank");
    marks.set("returned", std::vector<uint8_t>{1});
  }
  work->wait();
  DDPRUN_CHECK(tensors[0][0].item<float>() == static_cast<float>(arguments.world_size()), "sum");
  return absl::OkStatus();
}

// Waits until all have connected: a rank that leaves or fails earlier breaks up the others'
// connecting.
void AwaitAll(const Arguments& arguments) {
  c10d::FileStore marks(arguments.store_file + ".connected",
                        static_cast<int>(arguments.world_size()));
  marks.set(absl::StrCat(arguments.rank), std::vector<uint8_t>{1});
  for (uint32_t rank = 0; rank < arguments.world_size(); ++rank) marks.get(absl::StrCat(rank));
}

[[noreturn]] void End(const absl::Status& status) {
  if (!status.ok()) fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  fflush(nullptr);
  _exit(status.ok() ? 0 : 1);
}

void Stay() {
  while (true) pause();
}

absl::Status Run(const Arguments& arguments) {
  auto group = Connect(arguments, arguments.backend);
  AwaitAll(arguments);
  if (arguments.mode == "compare") {
    Comparison(arguments, group, Connect(arguments, BackendKind::kGloo)).Run();
    return absl::OkStatus();
  }
  if (arguments.mode == "pipe") {  // as when the peer of one of the backend's sockets is gone
    raise(SIGPIPE);
    return absl::OkStatus();
  }
  if (arguments.mode == "count") return CountBetweenHosts(*group, arguments);
  if (arguments.mode == "overlap") return Overlap(*group, arguments);
  if (arguments.mode == "kill") return AllReduces(*group, arguments);
  if (arguments.mode == "mismatch") return OneAllReduce(*group, arguments.last() ? 3 : 1000);
  if (arguments.mode == "leave" && arguments.last()) return absl::OkStatus();
  if (arguments.last()) Stay();
  if (arguments.mode == "timeout") {
    return OneAllReduce(*group, 1000, std::chrono::milliseconds(300));
  }
  std::thread aborter([&] {
    if (arguments.mode == "abort" && arguments.rank == 0) group->getDefaultBackend()->abort();
  });
  const absl::Status status = OneAllReduce(*group, 1000);
  aborter.join();
  return status;
}

BackendKind KindOf(const std::string& name) {
  if (name == "shm") return BackendKind::kShm;
  return name == "hierarchical" ? BackendKind::kHierarchical : BackendKind::kGloo;
}

}  // namespace

int main(int argc, char** argv) {
  ddprun::testing::ProbeArguments words(argc, argv);
  DDPRUN_CHECK(words.argc() == 6, "see the head of collectives_probe.cc for its arguments");
  const Arguments arguments = {.mode = words.argv()[1],
                               .backend = KindOf(words.argv()[2]),
                               .rank = static_cast<uint32_t>(std::stoul(words.argv()[3])),
                               .hosts = words.argv()[4],
                               .store_file = words.argv()[5]};
  End(Run(arguments));
}
