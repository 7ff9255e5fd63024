#include <gtest/gtest.h>

#include <array>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/rng.h"
#include "tests/fuzz/cli_check.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/support/inputs.h"

namespace ddprun::launcher {
namespace {

constexpr uint64_t kSeed = 20240607;
const int kRounds = Inputs(8'000);

const char* const kOptions[] = {"--nnodes",
                                "--nproc-per-node",
                                "--nproc_per_node",
                                "--node_rank",
                                "--standalone",
                                "--master_addr",
                                "--master_port",
                                "--rdzv_backend",
                                "--rdzv_endpoint",
                                "--rdzv_id",
                                "--rdzv_conf",
                                "--local_addr",
                                "--token",
                                "--token_file",
                                "--module",
                                "--no_python",
                                "--role",
                                "--log_dir",
                                "--redirects",
                                "--tee",
                                "--prefix_output",
                                "--event_log",
                                "--max_restarts",
                                "--grace",
                                "--lease",
                                "--reconnect_grace",
                                "--isolation_timeout",
                                "--monitor_interval",
                                "--shutdown_timeout",
                                "--run_path",
                                "--use_env",
                                "--start_method",
                                "--virtual_local_rank",
                                "--numa_binding",
                                "--cpu_binding",
                                "--binding_fallback",
                                "--omp_threads",
                                "--local_ranks_filter",
                                "--duplicate_stdout_filters",
                                "--event_log_handler",
                                "--report_file",
                                "--signals_to_handle",
                                "--preempt_signals",
                                "-m",
                                "-r",
                                "-t",
                                "-mr",
                                "--help",
                                "--version",
                                "--",
                                "-",
                                "--bogus",
                                "-x",
                                "--rdzv",
                                "--nnode"};

const char* const kValues[] = {"1",
                               "2",
                               "1:4",
                               "0",
                               "-1",
                               "4:1",
                               "",
                               "static",
                               "c10d",
                               "etcd",
                               "host0",
                               "host0:29400",
                               "[::1]:5",
                               "::1",
                               "h:0",
                               "h:99999",
                               "none",
                               "3",
                               "0:1,1:2",
                               "0-3:1,*:2",
                               "0,2,4-7",
                               "0-4294967295",
                               "gpu:0,1",
                               "a,,b,c",
                               "SIGTERM,USR1,bogus",
                               "9",
                               "node",
                               "gpu",
                               "cpu",
                               "auto",
                               "0.5",
                               "150ms",
                               "1e300",
                               "nan",
                               "65535",
                               "29401",
                               "29400",
                               "lease=2,is_host=1",
                               "is_host=x",
                               "timeout=99",
                               "/dev/null",
                               "train.py",
                               "a\nb",
                               "\xff",
                               "\x1b[31m",
                               "999999999",
                               "${local_rank}",
                               "99999999999999999999"};

template <size_t size>
std::string Pick(Rng* rng, const char* const (&words)[size]) {
  return words[rng->Below(size)];
}

std::string RandomValue(Rng* rng) {
  if (rng->Chance(90)) return Pick(rng, kValues);
  std::string bytes;
  for (uint64_t i = rng->Below(300); i > 0; --i) bytes += static_cast<char>(1 + rng->Below(255));
  return bytes;
}

std::vector<std::string> RandomCommand(Rng* rng) {
  std::vector<std::string> arguments;
  if (rng->Chance(5)) {
    static const char* const kCommands[] = {"rendezvous", "status", "stop",   "config", "slurm",
                                            "convert",    "drain",  "events", "top"};
    arguments.push_back(Pick(rng, kCommands));
  }
  for (uint64_t i = rng->Below(5); i > 0; --i) {
    const std::string option = Pick(rng, kOptions);
    if (rng->Chance(40)) {
      arguments.push_back(absl::StrCat(option, "=", RandomValue(rng)));
    } else {
      arguments.push_back(option);
      if (rng->Chance(80)) arguments.push_back(RandomValue(rng));
    }
  }
  if (rng->Chance(90)) arguments.push_back("train.py");
  for (uint64_t i = rng->Below(3); i > 0; --i) {
    arguments.push_back(rng->Chance(50) ? Pick(rng, kOptions) : RandomValue(rng));
  }
  return arguments;
}

TEST(CliSmoke, RandomCommandLines) {
  Rng rng(kSeed);
  std::array<int, 4> outcomes{};
  for (int round = 0; round < kRounds; ++round) {
    std::map<std::string, std::string> variables;
    for (const char* name : {"PET_NNODES", "PET_STANDALONE", "PET_RDZV_ENDPOINT", "PET_MASTER_PORT",
                             "PET_NPROC_PER_NODE", "DDPRUN_TOKEN", "PYTHON_EXEC"}) {
      if (rng.Chance(5)) variables[name] = RandomValue(&rng);
    }
    ++outcomes[static_cast<size_t>(ParseAnything(RandomCommand(&rng), variables))];
  }
  // The run has reached every side of the parser.
  EXPECT_GT(outcomes[static_cast<size_t>(CliOutcome::kPlan)], kRounds / 10);
  EXPECT_GT(outcomes[static_cast<size_t>(CliOutcome::kService)], 0);
  EXPECT_GT(outcomes[static_cast<size_t>(CliOutcome::kText)], kRounds / 100);
  EXPECT_GT(outcomes[static_cast<size_t>(CliOutcome::kError)], kRounds / 10);
}

TEST(CliSmoke, Bytes) {
  EXPECT_EQ(ParseBytes(absl::string_view("PET_NNODES=2\0--standalone=0\0train.py", 36)),
            CliOutcome::kPlan);
  EXPECT_EQ(ParseBytes(absl::string_view("PET_NNODES=0\0train.py", 21)), CliOutcome::kError);
  EXPECT_EQ(ParseBytes("--help"), CliOutcome::kText);
  EXPECT_EQ(ParseBytes("status"), CliOutcome::kService);
}

}  // namespace
}  // namespace ddprun::launcher

DDPRUN_FUZZER(bytes) { ddprun::launcher::ParseBytes(bytes); }
