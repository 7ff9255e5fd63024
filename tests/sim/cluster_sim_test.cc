// A simulated cluster with seeded faults. Options: --seeds N (1000; 250 where an ordinary run of
// the tests has sanitizers), --first S (1), --jobs J: the seeds alone, in so many processes. A
// failing seed is run again with a trace, which must fail in the same way, and shrunk; --shrink
// SEED does that alone, and with --save FILE writes what is left as a script; --plan FILE runs such
// a script; --whole yes leaves the shrinking out. With DDPRUN_TRACE_DIGEST=1 a digest of all steps
// of the service is printed.
#include "tests/sim/cluster_sim.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "base/clock.h"
#include "tests/sim/plan_text.h"
#include "tests/sim/shrink.h"
#include "tests/support/inputs.h"

namespace ddprun::sim {
namespace {

using testing::TraceDigest;

uint64_t first_seed = 1;
uint64_t seed_count = Inputs<uint64_t>(1000);
bool shrinks = true;
// Verdicts that no agent hears, in percent: the last agents have left, or are dead.
constexpr uint64_t kUnheardPercent = 4;

ClusterSim::Result RunSeed(uint64_t seed, Sabotage sabotage, TraceDigest* digest = nullptr) {
  ClusterSim sim(seed, sabotage, /*trace=*/false);
  sim.DigestInto(digest);
  return sim.Run();
}

// The totals over all seeds of a run.
struct Totals {
  std::map<std::string, uint64_t> outcomes;
  uint64_t generations = 0;
  uint64_t messages = 0;
  uint64_t hangs = 0;
  uint64_t stops = 0;
  uint64_t drains = 0;
  uint64_t deaths = 0;
  uint64_t takeovers = 0;
  uint64_t unread = 0;
  uint64_t repeats = 0;
  uint64_t intrusions = 0;
  uint64_t large = 0;
  uint64_t unheard = 0;

  void Add(const ClusterSim::Result& result) {
    ++outcomes[result.outcome];
    generations += result.generations;
    messages += result.messages;
    hangs += result.hangs;
    stops += result.stops;
    drains += result.drains;
    deaths += result.deaths;
    takeovers += result.takeovers;
    unread += result.unread;
    repeats += result.repeats;
    intrusions += result.intrusions;
    large += result.large ? 1 : 0;
    unheard += result.unheard ? 1 : 0;
  }
};

void Print(const Totals& all) {
  std::cout << seed_count << " seeds from " << first_seed << ": " << all.generations
            << " generations, " << all.messages << " effects, " << all.hangs << " hangs, "
            << all.stops << " workers stopped at an agreed step, " << all.drains << " drains, "
            << all.deaths << " deaths of the service, " << all.takeovers
            << " services beside a former one, " << all.unread
            << " starts without a record that can be read, " << all.repeats
            << " events that came twice, " << all.intrusions << " strangers, " << all.large
            << " jobs of many nodes, " << all.unheard
            << " verdicts after the last agent left; outcomes:";
  for (const auto& [outcome, count] : all.outcomes) std::cout << " " << outcome << " " << count;
  std::cout << "\n";
}

// The faults are neither so few nor so many that nothing is exercised.
void ExpectEnough(const Totals& all) {
  EXPECT_GT(all.outcomes.at("succeeded"), seed_count / 10);
  EXPECT_GT(all.outcomes.at("failed"), seed_count / 50);
  EXPECT_GT(all.generations, 3 * seed_count);
  EXPECT_GT(all.hangs, seed_count / 20);
  EXPECT_GT(all.stops, seed_count / 10);
  EXPECT_GT(all.drains, seed_count / 5);
  EXPECT_GT(all.deaths, seed_count / 5);
  EXPECT_GT(all.takeovers, seed_count / 20);
  EXPECT_GT(all.unread, seed_count / 50);
  EXPECT_GT(all.repeats, seed_count / 5);
  EXPECT_GT(all.intrusions, seed_count / 5);
  EXPECT_LE(all.unheard, seed_count * kUnheardPercent / 100 + 5);
  if (seed_count < 1000) return;
  EXPECT_GT(all.large, seed_count / 1000);
}

TEST(ClusterSim, SafeUnderFaultsAndLiveWithoutThem) {
  Totals all;
  TraceDigest digest;
  TraceDigest* const wanted = testing::DigestWanted() ? &digest : nullptr;
  for (uint64_t seed = first_seed; seed < first_seed + seed_count; ++seed) {
    const ClusterSim::Result result = RunSeed(seed, Sabotage::kNone, wanted);
    all.Add(result);
    if (result.broken.empty()) continue;
    const ClusterSim::Result again = ClusterSim(seed, Sabotage::kNone, true).Run();
    EXPECT_EQ(again.broken, result.broken) << "a seed must give the same run each time";
    FAIL() << "seed " << seed << " (--seeds 1 --first " << seed << "): " << result.broken
           << "\nlast events:\n"
           << again.trace_tail << "\n"
           << (shrinks ? Describe(seed, Shrink(seed, Sabotage::kNone)) : "");
  }
  Print(all);
  if (wanted != nullptr) {
    std::cout << "digest of " << digest.lines() << " lines: " << std::hex << digest.value()
              << std::dec << "\n";
  }
  if (seed_count >= 100) ExpectEnough(all);
}

// With one seed and one commit the service takes the same steps, whatever ran before.
TEST(ClusterSim, ASeedIsOneHistory) {
  std::map<uint64_t, uint64_t> digests;
  for (const bool again : {false, true}) {
    for (uint64_t seed = 1; seed <= 30; ++seed) {
      TraceDigest digest;
      const std::string broken = RunSeed(seed, Sabotage::kNone, &digest).broken;
      ASSERT_EQ(broken, "") << "seed " << seed;
      if (!again) digests[seed] = digest.value();
      EXPECT_EQ(digests[seed], digest.value()) << "seed " << seed;
    }
  }
  // Negative control: other seeds have other digests.
  EXPECT_NE(digests[1], digests[2]);
}

// All machines lose their power, and none comes back: the service hears no node, keeps the
// generation for as long as nodes go on without it, and then gives the job up (R4).
TEST(ClusterSim, AJobThatNobodyIsLeftOfEnds) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    const auto run = [seed](bool trace) {
      return ClusterSim(seed, Sabotage::kNone, trace, Program::kLosesAll).Run();
    };
    const ClusterSim::Result result = run(false);
    ASSERT_EQ(result.broken, "") << "seed " << seed << "\n" << run(true).trace_tail;
    EXPECT_TRUE(result.outcome == "failed" || result.outcome == "succeeded" ||
                result.outcome == "failed_for_good")
        << "seed " << seed << ": " << result.outcome;
  }
}

// The job's record is damaged, or gone, for good: no service goes on from it, nor without it with
// agents of its term. Every node ends, without a verdict and without another generation (R1, R5).
TEST(ClusterSim, AJobWhoseRecordIsDamagedEndsEverywhere) {
  uint64_t ended = 0;
  uint64_t unread = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    const auto run = [seed](bool trace) {
      return ClusterSim(seed, Sabotage::kNone, trace, Program::kLosesRecord).Run();
    };
    const ClusterSim::Result result = run(false);
    ASSERT_EQ(result.broken, "") << "seed " << seed << "\n" << run(true).trace_tail;
    if (result.deaths == 0) continue;  // the job was over before
    ++ended;
    unread += result.unread > 0 ? 1 : 0;
    EXPECT_EQ(result.outcome, "") << "seed " << seed;
    EXPECT_LE(result.generations, 1U) << "seed " << seed;
  }
  EXPECT_GT(ended, 50U);
  EXPECT_GT(unread, 30U);
  EXPECT_LT(unread, ended) << "no record was gone";
}

// The service's death, at any moment and any number of times, costs a job no generation and no
// restart.
TEST(ClusterSim, AJobOutlivesItsService) {
  uint64_t deaths = 0;
  uint64_t unformed = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    const auto run = [seed](bool trace) {
      return ClusterSim(seed, Sabotage::kNone, trace, Program::kOutlivesService).Run();
    };
    const ClusterSim::Result result = run(false);
    deaths += result.deaths;
    unformed += result.generations == 0 ? 1 : 0;
    const bool fine =
        result.broken.empty() && result.outcome == "succeeded" && result.generations == 1;
    ASSERT_TRUE(fine) << "seed " << seed << ": " << result.broken << ", " << result.outcome
                      << ", generations " << result.generations << ", rule " << result.rule << "\n"
                      << run(true).trace_tail;
  }
  EXPECT_GT(deaths, 1000U);
  std::cout << deaths << " deaths of the service\n";
}

// A program that fails at each start ends with the number of restarts, or sooner if the user asked
// for that.
TEST(ClusterSim, ACrashLoopEndsAndWithoutTheRuleSpendsTheBudget) {
  std::map<std::string, uint64_t> rules;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    ClusterSim sim(seed, Sabotage::kNone, /*trace=*/false, Program::kCrashesAtStart);
    const rendezvous::JobSpec job = sim.job();
    const ClusterSim::Result result = sim.Run();
    ASSERT_EQ(result.broken, "") << "seed " << seed;
    ++rules[result.rule];
    const uint32_t loop = job.restart.crash_loop;
    EXPECT_EQ(result.outcome, result.rule == "restarts_spent" ? "failed" : "failed_for_good")
        << "seed " << seed;
    if (result.rule == "crash_loop") {
      EXPECT_EQ(result.restarts, loop - 1) << "seed " << seed;
    } else if (result.rule == "no_progress") {
      EXPECT_EQ(result.restarts, job.restart.give_up_after - 1) << "seed " << seed;
    } else {
      EXPECT_EQ(result.rule, "restarts_spent") << "seed " << seed;
      EXPECT_EQ(result.restarts, job.max_restarts) << "seed " << seed;
      EXPECT_TRUE(loop == 0 || job.max_restarts < loop) << "seed " << seed;
    }
  }
  EXPECT_GT(rules["crash_loop"], 50U);
  EXPECT_GT(rules["restarts_spent"], 50U);
  EXPECT_GT(rules["no_progress"], 5U);
}

// The same seeds with a bug: the checkers must see it.
class Twin : public ::testing::TestWithParam<Sabotage> {};

TEST_P(Twin, IsCaught) {
  // Pauses grow with failed starts in a row, which are rare among other faults.
  const bool pauses = GetParam() == Sabotage::kLongPauses;
  const bool records = GetParam() == Sabotage::kForgetRecord;
  const Program program = pauses    ? Program::kCrashesAtStart
                          : records ? Program::kOutlivesService
                                    : Program::kTrains;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    ClusterSim sim(seed, GetParam(), /*trace=*/false, program);
    if (!sim.Run().broken.empty()) return;
  }
  FAIL() << "no checker noticed the bug within 100 seeds";
}

INSTANTIATE_TEST_SUITE_P(
    ClusterSim, Twin,
    ::testing::Values(Sabotage::kDuplicateRank, Sabotage::kEarlyStopped, Sabotage::kForgetVerdict,
                      Sabotage::kSkipGeneration, Sabotage::kForgetHung, Sabotage::kNoQuarantine,
                      Sabotage::kNoBudgets, Sabotage::kLongPauses, Sabotage::kOtherStopStep,
                      Sabotage::kForgetDrained, Sabotage::kNotifyBefore, Sabotage::kForgetRecord,
                      Sabotage::kOldRecord, Sabotage::kConfirmAll, Sabotage::kBelieveDamaged,
                      Sabotage::kNoFence, Sabotage::kFormerNotices, Sabotage::kGoBack));

// A failed seed becomes a handful of faults, which still fail in the same way.
TEST(ClusterSim, ShrinksAFailedSeed) {
  uint64_t seed = 1;
  const auto broken = [&] { return RunSeed(seed, Sabotage::kOtherStopStep).broken; };
  while (broken().empty()) ++seed;
  const Shrunk shrunk = Shrink(seed, Sabotage::kOtherStopStep);
  EXPECT_NE(shrunk.broken.find("stop at steps"), std::string::npos) << shrunk.broken;
  EXPECT_LE(shrunk.plan.faults.size(), 2U) << Describe(seed, shrunk);
  EXPECT_LT(shrunk.plan.faults.size(), shrunk.faults_before);
  // The script is the same run.
  const absl::StatusOr<SavedRun> saved = FromText(ToText({.seed = seed, .plan = shrunk.plan}));
  ASSERT_TRUE(saved.ok()) << saved.status();
  ClusterSim again(saved->seed, Sabotage::kOtherStopStep, /*trace=*/false);
  again.Follow(saved->plan);
  EXPECT_EQ(again.Run().broken, shrunk.broken);
  EXPECT_FALSE(FromText("seed 1\nat 1s n1 explode lasts 1s detail 0\n").ok());
  // Negative control: a seed that breaks nothing stays so.
  EXPECT_EQ(Shrink(seed, Sabotage::kNone).broken, "");
}

// Requires: seed_count >= jobs. Returns the exit status.
int RunSeedsInProcesses(uint64_t jobs) {
  GTEST_FLAG_SET(filter, "ClusterSim.SafeUnderFaultsAndLiveWithoutThem");
  const Instant began = MonotonicNow();
  const uint64_t first = first_seed;
  const uint64_t all = seed_count;
  std::vector<pid_t> children;
  for (uint64_t job = 0; job < jobs; ++job) {
    first_seed = first + all * job / jobs;
    seed_count = first + all * (job + 1) / jobs - first_seed;
    std::cout << std::flush;
    const pid_t child = fork();
    if (child == 0) std::_Exit(RUN_ALL_TESTS());
    if (child > 0) children.push_back(child);
  }
  bool ok = children.size() == jobs;
  for (const pid_t child : children) {
    int status = 0;
    ok &= waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  const double seconds = absl::ToDoubleSeconds(MonotonicNow() - began);
  std::cout << all << " schedules in " << seconds << " s with " << jobs << " processes, "
            << static_cast<double>(all) / seconds << " a second: " << (ok ? "none" : "some")
            << " broken\n";
  return ok ? 0 : 1;
}

// Returns the exit status.
int RunPlan(const std::string& file) {
  std::ifstream in(file);
  std::stringstream text;
  text << in.rdbuf();
  const absl::StatusOr<SavedRun> saved = FromText(text.str());
  if (!in || !saved.ok()) {
    std::cerr << "error: " << file << ": " << (in ? saved.status().ToString() : "can't be read")
              << "\n";
    return 2;
  }
  ClusterSim sim(saved->seed, Sabotage::kNone, /*trace=*/true);
  sim.Follow(saved->plan);
  const ClusterSim::Result result = sim.Run();
  std::cout << result.trace_tail << "\n"
            << (result.broken.empty() ? "nothing is broken" : result.broken) << "\n";
  return result.broken.empty() ? 0 : 1;
}

// Returns the exit status. Params: file: "" = the script is only printed.
int ShrinkSeed(uint64_t seed, const std::string& file) {
  const Shrunk shrunk = Shrink(seed, Sabotage::kNone);
  std::cout << Describe(seed, shrunk);
  if (!file.empty()) std::ofstream(file) << ToText({.seed = seed, .plan = shrunk.plan});
  return shrunk.broken.empty() ? 0 : 1;
}

}  // namespace
}  // namespace ddprun::sim

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  uint64_t jobs = 0;
  uint64_t shrink = 0;
  std::string save;
  std::string plan;
  for (int i = 1; i + 1 < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--seeds") ddprun::sim::seed_count = std::strtoull(argv[i + 1], nullptr, 10);
    if (option == "--first") ddprun::sim::first_seed = std::strtoull(argv[i + 1], nullptr, 10);
    if (option == "--shrink") shrink = std::strtoull(argv[i + 1], nullptr, 10);
    if (option == "--save") save = argv[i + 1];
    if (option == "--plan") plan = argv[i + 1];
    if (option == "--whole") ddprun::sim::shrinks = false;
    if (option == "--jobs") jobs = std::strtoull(argv[i + 1], nullptr, 10);
  }
  if (!plan.empty()) return ddprun::sim::RunPlan(plan);
  if (shrink > 0) return ddprun::sim::ShrinkSeed(shrink, save);
  return jobs > 0 ? ddprun::sim::RunSeedsInProcesses(jobs) : RUN_ALL_TESTS();
}
