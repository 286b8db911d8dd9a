//! Small real programs for the tests, compiled when the tests run.
