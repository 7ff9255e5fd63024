#ifndef DDPRUN_LAUNCHER_OPTIONS_ARGUMENT_H_
#define DDPRUN_LAUNCHER_OPTIONS_ARGUMENT_H_

#include <string>

namespace ddprun::launcher {

// The value of an option, and where it was given.
struct Argument {
  std::string text;    // the default's text if the option wasn't given
  std::string source;  // as typed: "--nnodes", or "PET_NNODES"; "" = not given

  bool given() const { return !source.empty(); }
  // Given, and not as an empty text (`--rdzv_endpoint ""`, `PET_RDZV_ENDPOINT=`).
  bool filled() const { return given() && !text.empty(); }
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OPTIONS_ARGUMENT_H_
