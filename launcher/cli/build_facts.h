#ifndef DDPRUN_LAUNCHER_CLI_BUILD_FACTS_H_
#define DDPRUN_LAUNCHER_CLI_BUILD_FACTS_H_

namespace ddprun::launcher {

// What is known of a program when it is linked.
struct BuildFacts {
  // The commit's name in git, with " and changes" if the tree had any that weren't committed;
  // "unknown" without git.
  const char* commit;
  // The torch that the tests use, and the oldest and newest whose clients of the store are tested:
  // "2.11.0" (scripts/lib/torch_env.sh).
  const char* torch;
  const char* torch_oldest;
  const char* torch_newest;
};

// Only the program itself has these, so that a commit compiles one small file
// (cmake/Version.cmake).
extern const BuildFacts kBuildFacts;

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLI_BUILD_FACTS_H_
