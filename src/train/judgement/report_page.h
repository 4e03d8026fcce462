// HTML report of a classifier.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/judgement/judgement_files.h"

namespace lockstep::train {

/// Returns the calibration bins of predictions for single-label rows.
std::vector<metrics::CalibrationBin> calibration_of(const Answered& answered, int64_t bins);

/// Picture of the report, also written as a separate file.
struct ReportPicture {
  std::string heading, file, svg;
};

/// Returns the pictures of the report: the run's loss and evaluation curves if `history` contains
/// them, and those that apply to the problem type (confusion matrix, ROC and precision-recall
/// curves, calibration).
std::vector<ReportPicture> report_pictures(
    const Judgement& judgement, const Answered& answered, const std::vector<std::string>& history);

/// Returns a self-contained HTML page with the metrics, the report, the pictures and the rows of
/// `worst`. The page uses inline SVG and no scripts.
std::string report_page(
    const Judgement& judgement,
    const Answered& answered,
    const std::vector<size_t>& worst,
    const std::vector<ReportPicture>& pictures);

}  // namespace lockstep::train
