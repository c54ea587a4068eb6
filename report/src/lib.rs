//! Tables, plots and pages.
