#ifndef DDPRUN_LAUNCHER_MARKS_MARKS_SOURCE_H_
#define DDPRUN_LAUNCHER_MARKS_MARKS_SOURCE_H_

namespace ddprun::launcher {

// launcher/marks/marks.py and witness.py.
extern const char kMarksSource[];
extern const char kWitnessSource[];

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_MARKS_MARKS_SOURCE_H_
