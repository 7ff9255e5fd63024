#ifndef DDPRUN_LAUNCHER_CLI_VERSION_TEXT_H_
#define DDPRUN_LAUNCHER_CLI_VERSION_TEXT_H_

#include <string>

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

// The output of `ddprun --version`. Its first line, "ddprun 0.1.0", never changes, because scripts
// read it; a line for each further fact follows. Params: glibc: NeededGlibc().
std::string VersionText(const BuildFacts& facts, const std::string& glibc);

// The oldest glibc that can run this program, "2.28": the newest version of glibc's symbols that
// the program's file asks for; "" = it asks for none, or can't be read. Source: the ELF section
// .gnu.version_r, see elf(5) and "Symbol Versioning" of the LSB. Threads: any.
std::string NeededGlibc();

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLI_VERSION_TEXT_H_
