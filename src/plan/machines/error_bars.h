// Error bars of predictions: the interval that contains nine of ten measurements.
#pragma once

#include <string>

namespace lockstep::plan {

struct Cluster;

/// Factors of a prediction between which the truth lies in nine of ten runs that it was not fitted
/// to.
struct ErrorBars {
  double least = 1, most = 1;
};

/// Of predictions by data sheets: made by `published_runs RUNS.csv --leave-one-out FILE --write
/// ...` (error_bars_table.cpp).
struct ErrorBarsTable {
  ErrorBars time, memory;
  double order = 1;  // see order_bar
};
const ErrorBarsTable& published_error_bars();

/// Of a step's time on these devices: of a machine that was measured, how far its own rates are off
/// what was measured of it (Device::time_error); else those of the published runs.
ErrorBars time_error_bars(const Cluster& cluster);
/// Of a rank's memory: on CPUs, whose processes are measured, 5% both ways.
ErrorBars memory_error_bars(const Cluster& cluster);

/// Two plans whose predicted times are this factor apart, or more, stand in that order in nine
/// cases of ten, and nearer ones in fewer; of a measured machine 1, as it is not known.
double order_bar(const Cluster& cluster);

/// "-9% +14%": a prediction of 100 may be 91 to 114.
std::string text_of(const ErrorBars& bars);
/// The same of a rate, which is the inverse of a time.
ErrorBars inverse_of(const ErrorBars& bars);

}  // namespace lockstep::plan
