//! `tidegate-bench`: measures the built daemon over real sockets.
//!
//! A rate without validation is noise, so every figure comes with the number of requests
//! completed, the errors, the slowest request, and a count of rows that must agree with what
//! was acknowledged. Machines are noisy too: figures count as ratios between lanes that ran
//! interleaved, as medians of several rounds.

pub mod http;
pub mod lag;
pub mod lane;
pub mod load;
pub mod plot;
pub mod process;
pub mod results;
pub mod shape;
pub mod suite;
