// The restart policy as a table: what a job has gone through, and what is decided by which rule.
#include "rendezvous/core/failures/restart_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "rendezvous/core/describe.h"

namespace ddprun::rendezvous {
namespace {

// One scenario. `rounds` are the ends of its generations, one word each:
//   <what>@<uptime>[:<step>][*<times>]     fail3@1s  lost@5s  grow@1m  kill9@0s:120  fail3@1s*4
//   what: fail<code> (failA: without a report), error <code with words of its own>, kill<signal>,
//   hang, oom, start (couldn't be started), peer (words about a peer), lost, grow
// `decision`: of the last round: "restart 2/3", "restart 2/3 500ms" (with a pause), "change 1",
// "grow", "failed", "failed for good". `rule`: its printed name.
struct Scenario {
  const char* name;
  const char* rules;
  const char* rounds;
  const char* decision;
  const char* rule;
};

const Scenario kScenarios[] = {
    // The budget of restarts, as torchrun has it.
    {"no restarts allowed", "", "fail3@1s", "failed", "restarts_spent"},
    {"no restarts allowed, after hours", "", "fail3@5h", "failed", "restarts_spent"},
    {"the first failure restarts at once", "max=3", "fail3@1s", "restart 1/3", "worker_failure"},
    {"the last restart", "max=1", "fail3@30s", "restart 1/1", "worker_failure"},
    {"one failure too many", "max=1", "fail3@30s*2", "failed", "restarts_spent"},
    {"the budget ends before the loop is judged", "max=3", "fail3@1s*4", "failed",
     "restarts_spent"},
    {"hours give nothing back unless asked", "max=2", "fail3@5h*3", "failed", "restarts_spent"},
    {"nobody reported a failure", "max=1", "failA@20s", "restart 1/1", "worker_failure"},
    // Restarts given back.
    {"the window gives restarts back", "max=2 window=1h", "fail3@1m*2 fail3@1h", "restart 3:1/2",
     "worker_failure"},
    {"a shorter life gives none", "max=2 window=1h", "fail3@1m*2 fail3@59m", "failed",
     "restarts_spent"},
    {"the budget counts from the window", "max=2 window=1h", "fail3@1m*2 fail3@1h fail3@1m*2",
     "failed", "restarts_spent"},
    {"a lost node's generation gives back too", "max=1 window=1h", "fail3@1m lost@2h fail3@1m",
     "restart 2:1/1", "worker_failure"},
    {"growth gives back too", "max=1 window=1h", "fail3@1m grow@2h fail3@1m", "restart 2:1/1",
     "worker_failure"},
    {"steps done again give none back", "max=1 window=1h", "fail3@1h:500 fail3@2h:400", "failed",
     "restarts_spent"},
    {"new steps give back", "max=1 window=1h", "fail3@1h:500 fail3@2h:501", "restart 2:1/1",
     "worker_failure"},
    {"new steps within the window give none", "max=1 window=1h", "fail3@1m:500 fail3@2m:900",
     "failed", "restarts_spent"},
    // Pauses between restarts.
    {"the second quick failure waits", "max=9", "fail3@1s fail4@1s", "restart 2/9 500ms",
     "backoff"},
    {"pauses double", "max=9", "fail3@1s fail4@1s fail5@1s fail6@1s", "restart 4/9 2s", "backoff"},
    {"up to the longest", "max=99 backoff=3s", "fail3@1s fail4@1s fail5@1s fail6@1s fail7@1s",
     "restart 5/99 3s", "backoff"},
    {"however many", "max=99", "fail3@1s*80", "restart 80/99 30s", "backoff"},
    {"jitter shortens a pause by up to half", "max=9 jitter=0.5", "fail3@1s fail4@1s fail5@1s",
     "restart 3/9 750ms", "backoff"},
    {"no pauses when switched off", "max=9 backoff=0s", "fail3@1s fail4@1s fail5@1s", "restart 3/9",
     "worker_failure"},
    {"a failure after the start ends the row", "max=9", "fail3@1s*3 fail3@10s", "restart 4/9",
     "worker_failure"},
    {"and the next quick one is the first", "max=9", "fail3@1s*3 fail3@10s fail3@9s", "restart 5/9",
     "worker_failure"},
    {"a completed step ends the row", "max=9", "fail3@1s*3 fail3@1s:7", "restart 4/9",
     "worker_failure"},
    {"a kill from outside is no quick failure", "max=9", "kill9@1s*5", "restart 5/9",
     "worker_failure"},
    {"one by the kernel for lack of memory is", "max=9", "oom@1s*2", "restart 2/9 500ms",
     "backoff"},
    {"a loss never waits", "max=9", "fail3@1s*3 lost@1s", "change 1", "membership_change"},
    {"growth never waits", "max=9", "fail3@1s*3 grow@1s", "grow", "growth"},
    {"a loss between doesn't hide a loop", "max=9", "fail3@1s*2 lost@1s fail3@1s", "restart 3/9 1s",
     "backoff"},
    // Starts that fail alike: the number of restarts alone counts, unless a limit is given.
    {"as many restarts as were given", "max=1000", "fail3@1s*1000", "restart 1000/1000 30s",
     "backoff"},
    {"one more failure", "max=8", "fail3@1s*9", "failed", "restarts_spent"},
    {"a program that can't be started, too", "max=8", "start@0s*8", "restart 8/8 30s", "backoff"},
    {"a crash of its own, too", "max=8", "kill11@1s*8", "restart 8/8 30s", "backoff"},
    {"the limit that was given", "max=1000 crash_loop=4", "fail3@1s*4", "failed for good",
     "crash_loop"},
    {"one less", "max=1000 crash_loop=4", "fail3@1s*3", "restart 3/1000 1s", "backoff"},
    {"a limit of two", "max=1000 crash_loop=2", "fail3@1s*2", "failed for good", "crash_loop"},
    {"a program that can't be started", "max=1000 crash_loop=4", "start@0s*4", "failed for good",
     "crash_loop"},
    {"a crash of its own", "max=1000 crash_loop=4", "kill11@1s*4", "failed for good", "crash_loop"},
    {"for lack of memory", "max=1000 crash_loop=4", "oom@1s*4", "failed for good", "crash_loop"},
    {"other codes are another failure", "max=1000 crash_loop=4", "fail3@1s*3 fail4@1s",
     "restart 4/1000 2s", "backoff"},
    {"other words are another failure", "max=1000 crash_loop=4", "error1@1s*3 error2@1s",
     "restart 4/1000 2s", "backoff"},
    {"so are other last words", "max=1000 crash_loop=4", "words1@1s*3 words2@1s",
     "restart 4/1000 2s", "backoff"},
    {"the same error among the last words", "max=1000 crash_loop=4", "words1@1s*4",
     "failed for good", "crash_loop"},
    {"kills from outside don't count", "max=1000 crash_loop=4", "kill9@1s*9", "restart 9/1000",
     "worker_failure"},
    {"nor hide it", "max=1000 crash_loop=4", "fail3@1s*3 kill9@1s fail3@1s", "failed for good",
     "crash_loop"},
    {"the loss of a peer is no loop", "max=1000 crash_loop=4", "peer@1s*6", "restart 6/1000 8s",
     "backoff"},
    {"a rejoin doesn't hide it", "max=1000 crash_loop=4", "fail3@1s*2 lost@1s fail3@1s*2",
     "failed for good", "crash_loop"},
    {"one good start ends the row", "max=1000 crash_loop=4", "fail3@1s*3 fail3@1m fail3@1s*3",
     "restart 7/1000 1s", "backoff"},
    {"failures after 10 s are no start-up", "max=1000 crash_loop=4", "fail3@10s*20",
     "restart 20/1000", "worker_failure"},
    {"a hang is no failed start", "max=1000 crash_loop=4", "hang@5s*9", "restart 9/1000",
     "worker_failure"},
    // Workers go on in their processes, and nobody said that there be no restart.
    {"a kill from outside costs them nothing", "survivors", "kept9@30s:5", "restart 1:0/0",
     "survivors"},
    {"right after the start, too", "survivors", "kept9@1s:5 kept9@1s:6", "restart 2:0/0",
     "survivors"},
    {"without a pause, however often, while they get on", "survivors",
     "kept9@1s:5 kept9@1s:6 kept9@1s:7 kept9@1s:8 kept9@1s:9 kept15@1s:10", "restart 6:0/0",
     "survivors"},
    {"three times without progress", "survivors", "kept9@1s:5 kept9@1s:5*3", "restart 4:0/0",
     "survivors"},
    {"not a fourth time", "survivors", "kept9@1s:5 kept9@1s:5*4", "failed", "restarts_spent"},
    {"nobody goes on", "survivors", "kill9@30s:5", "failed", "restarts_spent"},
    {"a crash of its own is an end", "survivors", "kept11@30s:5", "failed", "restarts_spent"},
    {"so is a lack of memory", "survivors", "keptoom@30s:5", "failed", "restarts_spent"},
    {"so is an error", "survivors", "keptfail1@30s:5", "failed", "restarts_spent"},
    {"a number was given, and it is 0", "", "kept9@30s:5", "failed", "restarts_spent"},
    {"from an agent of before, with a number", "max=1", "kept9@30s:5*2", "failed",
     "restarts_spent"},
    {"a number that was given limits others", "survivors max=1",
     "kept9@1s:5 kept9@1s:6 keptfail1@1s:7 kept9@1s:8", "restart 4:1/1", "survivors"},
    {"beyond three, too", "survivors max=1", "kept9@1s:5 kept9@1s:5*4", "restart 5:1/1",
     "worker_failure"},
    {"they end by two errors", "survivors max=1", "kept9@1s:5 keptfail1@20s:7 keptfail1@20s:9",
     "failed", "restarts_spent"},
    // No progress.
    {"never, unless asked", "max=1000", "fail3@30s*50", "restart 50/1000", "worker_failure"},
    {"three in a row", "max=1000 give_up=3", "fail3@30s*3", "failed for good", "no_progress"},
    {"two are not enough", "max=1000 give_up=3", "fail3@30s*2", "restart 2/1000", "worker_failure"},
    {"a minute is progress", "max=1000 give_up=3", "fail3@30s*2 fail3@60s fail3@30s*2",
     "restart 5/1000", "worker_failure"},
    {"where steps are marked, a minute is none", "max=1000 give_up=3",
     "fail3@1h:100 fail3@1h:100*3", "failed for good", "no_progress"},
    {"a new step is progress", "max=1000 give_up=3", "fail3@1h:100*3 fail3@1h:101",
     "restart 4/1000", "worker_failure"},
    {"losses between neither count nor reset", "max=1000 give_up=3",
     "fail3@30s*2 lost@30s fail3@30s", "failed for good", "no_progress"},
    // Membership changes.
    {"a lost node", "", "lost@5s", "change 1", "membership_change"},
    {"costs no restart", "max=1", "lost@5s*9 fail3@30s", "restart 1/1", "worker_failure"},
    {"one too many", "changes=2", "lost@5s*3", "failed", "membership_spent"},
    {"none allowed", "changes=0", "lost@5s", "failed", "membership_spent"},
    {"without a limit unless given", "", "lost@1s*5000", "change 5000", "membership_change"},
    {"a limit of a hundred", "changes=100", "lost@59s*100", "change 100", "membership_change"},
    {"and no more", "changes=100", "lost@59s*101", "failed", "membership_spent"},
    {"a minute refills them", "changes=2", "lost@5s*2 lost@60s", "change 1", "membership_change"},
    {"a minute without a new step doesn't", "changes=2", "lost@1h:9 lost@1h:9*2", "failed",
     "membership_spent"},
    {"growth costs nothing", "max=1 changes=1", "grow@5s*9", "grow", "growth"},
};

WorkerFailure FailureOf(absl::string_view what) {
  WorkerFailure failure;
  int number = 0;
  const size_t digits = std::min(what.find_first_of("0123456789"), what.size());
  const bool numbered = absl::SimpleAtoi(what.substr(digits), &number);
  if (absl::StartsWith(what, "kill")) {
    failure.signal = number;
  } else if (what == "oom") {
    failure.signal = SIGKILL;
    failure.facts = {absl::StrCat(kOutOfMemoryFact, "1 process")};
  } else if (what == "start") {
    failure.start_error = "No such file or directory";
  } else if (what == "hang") {
    failure.signal = SIGKILL;
    failure.hung = true;
    failure.message = "silent for 3 s in step 7";
  } else if (what == "peer") {
    failure.exit_code = 1;
    failure.message = "RuntimeError: Connection closed by peer";
  } else if (absl::StartsWith(what, "error")) {
    failure.exit_code = 1;
    failure.message = absl::StrCat("ValueError: ", number, "\nsecond line");
  } else if (absl::StartsWith(what, "words")) {
    static int epoch = 0;  // other lines don't matter
    failure.exit_code = 1;
    failure.stderr_tail = absl::StrCat("epoch ", ++epoch, "\n[rank1]: ValueError: ", number, "\n");
  } else {
    EXPECT_TRUE(absl::StartsWith(what, "fail") && numbered) << what;
    failure.exit_code = number;
  }
  return failure;
}

// Plays a scenario through the policy.
class Play {
 public:
  explicit Play(const Scenario& scenario) {
    spec_.max_restarts = 0;
    for (absl::string_view word : absl::StrSplit(scenario.rules, ' ', absl::SkipEmpty())) {
      SetRule(word);
    }
    for (absl::string_view word : absl::StrSplit(scenario.rounds, ' ')) PlayWord(word);
  }

  std::string Decision() const {
    const RestartHistory& history = last_.history;
    if (last_.verdict) return OutcomeText(*last_.verdict);
    if (last_.blame == Blame::kGrowth) return "grow";
    if (last_.blame == Blame::kMembership)
      return absl::StrCat("change ", history.membership_changes);
    const bool given_back = history.restarts_charged != history.restart_count;
    std::string text = absl::StrCat("restart ", history.restart_count,
                                    given_back ? absl::StrCat(":", history.restarts_charged) : "",
                                    "/", spec_.max_restarts);
    if (last_.pause > absl::ZeroDuration()) {
      absl::StrAppend(&text, " ", absl::FormatDuration(last_.pause));
    }
    return text;
  }
  const RestartDecision& last() const { return last_; }

 private:
  void SetRule(absl::string_view word) {
    if (word == "survivors") {
      spec_.survivors_restart = true;
      return;
    }
    const std::pair<std::string, std::string> rule = absl::StrSplit(word, '=');
    RestartRules& rules = spec_.restart;
    uint32_t number = 0;
    absl::Duration time;
    const bool is_number = absl::SimpleAtoi(rule.second, &number);
    const bool is_time = absl::ParseDuration(rule.second, &time);
    if (rule.first == "jitter") {
      ASSERT_TRUE(absl::SimpleAtod(rule.second, &jitter_)) << word;
      return;
    }
    ASSERT_TRUE(is_number || is_time) << word;
    if (rule.first == "max") spec_.max_restarts = number;
    if (rule.first == "changes") rules.max_membership_changes = number;
    if (rule.first == "crash_loop") rules.crash_loop = number;
    if (rule.first == "give_up") rules.give_up_after = number;
    if (rule.first == "window") rules.restart_window = time;
    if (rule.first == "backoff") rules.backoff_max = time;
  }

  void PlayWord(absl::string_view word) {
    const std::vector<absl::string_view> repeated = absl::StrSplit(word, '*');
    const std::vector<absl::string_view> parts = absl::StrSplit(repeated[0], absl::ByAnyChar("@:"));
    ASSERT_GE(parts.size(), 2U) << word;
    RoundEnd end{.any_gone = parts[0] == "lost",
                 .for_growth = parts[0] == "grow",
                 .step = std::nullopt,
                 .jitter = jitter_};
    ASSERT_TRUE(absl::ParseDuration(parts[1], &end.uptime)) << word;
    uint64_t step = 0;
    if (parts.size() > 2) {
      ASSERT_TRUE(absl::SimpleAtoi(parts[2], &step)) << word;
      end.step = step;
    }
    WorkerFailure failure;
    if (!end.any_gone && !end.for_growth && parts[0] != "failA") {
      absl::string_view what = parts[0];
      end.any_kept = absl::ConsumePrefix(&what, "kept");
      const bool is_signal = end.any_kept && absl::ascii_isdigit(what.front());
      failure = FailureOf(is_signal ? absl::StrCat("kill", what) : what);
      end.cause = &failure;
    }
    uint32_t times = 1;
    ASSERT_TRUE(repeated.size() < 2 || absl::SimpleAtoi(repeated[1], &times)) << word;
    for (uint32_t i = 0; i < times; ++i) {
      ASSERT_FALSE(last_.verdict) << "the job has ended before " << word;
      last_ = DecideRestart(spec_, last_.history, end);
    }
  }

  JobSpec spec_;
  double jitter_ = 0;
  RestartDecision last_;
};

TEST(RestartPolicy, TheTable) {
  EXPECT_GE(std::size(kScenarios), 40U);
  std::set<std::string> names;
  for (const Scenario& scenario : kScenarios) {
    EXPECT_TRUE(names.insert(scenario.name).second) << scenario.name << " is there twice";
    SCOPED_TRACE(absl::StrCat(scenario.name, ": ", scenario.rules, ": ", scenario.rounds));
    const Play play(scenario);
    EXPECT_EQ(play.Decision(), scenario.decision);
    EXPECT_EQ(RuleName(play.last().rule), scenario.rule);
  }
}

// What people read beside the cause.
TEST(RestartPolicy, SaysWhy) {
  const std::pair<Scenario, const char*> rows[] = {
      {{"", "", "fail3@1s", "", ""}, ""},
      {{"", "max=3", "fail3@1s", "", ""}, "restart 1 of 3"},
      {{"", "max=3", "fail3@1s*2", "", ""}, "restart 2 of 3 after a pause of 500 ms"},
      {{"", "max=1", "fail3@1s*2", "", ""}, "the only restart is used up"},
      {{"", "max=3", "fail3@30s*4", "", ""}, "all 3 restarts are used up"},
      {{"", "max=2 window=1h", "fail3@2m*2 fail3@1h fail3@2m", "", ""},
       "restart 4, 2 of 2 charged"},
      {{"", "max=2 window=1h", "fail3@2m*2 fail3@1h fail3@2m*2", "", ""},
       "all 2 restarts are used up"},
      {{"", "max=9 crash_loop=4", "fail3@1s*4", "", ""},
       "4 starts in a row failed in this way within 10 s (--crash_loop)"},
      {{"", "max=9 give_up=2", "fail3@20s*2", "", ""},
       "2 generations in a row failed without progress (--give_up_after)"},
      {{"", "survivors", "kept9@30s:5", "", ""}, "restart 1, for the workers that go on"},
      {{"", "survivors", "kill9@30s:5", "", ""},
       "no restart is allowed; --max_restarts N would have started all workers again"},
      {{"", "survivors", "fail1@30s:5", "", ""}, ""},
      {{"", "", "kill9@30s:5", "", ""}, ""},
      {{"", "changes=1", "lost@1s*2", "", ""},
       "more than 1 membership change without a generation that made progress for 60 s"},
  };
  for (const auto& [scenario, why] : rows) EXPECT_EQ(Play(scenario).last().why, why);
}

// Whatever the jitter, a pause is at least half as long as without, and never longer.
TEST(RestartPolicy, JitterKeepsWithinItsBounds) {
  const WorkerFailure failure = FailureOf("fail3");
  JobSpec spec;
  spec.max_restarts = 1000;
  RestartHistory history;
  absl::Duration full = absl::Milliseconds(500);
  for (int i = 0; i < 20; ++i) {
    RoundEnd end{.uptime = absl::Seconds(1), .step = std::nullopt, .cause = &failure};
    for (const double jitter : {0.0, 0.3, 0.999}) {
      end.jitter = jitter;
      const absl::Duration pause = DecideRestart(spec, history, end).pause;
      EXPECT_LE(pause, i == 0 ? absl::ZeroDuration() : full);
      EXPECT_GE(pause, i == 0 ? absl::ZeroDuration() : full / 2 - absl::Milliseconds(1));
    }
    history = DecideRestart(spec, history, end).history;
    if (i > 0) full = std::min(2 * full, spec.restart.backoff_max);
  }
}

TEST(RuleName, EachHasOneOfItsOwn) {
  std::set<std::string> names;
  for (int i = 0; i <= static_cast<int>(kLastRule); ++i) {
    const Rule rule = static_cast<Rule>(i);
    EXPECT_TRUE(names.insert(RuleName(rule)).second) << i;
    EXPECT_EQ(RuleOf(RuleName(rule)), rule);
  }
  EXPECT_FALSE(names.contains("unknown"));
  EXPECT_FALSE(RuleOf("unknown").has_value());
}

}  // namespace
}  // namespace ddprun::rendezvous
