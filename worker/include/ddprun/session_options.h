#ifndef DDPRUN_WORKER_INCLUDE_DDPRUN_SESSION_OPTIONS_H_
#define DDPRUN_WORKER_INCLUDE_DDPRUN_SESSION_OPTIONS_H_

#include <functional>
#include <string>

#include "ddprun/option_table.h"
#include "ddprun/training_options.h"

namespace ddprun {

struct SessionOptions {
  std::string name = "training";  // the program's name, for people
  TrainingOptions training = {};
  // For RunSession: the beginning of --help, and the options that only some programs use.
  std::string introduction = "";
  UsedOptions uses = {};
  // Adds the program's own options; null = none.
  std::function<void(OptionTable& table)> add_options = nullptr;

  // The options of one of several Sessions of a process: with a folder of its own, `part` under
  // output_dir and checkpoint_dir, and the name "NAME PART".
  SessionOptions Part(const std::string& part) const;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_INCLUDE_DDPRUN_SESSION_OPTIONS_H_
