#include "rendezvous/core/failures/first_cause.h"

#include <gtest/gtest.h>

#include <csignal>

#include "rendezvous/core/bounds.h"

namespace ddprun::rendezvous {
namespace {

Instant Milliseconds(int64_t ms) { return Instant::FromNanoseconds(ms * 1'000'000); }

struct Sketch {
  const char* node = "a";
  uint32_t rank = 0;
  int64_t arrival_ms = 0;
  const char* message = "";
  int signal = 0;
  uint64_t after_first_ms = 0;
};

ReportedFailure Make(const Sketch& sketch) {
  ReportedFailure report;
  report.failure.node_id = NodeId(sketch.node);
  report.failure.rank = sketch.rank;
  report.failure.message = sketch.message;
  report.failure.signal = sketch.signal;
  report.failure.exit_code = sketch.signal == 0 ? 1 : 0;
  report.failure.after_first_ms = sketch.after_first_ms;
  report.arrival = Milliseconds(sketch.arrival_ms);
  return report;
}

TEST(Weigh, TheTable) {
  struct Row {
    const char* message;
    int signal;
    Evidence evidence;
  };
  const Row rows[] = {
      {"", SIGKILL, Evidence::kOwnDeath},
      {"", SIGSEGV, Evidence::kOwnDeath},
      {"", SIGABRT, Evidence::kOwnDeath},
      {"", SIGPIPE, Evidence::kUnexplained},
      {"torch.OutOfMemoryError: CUDA out of memory", 0, Evidence::kOwnDeath},
      {"MemoryError", 0, Evidence::kOwnDeath},
      {"ValueError: NaN", 0, Evidence::kException},
      {"", 0, Evidence::kUnexplained},
      {"RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by "
       "peer [10.0.0.2]:3344",
       0, Evidence::kPeerError},
      {"torch.distributed.DistBackendError: NCCL error", 0, Evidence::kPeerError},
      {"Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3)", SIGABRT,
       Evidence::kPeerError},
      {"terminate called: connection reset by peer", SIGABRT, Evidence::kPeerError},
      {"PeerError: rank 4 failed: points.csv is cut short", 0, Evidence::kPeerError},
      {"sendmsg: broken pipe", SIGPIPE, Evidence::kPeerError},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(Weigh(Make({.message = row.message, .signal = row.signal}).failure), row.evidence)
        << row.message << " signal " << row.signal;
  }
  WorkerFailure never_started;
  never_started.start_error = "execve: ENOENT";
  EXPECT_EQ(Weigh(never_started), Evidence::kOwnDeath);
  WorkerFailure stderr_only;
  stderr_only.stderr_tail = "Traceback ...\nConnectionResetError: Connection reset by peer";
  EXPECT_EQ(Weigh(stderr_only), Evidence::kPeerError);
}

TEST(FindFirstCause, NothingFailed) {
  const FirstCause cause = FindFirstCause({});
  EXPECT_TRUE(cause.failures.empty());
  EXPECT_EQ(cause.ties, 0u);
}

TEST(FindFirstCause, EvidenceBeatsArrival) {
  const FirstCause cause =
      FindFirstCause({Make({.node = "a", .rank = 0, .message = "Connection reset by peer"}),
                      Make({.node = "b", .rank = 2, .arrival_ms = 10, .message = "ValueError"}),
                      Make({.node = "c", .rank = 4, .arrival_ms = 900, .signal = SIGKILL})});
  ASSERT_EQ(cause.failures.size(), 3u);
  EXPECT_EQ(cause.failures[0].rank, 4u);
  EXPECT_EQ(cause.failures[1].rank, 2u);
  EXPECT_EQ(cause.failures[2].rank, 0u);
  EXPECT_EQ(cause.ties, 1u);
}

TEST(FindFirstCause, OnOneNodeTheTimeAfterItsFirstFailureDecides) {
  const FirstCause cause = FindFirstCause(
      {Make({.rank = 1, .arrival_ms = 0, .message = "ValueError", .after_first_ms = 7}),
       Make({.rank = 0, .arrival_ms = 5, .message = "ValueError", .after_first_ms = 0})});
  EXPECT_EQ(cause.failures[0].rank, 0u);
  EXPECT_EQ(cause.ties, 1u);
}

TEST(FindFirstCause, ATieIsShownAsATie) {
  const ReportedFailure a = Make({.node = "a", .rank = 0, .message = "ValueError"});
  const auto with_b_at = [&](int64_t ms) {
    return FindFirstCause(
        {Make({.node = "b", .rank = 2, .arrival_ms = ms, .message = "ValueError"}), a});
  };
  EXPECT_EQ(with_b_at(50).ties, 2u);
  EXPECT_EQ(with_b_at(51).ties, 1u);
  EXPECT_EQ(with_b_at(51).failures[0].rank, 0u);

  const FirstCause same_node = FindFirstCause(
      {Make({.rank = 0, .message = "ValueError"}), Make({.rank = 1, .message = "ValueError"})});
  EXPECT_EQ(same_node.ties, 2u);
}

TEST(FindFirstCause, IsBounded) {
  std::vector<ReportedFailure> many;
  for (uint32_t rank = 0; rank < 2 * kFailuresMax; ++rank) {
    many.push_back(Make({.rank = rank, .message = "ValueError"}));
  }
  const FirstCause cause = FindFirstCause(many);
  EXPECT_EQ(cause.failures.size(), kFailuresMax);
  EXPECT_EQ(cause.ties, kFailuresMax);
}

}  // namespace
}  // namespace ddprun::rendezvous
