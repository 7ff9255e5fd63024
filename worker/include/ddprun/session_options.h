#ifndef DDPRUN_WORKER_INCLUDE_DDPRUN_SESSION_OPTIONS_H_
#define DDPRUN_WORKER_INCLUDE_DDPRUN_SESSION_OPTIONS_H_

#include <functional>
#include <string>

#include "ddprun/option_table.h"
#include "ddprun/training_options.h"

namespace ddprun {

struct SessionOptions {
  std::string name = "training";  // of the program, for people
  TrainingOptions training = {};
  // For RunSession: what --help begins with, and which options it has.
  std::string introduction = "";
  UsedOptions uses = {};
  // Adds the program's own; null = none.
  std::function<void(OptionTable& table)> add_options = nullptr;

  // For one of several Sessions of a process: these options with a folder of its own, `part` under
  // output_dir and checkpoint_dir, and "NAME PART" as its name.
  SessionOptions Part(const std::string& part) const;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_INCLUDE_DDPRUN_SESSION_OPTIONS_H_
