// A classifier's report as one page.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/judgement/judgement_files.h"

namespace lockstep::train {

/// How sure the answers of rows with one label are, and how often they are right.
std::vector<metrics::CalibrationBin> calibration_of(const Answered& answered, int64_t bins);

/// A picture of the page, which is a file by itself, too.
struct ReportPicture {
  std::string heading, file, svg;
};

/// The curves of the run's losses and evaluations, where `history` has them; of labels the
/// confusion matrix, ROC and precision-recall curves and calibration, as the problem has them.
std::vector<ReportPicture> report_pictures(
    const Judgement& judgement, const Answered& answered, const std::vector<std::string>& history);

/// HTML that reads nothing else: pictures are SVG within it, and there are no scripts. Metrics, the
/// report, the pictures, and the rows of `worst`.
std::string report_page(
    const Judgement& judgement,
    const Answered& answered,
    const std::vector<size_t>& worst,
    const std::vector<ReportPicture>& pictures);

}  // namespace lockstep::train
