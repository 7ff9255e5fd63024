#ifndef DDPRUN_LAUNCHER_WARM_BOOTSTRAP_H_
#define DDPRUN_LAUNCHER_WARM_BOOTSTRAP_H_

namespace ddprun::launcher {

// launcher/warm/bootstrap.py.
extern const char kWarmBootstrap[];

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_WARM_BOOTSTRAP_H_
