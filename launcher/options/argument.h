#ifndef DDPRUN_LAUNCHER_OPTIONS_ARGUMENT_H_
#define DDPRUN_LAUNCHER_OPTIONS_ARGUMENT_H_

#include <string>

namespace ddprun::launcher {

// The value of an option, and who gave it.
struct Argument {
  std::string text;    // the default's text when nobody gave one
  std::string source;  // as typed: "--nnodes", or "PET_NNODES"; "" = nobody

  bool given() const { return !source.empty(); }
  // Given, and not as an empty text (`--rdzv_endpoint ""`, `PET_RDZV_ENDPOINT=`).
  bool filled() const { return given() && !text.empty(); }
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OPTIONS_ARGUMENT_H_
