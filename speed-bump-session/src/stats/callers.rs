//! The callers of a function, for reports.

use speed_bump_abi::callers::PairTimes;
pub(crate) use speed_bump_experiment::report::session::CallerReport;

use crate::probe::plan::SelectedFunction;

/// The calls by this function, whether or not a target selects it.
pub(crate) fn by(caller: &SelectedFunction, times: PairTimes) -> CallerReport {
    CallerReport::new(caller.name.clone(), caller.file.clone(), caller.line, times)
}

/// The warning about calls without a pair of caller and function.
pub(crate) fn without_caller(calls: u64) -> Option<String> {
    (calls > 0).then(|| {
        format!(
            "the callers of {calls} calls are left out: it could not be told who calls, or there is no room \
             for more callers and pairs; where functions are many, select fewer"
        )
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn what_is_left_out_is_told() {
        assert_eq!(without_caller(0), None);
        assert!(without_caller(3).unwrap().starts_with("the callers of 3 calls are left out"));
    }
}
