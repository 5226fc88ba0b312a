#include "core/calibrate/calibrate.h"

namespace invar {

Result<v1::CalibrateReport> calibrate(const v1::CalibrateConfig&, const CalibrateContext&) {
  return Error(Code::kUnimplemented, "calibrate.unimplemented", "calibration is not in this build yet");
}

}  // namespace invar
