#ifndef DDPRUN_TESTS_WORKER_PROGRAMS_TESTING_H_
#define DDPRUN_TESTS_WORKER_PROGRAMS_TESTING_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "tests/worker/in_process_restart.h"

namespace ddprun::testing {

inline constexpr int kKills = 10;

// NaN: it is none.
inline double Number(const std::string& text) {
  double number = 0;
  return absl::SimpleAtod(text, &number) ? number : std::nan("");
}

// Trainings by programs_probe, with and without kills.
class ProgramsTest : public InProcessRestartTest {
 protected:
  ProgramsTest() { program_ = "programs_probe"; }

  // Each training has a folder of its own, unless `saves` is false.
  std::vector<std::string> Folder(int run, bool saves) const {
    if (!saves) return {};
    return {"--output_dir", directory_.File("out" + std::to_string(run)), "--checkpoint_every",
            "3"};
  }

  // Bit by bit: digests of the parameters, and figures with all their digits.
  static void ExpectAlike(std::map<std::string, std::string> seen,
                          std::map<std::string, std::string> expected, const std::string& when) {
    for (auto* one : {&seen, &expected}) {
      one->erase("ticks");
      one->erase("begun_at");
      EXPECT_FALSE(one->empty()) << when;
    }
    EXPECT_EQ(seen, expected) << when;
  }

  void KillTenTimes(const std::string& kind, bool saves,
                    const std::vector<std::string>& more = {}) {
    what_ = kind;
    const auto options = [&](int run) {
      std::vector<std::string> all = Folder(run, saves);
      all.insert(all.end(), more.begin(), more.end());
      return all;
    };
    const auto expected = Undisturbed(options(0));
    const int ticks = static_cast<int>(Number(expected[1].at("ticks")));
    for (int kill = 1; kill <= kKills; ++kill) {
      const std::string at = std::to_string(1 + (ticks - 1) * kill / (kKills + 1));
      const std::string when = kind + ", killed at " + at + " of " + std::to_string(ticks);
      const auto [survivor, successor] = ReplaceRankOne(at, options(kill));
      EXPECT_EQ(survivor.Wait(), 0) << when << Output(0, 1);
      EXPECT_EQ(successor.Wait(), 0) << when << Output(1, 2);
      for (const uint32_t rank : {0, 1}) {
        ExpectAlike(Seen(rank), expected[rank], when + ", rank " + std::to_string(rank));
      }
      if (::testing::Test::HasFailure()) return;
      agent_->EndGeneration("it is done");
      agent_->BeginGeneration(1, 2);
    }
  }

  // Rank 1 is killed at a tick of its first life, where rank 0 waits until the generation is over,
  // if `waits`: then it hears of the end from its agent, before a collective fails.
  void KillAt(const std::string& tick, bool waits, const std::vector<std::string>& options) {
    const auto with_folder = [&](const std::string& name) {
      std::vector<std::string> all = {"--output_dir", directory_.File(name)};
      all.insert(all.end(), options.begin(), options.end());
      return all;
    };
    const std::string run = "killed" + std::to_string(runs_++);
    const auto expected = Undisturbed(with_folder(run + ".expected"));
    const auto [survivor, successor] =
        ReplaceRankOne(tick, with_folder(run), waits ? "wait " + tick : "");
    EXPECT_EQ(survivor.Wait(), 0) << Output(0, 1);
    EXPECT_EQ(successor.Wait(), 0) << Output(1, 2);
    for (const uint32_t rank : {0, 1}) {
      ExpectAlike(Seen(rank), expected[rank], run + ", rank " + std::to_string(rank));
    }
    agent_->EndGeneration("it is done");
    agent_->BeginGeneration(1, 2);
  }

  // The text with which both ranks of a wrong program end.
  void ExpectRefused(const std::string& kind, const std::string& text,
                     const std::vector<std::string>& options = {}) {
    what_ = kind;
    Process& one = Start(0, 2, 1, "", options);
    Process& other = Start(1, 2, 1, "", options);
    EXPECT_EQ(one.Wait(), 1);
    EXPECT_EQ(other.Wait(), 1);
    EXPECT_THAT(Output(0, 1), ::testing::HasSubstr(text));
  }

  void AgainInANewGeneration() {
    agent_->EndGeneration("it is done");
    agent_->BeginGeneration(1, 2);
  }

 private:
  int runs_ = 0;
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_WORKER_PROGRAMS_TESTING_H_
