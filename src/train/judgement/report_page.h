// A classifier's report as one page.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/judgement/judgement_files.h"

namespace lockstep::train {

/// How sure the answers of rows with one label are, and how often they are right.
std::vector<metrics::CalibrationBin> calibration_of(const Answered& answered, int64_t bins);

/// HTML that reads nothing else: pictures are SVG within it, and there are no scripts. Metrics, the
/// report, the confusion matrix, the curves of the run's losses, ROC and precision-recall curves,
/// calibration, and the rows of `worst`.
std::string report_page(
    const Judgement& judgement,
    const Answered& answered,
    const std::vector<size_t>& worst,
    const std::vector<std::string>& history);

}  // namespace lockstep::train
